"""The exchanges of the queue, and the messages on them.

Source: "Queue AMQP Exchanges" (which lacks task-failed) and docs/explanation/recovery.md#events; the
schemas of today's queue for sealing and priorities.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from legacy_queue.domain.formats_of_2018 import SINCE_2018, reshaped
from legacy_queue.domain.task import PriorityChange, Task
from legacy_queue.domain.times import format_time

EVER = datetime(2000, 1, 1, tzinfo=UTC)  # earlier than any event


# the words of a routing key with their descriptions
TASK_KEY = {
    "routingKeyKind": "The kind of routing key: always 'primary'.",
    "taskId": "The task that the message is about.",
    "runId": "The latest run, '_' if there is none.",
    "workerGroup": "The workerGroup of the latest run, '_' if there is none.",
    "workerId": "The workerId of the latest run, '_' if there is none.",
    "provisionerId": "The provisionerId of the task.",
    "workerType": "The workerType of the task.",
    "schedulerId": "The schedulerId of the task.",
    "taskGroupId": "The taskGroupId of the task.",
    "reserved": "Reserved for future words: match it with '#'.",
}
GROUP_KEY = {
    "routingKeyKind": TASK_KEY["routingKeyKind"],
    "taskGroupId": "The task group that the message is about.",
    "schedulerId": "The schedulerId of the task group.",
    "reserved": TASK_KEY["reserved"],
}
OPTIONAL = ("runId", "workerGroup", "workerId", "reserved")  # they may be ``_``


@dataclass(frozen=True)
class Exchange:
    """A topic exchange. ``always`` names the optional words that are never ``_`` on this exchange."""

    name: str
    title: str
    description: str
    always: tuple[str, ...] = ()
    key: Mapping[str, str] = field(default_factory=lambda: TASK_KEY)

    def full_name(self, project: str) -> str:
        """``exchange/<project>/v1/task-pending``."""
        return f"exchange/{project}/v1/{self.name}"


_WORKER_WORDS = ("runId", "workerGroup", "workerId")
_CREATED = "An artifact was recorded; its content may still be uploading."
_EXCEPTION = "A task could not be run; reasonResolved of its last run says why."
_RESOLVED = "Every task of a group is resolved. Published again if tasks join later and are resolved, too."
_SEALED = "A task group was sealed: no task can be added to it."
_CHANGED = "The priority of a task was changed, alone or with its group."
_ALL_CHANGED = "The priority of the unresolved tasks of a group was changed. Each task has a message too."
EXCHANGES: Mapping[str, Exchange] = {
    exchange.name: exchange
    for exchange in (
        Exchange("task-defined", "Task Defined Messages", "A task was created or defined."),
        Exchange("task-pending", "Task Pending Messages", "A run of a task became pending.", ("runId",)),
        Exchange("task-running", "Task Running Messages", "A worker claimed a run.", _WORKER_WORDS),
        Exchange("artifact-created", "Artifact Creation Messages", _CREATED, _WORKER_WORDS),
        Exchange("task-completed", "Task Completed Messages", "A task completed.", _WORKER_WORDS),
        Exchange("task-failed", "Task Failed Messages", "A task ran and failed."),
        Exchange("task-exception", "Task Exception Messages", _EXCEPTION),
        Exchange("task-group-resolved", "Task Group Resolved Messages", _RESOLVED, key=GROUP_KEY),
        Exchange("task-group-sealed", "Task Group Sealed Messages", _SEALED, key=GROUP_KEY),
        Exchange("task-priority-changed", "Task Priority Changed Messages", _CHANGED),
        Exchange(
            "task-group-priority-changed",
            "Task Group Priority Changed Messages",
            _ALL_CHANGED,
            key=GROUP_KEY,
        ),
    )
}


@dataclass(frozen=True)
class Event:
    """A message on an exchange of EXCHANGES; ``routes`` are CC'ed as ``route.<route>``.

    ``only`` is set if just one of SHAPES has such a message: then it names this shape.
    """

    exchange: str
    routing_key: str
    routes: tuple[str, ...]
    payload: Mapping[str, Any]
    only: str | None = None

    def as_of_2018(self) -> "Event":
        """The event in the shape of 2018."""
        payload = reshaped(self.payload, SINCE_2018.get(self.exchange, {}))
        return Event(self.exchange, self.routing_key, self.routes, payload, self.only)

    def as_of_today(self) -> "Event":
        """The event in today's shape, in which task-defined shows the task before its first run."""
        if self.exchange != "task-defined":
            return self
        words = self.routing_key.split(".")
        words[2:5] = "___"  # runId, workerGroup, workerId
        status = {**self.payload["status"], "state": "unscheduled", "runs": []}
        return replace(self, routing_key=".".join(words), payload={**self.payload, "status": status})


def task_event(name: str, task: Task, run_id: int | None = None) -> Event:
    """Returns the event ``name`` about a run, by default the latest. ``task-defined`` is about no run."""
    run = task.last_run if run_id is None else task.runs[run_id]
    worker = run.worker if run else None
    wire = task.definition.wire
    about: dict[str, Any] = {"version": 1, "status": task.status()}
    if name != "artifact-created":
        about["task"] = {"tags": wire["tags"]}
    if run and name != "task-defined":
        about["runId"] = run.run_id
        if worker and name != "task-pending":
            about |= {"workerGroup": worker.worker_group, "workerId": worker.worker_id}
        if run.taken_until and name == "task-running":
            about["takenUntil"] = format_time(run.taken_until)
    words = (
        "primary",
        task.task_id,
        str(run.run_id) if run else "_",
        worker.worker_group if worker else "_",
        worker.worker_id if worker else "_",
        wire["provisionerId"],
        wire["workerType"],
        wire["schedulerId"],
        wire["taskGroupId"],
        "_",
    )
    return Event(name, ".".join(words), tuple(wire["routes"]), about)


def run_retried(task: Task, run_id: int) -> Event:
    """Returns the event for a run that was resolved as exception; ``task`` has the run that retries it."""
    return replace(task_event("task-exception", task, run_id), only="today")


def group_resolved(task_group_id: str, scheduler_id: str) -> Event:
    """Returns the event that every task of the group is resolved."""
    return _group_event("task-group-resolved", task_group_id, scheduler_id)


def group_sealed(task_group_id: str, scheduler_id: str, expires: datetime, sealed: datetime) -> Event:
    """Returns the event that no task can be added to the group after ``sealed``."""
    times = {"expires": format_time(expires), "sealed": format_time(sealed)}
    return _group_event("task-group-sealed", task_group_id, scheduler_id, **times)


def group_priority_changed(task_group_id: str, scheduler_id: str, priority: str, count: int) -> Event:
    """Returns the event that a call changed the priority of ``count`` tasks of the group."""
    about = {"newPriority": priority, "tasksAffected": count}
    return _group_event("task-group-priority-changed", task_group_id, scheduler_id, **about)


def _group_event(name: str, task_group_id: str, scheduler_id: str, **more: Any) -> Event:
    about = {"version": 1, "taskGroupId": task_group_id, "schedulerId": scheduler_id, **more}
    return Event(name, f"primary.{task_group_id}.{scheduler_id}._", (), about)


def priority_changed(task: Task, change: PriorityChange) -> Event:
    """Returns the event for this change; ``task`` is the task at that time, except for later changes."""
    event = task_event("task-priority-changed", task)
    status = {**task.status(), "priority": change.new}
    about = {"version": 1, "status": status, "oldPriority": change.old, "newPriority": change.new}
    return replace(event, payload=about)


def events_since(
    task: Task, since: datetime, artifacts: Mapping[int, Sequence[Event]] = MappingProxyType({})
) -> list[Event]:
    """Returns the events of the task since then, in order, derived from its runs.

    Some of them may have been published before.

    task-defined is included unless a run was scheduled earlier. ``artifacts`` are the events of artifacts, by
    runId.
    """
    # a task does not store when it was defined; if it has runs, it was defined with the first one or before
    is_new = not task.runs or task.runs[0].scheduled >= since
    first = task.when_pending(0) if task.runs else task
    events = [task_event("task-defined", first)] if is_new else []
    changes = deque(change for change in task.priority_changes if change.changed >= since)

    def add_changes(then: Task, before: datetime | None = None) -> None:
        while changes and (before is None or changes[0].changed < before):
            events.append(priority_changed(then, changes.popleft()))

    for run in task.runs:
        add_changes(task.up_to(run.run_id - 1), run.scheduled)
        pending = task.when_pending(run.run_id)
        then = task.up_to(run.run_id)
        if run.reason_created != "exception" and run.scheduled >= since:  # else it was never pending
            if run.is_retry:  # the exception of the run before is published together with the retry
                events.append(run_retried(pending, run.run_id - 1))
            events.append(task_event("task-pending", pending))
        add_changes(pending, run.started or run.scheduled)
        running = task.when_running(run.run_id)
        if run.worker and run.started and run.started >= since:
            events.append(task_event("task-running", running))
        events += artifacts.get(run.run_id, ())
        add_changes(running if run.worker else pending, run.resolved)
        if task.ended_with(run.run_id) and run.resolved and run.resolved >= since:
            events.append(task_event(f"task-{run.state}", then))
    add_changes(task)
    return events
