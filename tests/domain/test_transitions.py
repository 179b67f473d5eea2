"""Each change of state, as the pure function decides it; tests/services shows what happens to messages."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from legacy_queue.domain import transitions
from legacy_queue.domain.errors import RequestConflict, ServiceUnavailable
from legacy_queue.domain.ids import MAX_RUNS
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.outcome import DeleteMessage, Hold, Offer, Outcome
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import PriorityChange, Task, Worker
from legacy_queue.domain.times import format_time
from tests.domain.tasks import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    DAY,
    HELD,
    HOUR,
    MINUTE,
    MS,
    NOW,
    POLLED,
    SECOND,
    definition,
    pending,
    running,
)

DEADLINE = NOW + DAY
TAKEN_UNTIL = NOW + CLAIM_TIMEOUT
QUEUE = WorkQueue("provisioner", "worker-Type_1", "lowest")
OTHER = MessageLease("message-2", "receipt-9")


def claim(
    task: Task,
    run_id: int = 0,
    worker: Worker = ALICE,
    lease: MessageLease | None = POLLED,
    now: datetime = NOW,
) -> Outcome:
    message_id = lease.message_id if lease else None
    return transitions.claim(task, run_id, worker, lease, message_id, CLAIM_TIMEOUT, now)


def reclaim(task: Task, now: datetime, run_id: int = 0) -> Outcome:
    return transitions.reclaim(task, run_id, CLAIM_TIMEOUT, now)


def change(task: Task, priority: str = "high", after: timedelta = MINUTE) -> Outcome:
    return transitions.change_priority(task, priority, NOW + after)


def resolved(reason: str, task: Task | None = None, state: str = "exception") -> Task:
    task = task or running()
    return transitions.resolve(task, len(task.runs) - 1, state, reason, NOW + MINUTE).task


def test_creating_a_task_with_another_definition_is_a_conflict_that_shows_both() -> None:
    other = definition(priority="high", payload={})
    with pytest.raises(RequestConflict, match="payload, priority differ") as error:
        transitions.create_again(pending(), other)
    assert error.value.details == {"existing": definition().to_wire(), "given": other.to_wire()}
    with pytest.raises(RequestConflict):
        transitions.create_again(pending(payload={"x": 1}), definition(payload={"x": True}))


def test_a_failed_task_satisfies_only_dependents_that_require_its_resolution() -> None:
    failed = resolved("failed", state="failed")
    assert (failed.satisfies("all-completed"), failed.satisfies("all-resolved")) == (False, True)
    assert not resolved("worker-shutdown").satisfies("all-resolved")


@pytest.mark.parametrize(("runs", "retries_left"), [(1, 5), (44, 5), (45, 4), (49, 0)])
def test_a_rerun_gives_all_retries_that_the_limit_of_50_runs_allows(runs: int, retries_left: int) -> None:
    done = resolved("completed", state="completed")
    runs_before = tuple(replace(done.runs[0], run_id=run_id) for run_id in range(runs))
    task = replace(done, runs=runs_before, retries_left=0)
    assert transitions.rerun(task, NOW + HOUR).task.retries_left == retries_left


@pytest.mark.parametrize(
    ("rest", "hold", "effect"),
    [
        (2 * SECOND + MS, Hold(1, DEADLINE - 2 * SECOND - MS, POLLED), None),
        (2 * SECOND, None, DeleteMessage(POLLED, QUEUE)),
        (-SECOND, None, DeleteMessage(POLLED, QUEUE)),
    ],
)
def test_a_claim_that_ends_within_two_seconds_of_the_deadline_holds_no_message(
    rest: timedelta, hold: Hold | None, effect: DeleteMessage | None
) -> None:
    outcome = claim(pending(), now=DEADLINE - CLAIM_TIMEOUT - rest)
    assert outcome.task.runs[0].taken_until == DEADLINE - rest
    assert (outcome.hold, outcome.message_effect) == (hold, effect)


@pytest.mark.parametrize(
    ("task", "lease"), [(running(), HELD), (running(), None), (replace(running(), held=None), OTHER)]
)
def test_claiming_with_the_held_message_too_early_is_service_unavailable(
    task: Task, lease: MessageLease | None
) -> None:
    with pytest.raises(ServiceUnavailable, match=r"is claimed until 2030-01-02T03:24:05\.678Z"):
        claim(task, 1, BOB, lease, TAKEN_UNTIL - MS)


def test_a_reclaim_never_shortens_a_claim() -> None:
    outcome = transitions.reclaim(running(), 0, MINUTE, NOW)
    assert outcome.task.runs[0].taken_until == TAKEN_UNTIL
    assert outcome.hold == Hold(1, TAKEN_UNTIL, HELD)


def test_a_reclaim_that_reaches_the_deadline_deletes_the_held_message() -> None:
    task = running(deadline="2030-01-02T03:34:05.678Z")  # 30 minutes
    outcome = reclaim(task, NOW + 15 * MINUTE)
    assert outcome.task.runs[0].taken_until == NOW + 15 * MINUTE + CLAIM_TIMEOUT
    assert (outcome.hold, outcome.task.held) == (None, None)
    assert outcome.message_effect == DeleteMessage(HELD, QUEUE)
    assert reclaim(outcome.task, NOW + 15 * MINUTE) == Outcome(outcome.task)


@pytest.mark.parametrize(
    ("reason", "created"), [("worker-shutdown", "retry"), ("intermittent-task", "task-retry")]
)
def test_a_retriable_exception_is_retried_while_retries_are_left(reason: str, created: str) -> None:
    outcome = transitions.resolve(running(retries=1), 0, "exception", reason, NOW + MINUTE)
    first, second = outcome.task.runs
    assert (first.state, first.reason_resolved) == ("exception", reason)
    assert (second.state, second.reason_created, second.scheduled) == ("pending", created, NOW + MINUTE)
    assert (outcome.task.retries_left, outcome.task.held) == (0, None)
    assert outcome.message_effect == Offer(1, HELD)
    last = claim(outcome.task, 1, BOB, lease=None).task
    assert resolved(reason, last).state == "exception"
    of_50_runs = replace(running(), runs=(running().runs[0],) * MAX_RUNS)
    assert resolved(reason, of_50_runs).state == "exception"


def test_a_repeated_report_offers_the_retry_again_while_it_is_pending() -> None:
    task = resolved("worker-shutdown")
    again = transitions.resolve(task, 0, "exception", "worker-shutdown", NOW)
    assert (again.task, again.hold, again.message_effect) == (task, None, Offer(1))
    claimed = claim(task, 1, BOB).task
    assert transitions.resolve(claimed, 0, "exception", "worker-shutdown", NOW) == Outcome(claimed)
    second = resolved("worker-shutdown", claimed)
    assert transitions.resolve(second, 0, "exception", "worker-shutdown", NOW) == Outcome(second)


def test_a_repeated_report_says_nothing_of_a_run_that_a_rerun_created() -> None:
    task = resolved("worker-shutdown", replace(running(), retries_left=0))
    rerun = transitions.rerun(task, NOW + HOUR).task
    assert transitions.resolve(rerun, 0, "exception", "worker-shutdown", NOW) == Outcome(rerun)


def test_the_run_after_an_expired_claim_is_a_retry() -> None:
    assert transitions.expire(running(), TAKEN_UNTIL).task.runs[1].reason_created == "retry"
    (run,) = transitions.expire(running(), DEADLINE).task.runs
    assert (run.state, run.reason_resolved) == ("exception", "deadline-exceeded")


def test_the_held_message_moves_to_the_new_queue_and_is_only_deleted_near_the_deadline() -> None:
    outcome = change(running())
    assert (outcome.hold, outcome.message_effect) == (Hold(1, TAKEN_UNTIL, None), DeleteMessage(HELD, QUEUE))
    outcome = change(running(deadline=format_time(TAKEN_UNTIL)))
    assert (outcome.hold, outcome.task.held) == (None, None)
    assert outcome.message_effect == DeleteMessage(HELD, QUEUE)


def test_the_last_fifty_changes_are_kept() -> None:
    task = pending()
    for number in range(51):
        task = change(task, ("high", "low")[number % 2], number * SECOND).task
    assert len(task.priority_changes) == 50
    assert task.priority_changes[0] == PriorityChange("high", "low", NOW + SECOND)


def test_a_released_retry_is_pending_and_its_message_offered() -> None:
    task = resolved("worker-shutdown")
    claimed = replace(claim(task, 1).task, held=HELD)
    released = transitions.release_claim(claimed, 1, ALICE, TAKEN_UNTIL)
    assert (released.task, released.message_effect) == (task, Offer(1, HELD))
    earlier = transitions.release_claim(claimed, 0, ALICE, TAKEN_UNTIL)
    assert earlier == Outcome(claimed)
    reclaimed = reclaim(running(), NOW + MS).task
    assert transitions.release_claim(reclaimed, 0, ALICE, TAKEN_UNTIL) == Outcome(reclaimed)
