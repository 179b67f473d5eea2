"""A claim that never reached its worker is released, and another claim is not."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from legacy_queue.domain import transitions
from legacy_queue.domain.outcome import Offer, Outcome
from legacy_queue.domain.task import Task, Worker
from tests.domain.tasks import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    HELD,
    MS,
    NOW,
    definition,
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


def claimed_again(worker: Worker, later: timedelta) -> Task:
    task = released(running()).task
    claim = transitions.claim(task, 0, worker, HELD, HELD.message_id, CLAIM_TIMEOUT, NOW + later)
    return replace(claim.task, held=HELD)


def test_a_released_retry_is_pending_and_its_message_offered() -> None:
    task = transitions.resolve(running(), 0, "exception", "worker-shutdown", NOW).task
    claimed = transitions.claim(task, 1, ALICE, None, None, CLAIM_TIMEOUT, NOW).task
    outcome = released(replace(claimed, held=HELD), 1)
    assert (outcome.task, outcome.after) == (task, Offer(1, HELD))


@pytest.mark.parametrize(
    "task",
    [
        Task("VLdaX5vAQ0iW8JIr3sGQZw", definition(), 5),
        transitions.resolve(running(), 0, "exception", "worker-shutdown", NOW).task,
        transitions.reclaim(running(), 0, CLAIM_TIMEOUT, NOW + MS).task,
        claimed_again(BOB, timedelta(0)),
        claimed_again(ALICE, MS),
    ],
)
def test_a_release_of_another_claim_changes_nothing(task: Task) -> None:
    assert released(task) == Outcome(task)
