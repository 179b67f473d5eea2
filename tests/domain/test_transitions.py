"""How each change of state is decided. tests/services shows what then happens to messages."""

from dataclasses import replace
from datetime import datetime

import pytest

from legacy_queue.domain import transitions
from legacy_queue.domain.errors import RequestConflict, ServiceUnavailable
from legacy_queue.domain.ids import MAX_RUNS
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.outcome import DeleteMessage, Hold, Offer, Outcome
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import PriorityChange, Task, Worker
from legacy_queue.domain.times import format_time
from tests.domain.sample_tasks import (
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
    ended,
    pending,
    running,
    shut_down,
)

TAKEN_UNTIL = NOW + CLAIM_TIMEOUT
QUEUE = WorkQueue("provisioner", "worker-Type_1", "lowest")


def claim(
    task: Task,
    run_id: int = 0,
    worker: Worker = ALICE,
    lease: MessageLease | None = POLLED,
    now: datetime = NOW,
) -> Outcome:
    message_id = lease.message_id if lease else None
    return transitions.claim(task, run_id, worker, lease, message_id, CLAIM_TIMEOUT, now)


def reclaim(task: Task, now: datetime) -> Outcome:
    return transitions.reclaim(task, 0, CLAIM_TIMEOUT, now)


def test_creating_a_task_again_with_another_definition_is_a_conflict_that_shows_both() -> None:
    other = definition(priority="high", payload={})
    with pytest.raises(RequestConflict, match="payload, priority differ") as error:
        transitions.create_again(pending(), other)
    assert error.value.details == {"existing": definition().to_wire(), "given": other.to_wire()}
    with pytest.raises(RequestConflict):
        transitions.create_again(pending(payload={"x": 1}), definition(payload={"x": True}))


def test_a_failed_task_satisfies_only_dependents_that_require_all_resolved() -> None:
    failed = ended(how="failed")
    assert (failed.satisfies("all-completed"), failed.satisfies("all-resolved")) == (False, True)
    assert not shut_down().satisfies("all-resolved")


def test_a_rerun_restores_all_retries_that_the_limit_of_50_runs_allows() -> None:
    for runs, retries_left in ((1, 5), (44, 5), (45, 4), (49, 0)):
        runs_before = tuple(replace(ended().runs[0], run_id=run_id) for run_id in range(runs))
        task = replace(ended(), runs=runs_before, retries_left=0)
        assert transitions.rerun(task, NOW + HOUR).task.retries_left == retries_left


def test_a_claim_that_ends_within_two_seconds_of_the_deadline_holds_no_message() -> None:
    for rest in (2 * SECOND + MS, 2 * SECOND, -SECOND):
        until = NOW + DAY - rest
        outcome = claim(pending(), now=until - CLAIM_TIMEOUT)
        assert outcome.task.runs[0].taken_until == until
        holds = (Hold(1, until, POLLED), None) if rest > 2 * SECOND else (None, DeleteMessage(POLLED, QUEUE))
        assert (outcome.hold, outcome.message_effect) == holds


def test_claiming_with_a_held_message_that_is_visible_too_early_is_service_unavailable() -> None:
    other = MessageLease("message-2", "receipt-9")
    for task, lease in ((running(), HELD), (running(), None), (replace(running(), held=None), other)):
        with pytest.raises(ServiceUnavailable, match=r"is claimed until 2030-01-02T03:24:05\.678Z"):
            claim(task, 1, BOB, lease, TAKEN_UNTIL - MS)


def test_a_reclaim_never_shortens_a_claim() -> None:
    outcome = transitions.reclaim(running(), 0, MINUTE, NOW)
    assert outcome.task.runs[0].taken_until == TAKEN_UNTIL
    assert outcome.hold == Hold(1, TAKEN_UNTIL, HELD)


def test_a_reclaim_that_reaches_the_deadline_deletes_the_held_message() -> None:
    task = running(deadline="2030-01-02T03:34:05.678Z")  # 30 minutes after NOW
    outcome = reclaim(task, NOW + 15 * MINUTE)
    assert outcome.task.runs[0].taken_until == NOW + 15 * MINUTE + CLAIM_TIMEOUT
    assert (outcome.hold, outcome.task.held) == (None, None)
    assert outcome.message_effect == DeleteMessage(HELD, QUEUE)
    assert reclaim(outcome.task, NOW + 15 * MINUTE) == Outcome(outcome.task)


def test_a_retriable_exception_is_retried_while_retries_are_left() -> None:
    for reason, created in (("worker-shutdown", "retry"), ("intermittent-task", "task-retry")):
        outcome = transitions.resolve(running(retries=1), 0, "exception", reason, NOW + MINUTE)
        first, second = outcome.task.runs
        assert (first.state, first.reason_resolved) == ("exception", reason)
        assert (second.state, second.reason_created, second.scheduled) == ("pending", created, NOW + MINUTE)
        assert (outcome.task.retries_left, outcome.task.held) == (0, None)
        assert outcome.message_effect == Offer(1, HELD)
        last = claim(outcome.task, 1, BOB, lease=None).task
        of_50_runs = replace(running(), runs=(running().runs[0],) * MAX_RUNS)
        assert ended(last, reason).state == ended(of_50_runs, reason).state == "exception"


def test_a_repeated_report_offers_a_pending_retry_again_but_not_the_run_of_a_rerun() -> None:
    task = shut_down()
    again = transitions.resolve(task, 0, "exception", "worker-shutdown", NOW)
    assert (again.task, again.hold, again.message_effect) == (task, None, Offer(1))
    claimed = claim(task, 1, BOB).task
    without_retries = ended(replace(running(), retries_left=0), "worker-shutdown")
    rerun = transitions.rerun(without_retries, NOW + HOUR).task
    for later in (claimed, ended(claimed, "worker-shutdown"), rerun):
        assert transitions.resolve(later, 0, "exception", "worker-shutdown", NOW) == Outcome(later)


def test_the_run_after_an_expired_claim_is_a_retry() -> None:
    assert transitions.expire(running(), TAKEN_UNTIL).task.runs[1].reason_created == "retry"
    (run,) = transitions.expire(running(), NOW + DAY).task.runs
    assert (run.state, run.reason_resolved) == ("exception", "deadline-exceeded")


def test_a_new_priority_moves_the_held_message_to_another_queue_or_near_the_deadline_deletes_it() -> None:
    outcome = transitions.change_priority(running(), "high", NOW + MINUTE)
    assert (outcome.hold, outcome.message_effect) == (Hold(1, TAKEN_UNTIL, None), DeleteMessage(HELD, QUEUE))
    near = running(deadline=format_time(TAKEN_UNTIL))
    outcome = transitions.change_priority(near, "high", NOW + MINUTE)
    assert (outcome.hold, outcome.task.held) == (None, None)
    assert outcome.message_effect == DeleteMessage(HELD, QUEUE)


def test_a_task_keeps_the_last_50_changes_of_its_priority() -> None:
    task = pending()
    for number in range(51):
        task = transitions.change_priority(task, ("high", "low")[number % 2], NOW + number * SECOND).task
    assert len(task.priority_changes) == 50
    assert task.priority_changes[0] == PriorityChange("high", "low", NOW + SECOND)


def test_a_released_retry_is_pending_again_and_its_message_is_offered() -> None:
    task = shut_down()
    claimed = replace(claim(task, 1).task, held=HELD)
    released = transitions.release_claim(claimed, 1, ALICE, TAKEN_UNTIL)
    assert (released.task, released.message_effect) == (task, Offer(1, HELD))
    assert transitions.release_claim(claimed, 0, ALICE, TAKEN_UNTIL) == Outcome(claimed)
    reclaimed = reclaim(running(), NOW + MS).task
    assert transitions.release_claim(reclaimed, 0, ALICE, TAKEN_UNTIL) == Outcome(reclaimed)
