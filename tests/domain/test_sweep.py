"""The sweeper looks at a waiting task after 10 minutes, 20, 40, and so on."""

import itertools

import pytest

from legacy_queue.domain.timer import is_due
from tests.domain.tasks import DAY, MINUTE, MS, NOW


@pytest.mark.parametrize("minutes", [10, 20, 40, 80, 160, 10 * 2**10])
def test_a_waiting_task_is_due_each_time_its_age_has_doubled(minutes: int) -> None:
    due = NOW + minutes * MINUTE
    assert is_due(NOW, due - MS, due)
    assert not is_due(NOW, due - 2 * MS, due - MS)
    assert not is_due(NOW, due, due + MS)


def test_a_task_is_not_due_in_its_first_ten_minutes() -> None:
    for last_pass in (None, NOW - DAY, NOW):
        assert not is_due(NOW, last_pass, NOW + 10 * MINUTE - MS)
    assert is_due(NOW, None, NOW + 15 * MINUTE)


def test_a_task_that_waits_for_a_day_is_due_eight_times_in_passes_of_ten_minutes() -> None:
    passes = [NOW + 3 * MINUTE + number * 10 * MINUTE for number in range(144)]
    looks = [is_due(NOW, last, now) for last, now in itertools.pairwise(passes)]
    assert looks.count(True) == 8
