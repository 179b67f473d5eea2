from dataclasses import replace

import pytest

from legacy_queue.domain import transitions
from legacy_queue.domain.errors import ResourceNotFound, ServiceUnavailable
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.task import Run, Task
from tests.domain.tasks import MINUTE, NOW, TASK_ID, definition, pending, running

UNSCHEDULED = Task(TASK_ID, definition(), 5)
TIMES = {
    "scheduled": "2030-01-02T03:04:05.678Z",
    "started": "2030-01-02T03:04:05.678Z",
    "takenUntil": "2030-01-02T03:24:05.678Z",
    "resolved": "2030-01-02T03:05:05.678Z",
}


def test_the_status_has_the_fields_of_the_contract() -> None:
    assert pending(schedulerId="scheduler").status() == {
        "taskId": TASK_ID,
        "provisionerId": "provisioner",
        "workerType": "worker-Type_1",
        "taskQueueId": "provisioner/worker-Type_1",
        "schedulerId": "scheduler",
        "projectId": "none",
        "taskGroupId": TASK_ID,
        "deadline": "2030-01-03T03:04:05.678Z",
        "expires": "2031-01-03T03:04:05.678Z",
        "priority": "lowest",
        "retriesLeft": 5,
        "state": "pending",
        "runs": [
            {"runId": 0, "state": "pending", "reasonCreated": "scheduled", "scheduled": TIMES["scheduled"]}
        ],
    }


def test_a_resolved_run_shows_its_worker_and_all_its_times() -> None:
    task = transitions.resolve(running(), 0, "failed", "failed", NOW + MINUTE).task
    assert task.runs[0].to_wire() == {
        "runId": 0,
        "state": "failed",
        "reasonCreated": "scheduled",
        "reasonResolved": "failed",
        "workerGroup": "group",
        "workerId": "alice",
        **TIMES,
    }


def test_a_run_is_read_as_written() -> None:
    resolved = transitions.resolve(running(), 0, "exception", "worker-shutdown", NOW + MINUTE).task
    for run in (*resolved.runs, *running().runs):
        assert Run.from_wire(run.to_wire()) == run


def test_a_run_that_does_not_exist_is_not_found() -> None:
    with pytest.raises(ResourceNotFound, match=r"no run 1: its runs are 0\.\.0"):
        pending().run(1)
    with pytest.raises(ResourceNotFound, match="no run 0: it has no runs yet"):
        UNSCHEDULED.run(0)


@pytest.mark.parametrize(
    ("reasons", "ended", "activations"),
    [
        (("scheduled",), [True], [0]),
        (("scheduled", "retry"), [False, True], [0, 0]),
        (("scheduled", "rerun"), [True, True], [0, 1]),
        (("scheduled", "retry", "rerun", "task-retry"), [False, True, False, True], [0, 0, 2, 2]),
        (("scheduled", "rerun", "rerun"), [True, True, True], [0, 1, 2]),
    ],
)
def test_a_task_ended_with_its_last_run_and_each_run_before_a_rerun(
    reasons: tuple[str, ...], ended: list[bool], activations: list[int]
) -> None:
    done = transitions.resolve(running(), 0, "completed", "completed", NOW + MINUTE).task.runs[0]
    runs = tuple(replace(done, run_id=i, reason_created=reason) for i, reason in enumerate(reasons))
    task = replace(running(), runs=runs)
    assert [task.ended_with(run_id) for run_id in range(len(runs))] == ended
    assert [task.activation(run_id) for run_id in range(len(runs))] == activations
    assert task.up_to(0).runs == runs[:1]


def test_a_task_did_not_end_with_an_unresolved_or_missing_run() -> None:
    assert not running().ended_with(0)
    assert not UNSCHEDULED.ended_with(0)
    assert UNSCHEDULED.activation(-1) == 0
    assert not UNSCHEDULED.is_resolved


def test_the_held_message_is_not_in_the_status() -> None:
    status = str(replace(running(), held=MessageLease("the-message", "the-receipt")).status())
    assert "the-receipt" not in status
    assert "the-message" not in status


def test_an_error_has_the_code_of_its_class_and_a_time_to_retry() -> None:
    error = ServiceUnavailable("storage is away", retry_after=MINUTE)
    assert (error.code, error.status, error.retry_after) == ("ServiceUnavailable", 503, MINUTE)
    assert error.details == {}


def test_a_refusal_can_name_the_state_of_a_run_and_why_it_was_resolved() -> None:
    assert pending().runs[0].summary == "run 0 is pending"
    ended = transitions.resolve(running(), 0, "exception", "malformed-payload", NOW).task
    assert ended.runs[0].summary == "run 0 is exception (malformed-payload)"
