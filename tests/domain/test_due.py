"""When something must happen to a task, and when the sweeper looks at it."""

from datetime import datetime

import pytest

from legacy_queue.domain import transitions
from legacy_queue.domain.due import is_look_due, next_due
from legacy_queue.domain.task import Task
from tests.domain.sample_tasks import (
    ALICE,
    CLAIM_TIMEOUT,
    DAY,
    MINUTE,
    MS,
    NOW,
    ended,
    pending,
    running,
    unscheduled,
)

RETRIED = ended(how="worker-shutdown")


@pytest.mark.parametrize(
    ("task", "due"),
    [
        (unscheduled(), NOW + DAY),
        (pending(), NOW + DAY),
        (running(), NOW + CLAIM_TIMEOUT),
        (running(deadline="2030-01-02T03:14:05.678Z"), NOW + 10 * MINUTE),
        (RETRIED, NOW + DAY),
        (transitions.claim(RETRIED, 1, ALICE, None, None, CLAIM_TIMEOUT, NOW).task, NOW + CLAIM_TIMEOUT),
        (ended(), None),
    ],
)
def test_a_task_is_due_at_the_end_of_its_claim_or_at_its_deadline(task: Task, due: datetime | None) -> None:
    assert next_due(task) == due


def test_the_sweeper_looks_at_a_task_after_ten_minutes_and_each_time_its_age_has_doubled() -> None:
    for last_pass in (None, NOW - DAY, NOW):
        assert not is_look_due(NOW, last_pass, NOW + 10 * MINUTE - MS)
    assert is_look_due(NOW, None, NOW + 15 * MINUTE)
    for minutes in (10, 20, 40, 10 * 2**10):
        due = NOW + minutes * MINUTE
        assert is_look_due(NOW, due - MS, due)
        assert not is_look_due(NOW, due - 2 * MS, due - MS)
        assert not is_look_due(NOW, due, due + MS)
