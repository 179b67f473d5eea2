from datetime import timedelta

import pytest

from legacy_queue.worker.held_claim import reclaim_delay


@pytest.mark.parametrize(
    ("life", "reclaimed_after"),
    [
        (timedelta(minutes=20), timedelta(minutes=17)),
        (timedelta(minutes=9), timedelta(minutes=6)),
        (timedelta(minutes=3), timedelta(minutes=2)),
        (timedelta(seconds=6), timedelta(seconds=4)),
    ],
)
def test_a_claim_is_reclaimed_three_minutes_before_its_end_or_after_two_thirds(
    life: timedelta, reclaimed_after: timedelta
) -> None:
    assert reclaim_delay(life) == reclaimed_after


@pytest.mark.parametrize("life", [timedelta(seconds=1), timedelta(0), timedelta(minutes=-20)])
def test_a_reclaim_waits_a_second_at_least(life: timedelta) -> None:
    assert reclaim_delay(life) == timedelta(seconds=1)
