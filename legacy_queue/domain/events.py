"""What the queue tells the world: eight exchanges, and the messages on them.

Source: seeds/001 (payloads and routing keys) and "Events (AMQP)" in design/protocol.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from legacy_queue.domain.task import Run, Task
from legacy_queue.domain.times import format_time

PROJECT = "taskcluster-queue"
EVER = datetime(2000, 1, 1, tzinfo=UTC)  # since then: all that happened


@dataclass(frozen=True)
class Key:
    """One word of a routing key; ``constant`` is what it always is, ``optional`` may be ``_``."""

    name: str
    summary: str
    constant: str | None = None
    optional: bool = False
    several_words: bool = False


_KIND = Key("routingKeyKind", "The kind of routing key: always 'primary'.", constant="primary")
_RESERVED = Key("reserved", "For words to come: match it with '#'.", optional=True, several_words=True)
TASK_KEYS = (
    _KIND,
    Key("taskId", "The task that the message is about."),
    Key("runId", "The latest run, '_' if there is none.", optional=True),
    Key("workerGroup", "The workerGroup of the latest run, '_' if there is none.", optional=True),
    Key("workerId", "The workerId of the latest run, '_' if there is none.", optional=True),
    Key("provisionerId", "The provisionerId of the task."),
    Key("workerType", "The workerType of the task."),
    Key("schedulerId", "The schedulerId of the task."),
    Key("taskGroupId", "The taskGroupId of the task."),
    _RESERVED,
)
GROUP_KEYS = (
    _KIND,
    Key("taskGroupId", "The task group that the message is about."),
    Key("schedulerId", "The schedulerId of the task group."),
    _RESERVED,
)


@dataclass(frozen=True)
class Exchange:
    """A topic exchange. ``entry`` is its name in the reference; ``always`` are optional words that are always
    in its keys. Source: seeds/001, which leaves task-failed out.
    """

    name: str
    entry: str
    title: str
    description: str
    keys: tuple[Key, ...] = TASK_KEYS
    always: tuple[str, ...] = ()

    def full_name(self, project: str) -> str:
        """``exchange/<project>/v1/task-pending``."""
        return f"exchange/{project}/v1/{self.name}"


_OF_A_WORKER = ("runId", "workerGroup", "workerId")
EXCHANGES: Mapping[str, Exchange] = {
    exchange.name: exchange
    for exchange in (
        Exchange("task-defined", "taskDefined", "Task Defined Messages", "A task was created or defined."),
        Exchange(
            "task-pending",
            "taskPending",
            "Task Pending Messages",
            "A run of a task became pending.",
            always=("runId",),
        ),
        Exchange(
            "task-running",
            "taskRunning",
            "Task Running Messages",
            "A worker claimed a run.",
            always=_OF_A_WORKER,
        ),
        Exchange(
            "artifact-created",
            "artifactCreated",
            "Artifact Creation Messages",
            "An artifact was recorded; its content may still be on its way.",
            always=_OF_A_WORKER,
        ),
        Exchange(
            "task-completed",
            "taskCompleted",
            "Task Completed Messages",
            "A task completed.",
            always=_OF_A_WORKER,
        ),
        Exchange("task-failed", "taskFailed", "Task Failed Messages", "A task ran and failed."),
        Exchange(
            "task-exception",
            "taskException",
            "Task Exception Messages",
            "A task could not be run; reasonResolved of its last run says why.",
        ),
        Exchange(
            "task-group-resolved",
            "taskGroupResolved",
            "Task Group Resolved Messages",
            "Every task of a group is resolved. Said again when tasks that joined later are resolved too.",
            GROUP_KEYS,
        ),
    )
}


@dataclass(frozen=True)
class Event:
    """A message on an exchange, named as in EXCHANGES; ``routes`` are CC'ed as ``route.<route>``."""

    exchange: str
    routing_key: str
    routes: tuple[str, ...]
    payload: Mapping[str, Any]


def task_event(name: str, task: Task, run_id: int | None = None) -> Event:
    """What ``name`` says about the run, by default the latest; ``task-defined`` is about the task alone."""
    run = task.last_run if run_id is None else task.runs[run_id]
    return Event(
        name,
        _task_routing_key(task, run),
        tuple(task.definition.wire["routes"]),
        {"version": 1, "status": task.status(), **_about(name, run)},
    )


def group_resolved(task_group_id: str, scheduler_id: str) -> Event:
    """Every task of the group is resolved."""
    return Event(
        "task-group-resolved",
        f"primary.{task_group_id}.{scheduler_id}._",
        (),
        {"version": 1, "taskGroupId": task_group_id, "schedulerId": scheduler_id},
    )


def events_since(
    task: Task, since: datetime, artifacts: Mapping[int, Sequence[Event]] = MappingProxyType({})
) -> list[Event]:
    """What happened to the task since then, in order, as far as its runs tell: again, perhaps.

    task-defined is among it where the task has no run that was scheduled before. ``artifacts`` are events of
    runs by their ids.
    """
    is_new = not task.runs or task.runs[0].scheduled >= since
    events = [task_event("task-defined", task.up_to(0))] if is_new else []
    for run in task.runs:
        then = task.up_to(run.run_id)
        if run.reason_created != "exception" and run.scheduled >= since:  # else it says how the task ended
            events.append(task_event("task-pending", then))
        if run.worker and run.started and run.started >= since:
            events.append(task_event("task-running", then))
        events += artifacts.get(run.run_id, ())
        if task.ended_with(run.run_id) and run.resolved and run.resolved >= since:
            events.append(task_event(f"task-{run.state}", then))
    return events


def _task_routing_key(task: Task, run: Run | None) -> str:
    worker = run.worker if run else None
    wire = task.definition.wire
    words = (
        "primary",
        task.task_id,
        "_" if run is None else str(run.run_id),
        worker.worker_group if worker else "_",
        worker.worker_id if worker else "_",
        wire["provisionerId"],
        wire["workerType"],
        wire["schedulerId"],
        wire["taskGroupId"],
        "_",
    )
    return ".".join(words)


def _about(name: str, run: Run | None) -> dict[str, Any]:
    """What a payload says beside the status."""
    if name == "task-defined" or run is None:
        return {}
    about: dict[str, Any] = {"runId": run.run_id}
    if name != "task-pending" and run.worker:
        about |= {"workerGroup": run.worker.worker_group, "workerId": run.worker.worker_id}
    if name == "task-running" and run.taken_until:
        about["takenUntil"] = format_time(run.taken_until)
    return about
