"""Makes task definitions, and tasks in each state, for tests."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from legacy_queue.domain import transitions
from legacy_queue.domain.definition import TaskDefinition
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.task import Run, Task, Worker
from legacy_queue.domain.times import format_time

NOW = datetime(2030, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
MS, SECOND = timedelta(milliseconds=1), timedelta(seconds=1)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
CLAIM_TIMEOUT = 20 * MINUTE
TASK_ID, OTHER_ID = "dSlITZ4yQgmvxxAi4A8fHQ", "eWIgwMgxSfeXQ36iBbOxiQ"
ALICE, BOB = Worker("group", "alice"), Worker("group", "bob")
POLLED = MessageLease("message-1", "receipt-1")
HELD = MessageLease("message-1", "receipt-2")


def task_body(now: datetime = NOW, **changes: Any) -> dict[str, Any]:
    """The body of a createTask call with a deadline a day later. A change to None leaves the property out."""
    body = {
        "provisionerId": "provisioner",
        "workerType": "worker-Type_1",
        "created": format_time(now),
        "deadline": format_time(now + DAY),
        "payload": {"command": ["true"]},
        "metadata": {
            "name": "a name",
            "description": "a description",
            "owner": "owner@example.com",
            "source": "https://example.com/source",
        },
        **changes,
    }
    return {name: value for name, value in body.items() if value is not None}


def definition(**changes: Any) -> TaskDefinition:
    return TaskDefinition.from_wire(TASK_ID, task_body(**changes), NOW)


def unscheduled(**changes: Any) -> Task:
    """A task that was created at NOW and depends on an unresolved task."""
    return transitions.create(TASK_ID, definition(**changes), [OTHER_ID], NOW).task


def pending(**changes: Any) -> Task:
    """A task that was created at NOW."""
    return transitions.create(TASK_ID, definition(**changes), (), NOW).task


def running(**changes: Any) -> Task:
    """A task that Alice claimed at NOW. Its message is held."""
    task = transitions.claim(pending(**changes), 0, ALICE, POLLED, "message-1", CLAIM_TIMEOUT, NOW).task
    return replace(task, held=HELD)


def ended(task: Task | None = None, how: str = "completed", at: datetime = NOW) -> Task:
    """A task whose last run was resolved with this reason."""
    task = task or running()
    state = how if how in ("completed", "failed") else "exception"
    return transitions.resolve(task, len(task.runs) - 1, state, how, at).task


def shut_down(at: datetime = NOW) -> Task:
    """A task whose first worker shut down: run 0 is an exception, run 1 is pending."""
    return ended(how="worker-shutdown", at=at)


def with_last_run(task: Task, **changes: Any) -> Task:
    """The task, with these fields changed in its last run."""
    return replace(task, runs=(*task.runs[:-1], replace(task.runs[-1], **changes)))


def with_new_run(task: Task, reason_created: str, scheduled: datetime) -> Task:
    """The task, with another pending run."""
    return replace(task, runs=(*task.runs, Run(len(task.runs), "pending", reason_created, scheduled)))
