"""A changed priority, as the pure function decides it; tests/services shows what happens to messages."""

from dataclasses import replace
from datetime import timedelta

from legacy_queue.domain import transitions
from legacy_queue.domain.outcome import DeleteMessage, Hold, Outcome
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import PriorityChange, Task
from tests.domain.tasks import (
    CLAIM_TIMEOUT,
    HELD,
    MINUTE,
    NOW,
    SECOND,
    pending,
    running,
)

LOWEST = WorkQueue("provisioner", "worker-Type_1", "lowest")


def change(task: Task, priority: str = "high", after: timedelta = MINUTE) -> Outcome:
    return transitions.change_priority(task, priority, NOW + after)


def test_a_task_has_the_priority_of_its_definition_until_it_is_changed() -> None:
    task = pending(priority="medium")
    assert (task.priority, task.work_queue.priority, task.status()["priority"]) == ("medium",) * 3
    changed = change(task).task
    assert (changed.priority, changed.work_queue.priority, changed.status()["priority"]) == ("high",) * 3
    assert changed.wire == {**task.wire, "priority": "high"}


def test_the_held_message_moves_from_the_old_queue_to_the_new_queue() -> None:
    outcome = change(running())
    assert outcome.hold == Hold(1, NOW + CLAIM_TIMEOUT, None)
    assert outcome.after == DeleteMessage(HELD, LOWEST)
    assert outcome.task.runs == running().runs


def test_near_the_deadline_the_held_message_is_only_deleted() -> None:
    task = running(deadline=(NOW + CLAIM_TIMEOUT).isoformat().replace("+00:00", "Z"))
    outcome = change(task)
    assert (outcome.hold, outcome.task.held, outcome.after) == (None, None, DeleteMessage(HELD, LOWEST))
    nothing_held = change(replace(task, held=None))
    assert (nothing_held.hold, nothing_held.after) == (None, None)


def test_a_repeated_change_publishes_and_offers_again() -> None:
    first = change(pending())
    again = change(first.task, after=2 * MINUTE)
    assert again == first


def test_the_last_fifty_changes_are_kept() -> None:
    task = pending()
    for number in range(51):
        task = change(task, ("high", "low")[number % 2], number * SECOND).task
    assert len(task.priority_changes) == 50
    assert task.priority_changes[0] == PriorityChange("high", "low", NOW + SECOND)
