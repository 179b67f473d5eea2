"""A claim that never reached its worker, taken back: see also the machine in test_life_machine."""

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
    DAY,
    HELD,
    MS,
    NOW,
    definition,
    pending,
    running,
)

TAKEN_UNTIL = NOW + CLAIM_TIMEOUT


def taken_back(
    task: Task,
    run_id: int = 0,
    worker: Worker = ALICE,
    taken_until: datetime = TAKEN_UNTIL,
) -> Outcome:
    return transitions.release_claim(task, run_id, worker, taken_until)


def resolved(reason: str, state: str = "exception") -> Task:
    return transitions.resolve(running(), 0, state, reason, NOW).task


def claimed_again(worker: Worker, later: timedelta) -> Task:
    task = taken_back(running()).task
    claim = transitions.claim(task, 0, worker, HELD, HELD.message_id, CLAIM_TIMEOUT, NOW + later)
    return replace(claim.task, held=HELD)


@pytest.mark.parametrize("retries", [0, 5])
def test_the_task_is_as_if_nobody_had_claimed_it(retries: int) -> None:
    assert taken_back(running(retries=retries)).task == pending(retries=retries)


def test_the_held_message_leads_to_the_run_again() -> None:
    outcome = taken_back(running())
    assert (outcome.hold, outcome.after) == (None, Offer(0, HELD))


def test_a_fresh_message_is_offered_where_none_was_held() -> None:
    assert taken_back(replace(running(), held=None)).after == Offer(0)


def test_it_is_told_that_the_run_is_pending() -> None:
    outcome = taken_back(running())
    ((name, payload),) = [(event.exchange, event.payload) for event in outcome.events]
    assert (name, payload["runId"], payload["status"]) == ("task-pending", 0, pending().status())


def test_a_claim_of_a_retry_leaves_the_retry_pending() -> None:
    task = transitions.resolve(running(retries=1), 0, "exception", "worker-shutdown", NOW).task
    claimed = transitions.claim(task, 1, ALICE, None, None, CLAIM_TIMEOUT, NOW).task
    assert taken_back(replace(claimed, held=HELD), 1).task == task
    assert taken_back(replace(claimed, held=HELD), 0).task.state == "running"


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
def test_whatever_is_not_that_claim_stays_as_it_is(task: Task) -> None:
    assert taken_back(task) == Outcome(task)


def test_taking_it_back_twice_does_so_once() -> None:
    task = taken_back(running()).task
    assert taken_back(task) == Outcome(task)
