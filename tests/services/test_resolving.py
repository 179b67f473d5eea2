"""Reports and cancellation: a run is resolved once, and what is retried is there at once."""

import pytest

from legacy_queue.domain.errors import RequestConflict, ResourceNotFound
from tests.services.bench import ALICE, BOB, CLAIM_TIMEOUT, HOUR, MINUTE, SECOND, Bench

AT_ONCE = 0 * SECOND
FOR_GOOD = [
    ("completed", "completed"),
    ("failed", "failed"),
    ("exception", "malformed-payload"),
    ("exception", "resource-unavailable"),
    ("exception", "internal-error"),
    ("exception", "superseded"),
]


@pytest.mark.parametrize(("state", "reason"), FOR_GOOD)
def test_a_run_that_ends_for_good_leaves_no_message(state: str, reason: str) -> None:
    bench = Bench()
    task_id = bench.claimed()
    bench.clock.advance(MINUTE)
    task = bench.services.tasks.report(task_id, 0, state, reason)
    assert task == bench.task(task_id)
    assert (task.state, task.runs[0].reason_resolved) == (state, reason)
    assert task.retries_left == 5
    assert bench.messages() == []


@pytest.mark.parametrize(
    ("reason", "created"), [("worker-shutdown", "retry"), ("intermittent-task", "task-retry")]
)
def test_what_is_retried_is_visible_at_once(reason: str, created: str) -> None:
    bench = Bench()
    task_id = bench.claimed()
    (held,) = bench.messages()
    bench.clock.advance(MINUTE)
    task = bench.services.tasks.report(task_id, 0, "exception", reason)
    assert (task.state, task.runs[1].reason_created, task.retries_left) == ("pending", created, 4)
    assert bench.runs_to_come() == [(1, AT_ONCE)]
    message = bench.receive_one()
    assert message.lease.message_id == held.lease.message_id
    assert bench.claim(message, BOB)["runId"] == 1
    assert bench.states(task_id) == [f"exception {reason}", "running by bob"]


def test_without_retries_a_worker_that_shuts_down_ends_the_task() -> None:
    bench = Bench()
    task_id = bench.claimed(retries=0)
    assert bench.shut_down(task_id).state == "exception"
    assert bench.messages() == []


def test_a_shutdown_is_retried_also_where_somebody_has_polled_the_held_message() -> None:
    bench = Bench()
    task_id = bench.claimed()
    bench.clock.advance(CLAIM_TIMEOUT)
    polled = bench.receive_one()
    bench.shut_down(task_id)
    assert (1, AT_ONCE) in bench.runs_to_come()
    bench.claim(bench.receive_one(), BOB)
    with pytest.raises(RequestConflict):
        bench.claim(polled, ALICE)
    assert bench.states(task_id) == ["exception worker-shutdown", "running by bob"]
    assert bench.runs_to_come() == [(2, CLAIM_TIMEOUT)]


def test_a_repeated_report_answers_the_same_and_offers_the_retry_again() -> None:
    bench = Bench()
    task_id = bench.claimed()
    first = bench.shut_down(task_id)
    bench.clock.advance(MINUTE)
    assert bench.shut_down(task_id) == first
    assert [run_id for run_id, _ in bench.runs_to_come()] == [1, 1]
    bench.claim(bench.receive()[0], BOB)
    assert bench.shut_down(task_id).state == "running"
    assert [run_id for run_id, _ in bench.runs_to_come()].count(1) == 1


@pytest.mark.parametrize(("state", "reason"), FOR_GOOD)
def test_a_repeated_report_of_an_end_changes_nothing(state: str, reason: str) -> None:
    bench = Bench()
    task_id = bench.claimed()
    first = bench.services.tasks.report(task_id, 0, state, reason)
    bench.clock.advance(MINUTE)
    assert bench.services.tasks.report(task_id, 0, state, reason) == first
    assert bench.messages() == []


def test_a_run_is_resolved_once() -> None:
    bench = Bench()
    task_id = bench.claimed()
    bench.complete(task_id)
    with pytest.raises(RequestConflict, match=r"run 0 is completed \(completed\)"):
        bench.services.tasks.report(task_id, 0, "failed", "failed")
    assert bench.states(task_id) == ["completed completed"]


def test_what_no_worker_held_is_not_reported() -> None:
    bench = Bench()
    task_id = bench.create()
    with pytest.raises(RequestConflict, match="run 0 is pending"):
        bench.complete(task_id)
    with pytest.raises(ResourceNotFound, match="no run 1"):
        bench.complete(task_id, 1)
    bench.services.tasks.cancel(task_id)
    with pytest.raises(RequestConflict, match="canceled"):
        bench.services.tasks.report(task_id, 0, "exception", "canceled")


def test_a_pending_task_is_canceled_and_its_message_then_refused() -> None:
    bench = Bench()
    task_id = bench.create()
    message = bench.receive_one()
    assert bench.services.tasks.cancel(task_id).state == "exception"
    assert bench.states(task_id) == ["exception canceled"]
    with pytest.raises(RequestConflict, match="canceled"):
        bench.claim(message)
    assert bench.messages() == []


def test_a_running_task_is_canceled_and_its_worker_told() -> None:
    bench = Bench()
    task_id = bench.claimed()
    bench.services.tasks.cancel(task_id)
    assert bench.states(task_id) == ["exception canceled"]
    assert bench.messages() == []
    for told in (bench.services.claims.reclaim, bench.complete):
        with pytest.raises(RequestConflict, match="canceled"):
            told(task_id, 0)


def test_an_expired_claim_is_canceled_though_its_message_is_out() -> None:
    bench = Bench()
    task_id = bench.claimed()
    bench.clock.advance(CLAIM_TIMEOUT)
    polled = bench.receive_one()
    bench.services.tasks.cancel(task_id)
    with pytest.raises(RequestConflict, match="canceled"):
        bench.claim(polled, BOB)
    assert bench.messages() == []


def test_canceling_what_has_ended_answers_how() -> None:
    bench = Bench()
    task_id = bench.claimed()
    done = bench.complete(task_id)
    assert bench.services.tasks.cancel(task_id) == done
    canceled = bench.services.tasks.cancel(bench.create())
    assert bench.services.tasks.cancel(canceled.task_id) == canceled


def test_nothing_is_canceled_past_the_deadline() -> None:
    bench = Bench()
    task_id = bench.create()
    bench.clock.advance(24 * HOUR)
    with pytest.raises(RequestConflict, match="deadline"):
        bench.services.tasks.cancel(task_id)
    assert bench.states(task_id) == ["pending"]
