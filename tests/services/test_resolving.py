"""Reports and cancellation: a run is resolved once, and a retry is visible at once."""

import pytest

from tests.services.harness import BOB, MINUTE, SECOND, Harness

NO_DELAY = 0 * SECOND


@pytest.mark.parametrize(
    ("reason", "created"), [("worker-shutdown", "retry"), ("intermittent-task", "task-retry")]
)
def test_a_retry_is_visible_at_once(reason: str, created: str) -> None:
    harness = Harness()
    task_id = harness.claimed()
    (held,) = harness.messages()
    harness.clock.advance(MINUTE)
    task = harness.services.tasks.report(task_id, 0, "exception", reason)
    assert (task.state, task.runs[1].reason_created, task.retries_left) == ("pending", created, 4)
    assert harness.offered_runs() == [(1, NO_DELAY)]
    message = harness.receive_one()
    assert message.lease.message_id == held.lease.message_id
    assert harness.claim(message, BOB)["runId"] == 1
    assert harness.states(task_id) == [f"exception {reason}", "running by bob"]


def test_a_repeated_report_answers_the_same_and_offers_the_retry_again() -> None:
    harness = Harness()
    task_id = harness.claimed()
    first = harness.shut_down(task_id)
    harness.clock.advance(MINUTE)
    assert harness.shut_down(task_id) == first
    assert [run_id for run_id, _ in harness.offered_runs()] == [1, 1]
    harness.claim(harness.receive()[0], BOB)
    assert harness.shut_down(task_id).state == "running"
    assert [run_id for run_id, _ in harness.offered_runs()].count(1) == 1
