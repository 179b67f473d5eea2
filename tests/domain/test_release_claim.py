"""A claim that never reached its worker is released; see also test_life_machine."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from legacy_queue.domain import transitions
from legacy_queue.domain.outcome import Outcome
from legacy_queue.domain.task import Task, Worker
from tests.domain.tasks import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    DAY,
    HELD,
    MS,
    NOW,
    definition,
    pending,
    running,
)

TAKEN_UNTIL = NOW + CLAIM_TIMEOUT


def released(
    task: Task,
    run_id: int = 0,
    worker: Worker = ALICE,
    taken_until: datetime = TAKEN_UNTIL,
) -> Outcome:
    return transitions.release_claim(task, run_id, worker, taken_until)


def resolved(reason: str, state: str = "exception") -> Task:
    return transitions.resolve(running(), 0, state, reason, NOW).task


def claimed_again(worker: Worker, later: timedelta) -> Task:
    task = released(running()).task
    claim = transitions.claim(task, 0, worker, HELD, HELD.message_id, CLAIM_TIMEOUT, NOW + later)
    return replace(claim.task, held=HELD)


def test_a_released_retry_is_pending_again() -> None:
    task = transitions.resolve(running(retries=1), 0, "exception", "worker-shutdown", NOW).task
    claimed = transitions.claim(task, 1, ALICE, None, None, CLAIM_TIMEOUT, NOW).task
    assert released(replace(claimed, held=HELD), 1).task == task
    assert released(replace(claimed, held=HELD), 0).task.state == "running"


@pytest.mark.parametrize(
    "task",
    [
        Task("VLdaX5vAQ0iW8JIr3sGQZw", definition(), 5),
        pending(),
        resolved("completed", "completed"),
        resolved("worker-shutdown"),
        resolved("malformed-payload"),
        transitions.cancel(running(), NOW).task,
        transitions.expire(running(), TAKEN_UNTIL).task,
        transitions.expire(running(), NOW + DAY).task,
        transitions.reclaim(running(), 0, CLAIM_TIMEOUT, NOW + MS).task,
        claimed_again(BOB, timedelta(0)),
        claimed_again(ALICE, MS),
    ],
    ids=[
        "unscheduled",
        "pending",
        "completed",
        "retried",
        "an exception",
        "canceled",
        "expired",
        "past its deadline",
        "reclaimed",
        "claimed by another",
        "claimed again",
    ],
)
def test_a_release_of_another_claim_changes_nothing(task: Task) -> None:
    assert released(task) == Outcome(task)
