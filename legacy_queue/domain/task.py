"""A task as it is stored: its definition, its runs, and the message held for its next run."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

from legacy_queue.domain.definition import TaskDefinition, lazy
from legacy_queue.domain.errors import RequestConflict, ResourceNotFound
from legacy_queue.domain.ids import MAX_RUNS
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.times import format_time, parse_time

MAX_PRIORITY_CHANGES = 50  # a task keeps its last changes


@dataclass(frozen=True)
class Worker:
    """The worker of a run."""

    worker_group: str
    worker_id: str


@dataclass(frozen=True)
class Run:
    """One attempt at a task. ``state`` is pending, running, completed, failed or exception."""

    run_id: int
    state: str
    reason_created: str
    scheduled: datetime
    reason_resolved: str | None = None
    worker: Worker | None = None
    taken_until: datetime | None = None
    started: datetime | None = None
    resolved: datetime | None = None

    @property
    def is_resolved(self) -> bool:
        return self.state not in ("pending", "running")

    @property
    def is_retry(self) -> bool:
        """Whether the queue created this run because the run before it was resolved as exception."""
        return self.reason_created in ("retry", "task-retry")

    def claimed(self, worker: Worker, taken_until: datetime, now: datetime) -> "Run":
        """Returns this pending run as claimed by the worker."""
        return Run(
            self.run_id, "running", self.reason_created, self.scheduled, None, worker, taken_until, now
        )

    def ended(self, state: str, reason: str, now: datetime) -> "Run":
        """Returns this run as resolved."""
        claim = self.worker, self.taken_until, self.started
        return Run(self.run_id, state, self.reason_created, self.scheduled, reason, *claim, now)

    @property
    def summary(self) -> str:
        """``run 0 is running``, ``run 0 completed`` or ``run 0 ended as exception (claim-expired)``."""
        words = f"is {self.state}" if self.reason_resolved is None else self.state
        if self.state == "exception":
            words = f"ended as exception ({self.reason_resolved})"
        return f"run {self.run_id} {words}"

    def is_pending(self, time: datetime) -> bool:
        """Whether the run was pending at that time."""
        return self.scheduled <= time and all(time < end for end in (self.started, self.resolved) if end)

    def has_expired(self, now: datetime) -> bool:
        """Whether takenUntil of the run has passed."""
        return self.taken_until is not None and now >= self.taken_until

    def is_claimed(self, time: datetime) -> bool:
        """Whether a worker held the run at that time."""
        is_begun = self.started is not None and self.started <= time
        return is_begun and not (self.has_expired(time) or (self.resolved and self.resolved <= time))

    @lazy
    def wire(self) -> Mapping[str, Any]:
        """The run as JSON in the status structure. Fields without a value are left out."""
        worker = self.worker
        wire = {
            "runId": self.run_id,
            "state": self.state,
            "reasonCreated": self.reason_created,
            "scheduled": format_time(self.scheduled),
            "reasonResolved": self.reason_resolved,
            "workerGroup": worker and worker.worker_group,
            "workerId": worker and worker.worker_id,
            "takenUntil": self.taken_until and format_time(self.taken_until),
            "started": self.started and format_time(self.started),
            "resolved": self.resolved and format_time(self.resolved),
        }
        return {name: value for name, value in wire.items() if value is not None}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """The inverse of ``wire``."""
        return cls(
            run_id=wire["runId"],
            state=wire["state"],
            reason_created=wire["reasonCreated"],
            scheduled=parse_time(wire["scheduled"]),
            reason_resolved=wire.get("reasonResolved"),
            worker=Worker(wire["workerGroup"], wire["workerId"]) if "workerId" in wire else None,
            taken_until=_time_in(wire, "takenUntil"),
            started=_time_in(wire, "started"),
            resolved=_time_in(wire, "resolved"),
        )


def _time_in(wire: Mapping[str, Any], name: str) -> datetime | None:
    return parse_time(wire[name]) if name in wire else None


@dataclass(frozen=True)
class PriorityChange:
    """The priority of a task was changed, from ``old`` to ``new``."""

    old: str
    new: str
    changed: datetime


@dataclass(frozen=True)
class Task:
    """A task at one moment. It never changes: a transition returns another Task."""

    task_id: str
    definition: TaskDefinition
    retries_left: int
    runs: tuple[Run, ...] = ()
    # the lease on the message for run R+1 while run R is running, else None
    held: MessageLease | None = None
    # the dependencies that an unscheduled task still waits for
    waits_for: tuple[str, ...] = ()
    # the name of the last blob or object artifact that was created for the last run, or ""
    newest_blob: str = ""
    # True if the broker was unreachable, so that events of the task may be missing
    is_unpublished: bool = False
    # the last changes of the priority, in order
    priority_changes: tuple[PriorityChange, ...] = ()

    @property
    def priority(self) -> str:
        """The current priority. The definition has the priority at the time of creation."""
        priority: str = self.definition.wire["priority"]
        return self.priority_changes[-1].new if self.priority_changes else priority

    @lazy
    def work_queue(self) -> WorkQueue:
        """The queue that has the messages of the task."""
        wire = self.definition.wire
        return WorkQueue(wire["provisionerId"], wire["workerType"], self.priority)

    @property
    def wire(self) -> Mapping[str, Any]:
        """The definition as the API returns it, with the current priority."""
        return {**self.definition.to_wire(), "priority": self.priority}

    @property
    def is_resolved(self) -> bool:
        return bool(self.runs) and self.runs[-1].is_resolved

    def satisfies(self, requires: str) -> bool:
        """Whether a dependent task whose ``requires`` is this can stop waiting for this task."""
        return self.state == "completed" if requires == "all-completed" else self.is_resolved

    def ended_with(self, run_id: int) -> bool:
        """Whether that run resolved the task. The task may have been rerun later."""
        if run_id >= len(self.runs) or not self.runs[run_id].is_resolved:
            return False
        # a run before a retry was resolved, but it did not resolve the task
        return run_id == len(self.runs) - 1 or self.runs[run_id + 1].reason_created == "rerun"

    def with_runs(self, runs: tuple[Run, ...], held: MessageLease | None) -> "Task":
        """Returns the task with these runs and this held message."""
        return Task(
            self.task_id,
            self.definition,
            self.retries_left,
            runs,
            held,
            self.waits_for,
            self.newest_blob,
            self.is_unpublished,
            self.priority_changes,
        )

    def with_priority(self, priority: str, now: datetime) -> Self:
        """Returns the task with another priority from now on."""
        changes = (*self.priority_changes, PriorityChange(self.priority, priority, now))
        return replace(self, priority_changes=changes[-MAX_PRIORITY_CHANGES:])

    def up_to(self, run_id: int) -> Self:
        """Returns the task as it was when that run was its last run. -1 means: before its first run."""
        runs = self.runs[: run_id + 1]
        # count from the start: the task has only the number after its last run
        retries_left = self.definition.retries
        for run in runs:
            if run.reason_created == "rerun":
                retries_left = min(self.definition.retries, MAX_RUNS - 1 - run.run_id)  # as transitions.rerun
            elif run.is_retry:
                retries_left -= 1
        return replace(self, runs=runs, retries_left=retries_left)

    def when_pending(self, run_id: int) -> Self:
        """Returns the task as it was when that run became pending.

        A run that was created only to say why the task ended was never pending: then this is the task before
        it.
        """
        then = self.up_to(run_id)
        *earlier, run = then.runs
        if run.reason_created == "exception":
            return self.up_to(run_id - 1)
        pending = Run(run_id, "pending", run.reason_created, run.scheduled)
        return replace(then, runs=(*earlier, pending))

    def when_running(self, run_id: int) -> Self:
        """Returns the task with that run claimed, as it was then. A later reclaim may have set takenUntil."""
        then = self.up_to(run_id)
        *earlier, run = then.runs
        running = replace(run, state="running", reason_resolved=None, resolved=None)
        return replace(then, runs=(*earlier, running))

    def activation(self, run_id: int) -> int:
        """The last run up to ``run_id`` that made the task active in its group: run 0 or a rerun."""
        reruns = (run.run_id for run in self.runs[: run_id + 1] if run.reason_created == "rerun")
        return max(reruns, default=0)

    @property
    def last_run(self) -> Run | None:
        return self.runs[-1] if self.runs else None

    @property
    def state(self) -> str:
        """``unscheduled``, or the state of the last run."""
        return self.runs[-1].state if self.runs else "unscheduled"

    @property
    def since(self) -> datetime:
        """When an unresolved task entered its state."""
        run = self.last_run
        return (run.started or run.scheduled) if run else self.definition.created

    def run(self, run_id: int) -> Run:
        """Returns that run; raises ResourceNotFound."""
        if run_id >= len(self.runs):
            runs = f"its runs are 0..{len(self.runs) - 1}" if self.runs else "it has no runs yet"
            raise ResourceNotFound(f"task {self.task_id} has no run {run_id}: {runs}")
        return self.runs[run_id]

    def conflict(self, why: str) -> RequestConflict:
        """Returns the error for a call that is not allowed in the current state of the task."""
        return RequestConflict(f"task {self.task_id}: {why}", {"status": self.status()})

    def check_deadline(self, now: datetime) -> None:
        """Raises RequestConflict at and after the deadline."""
        if now >= self.definition.deadline:
            raise self.conflict(f"its deadline {format_time(self.definition.deadline)} has passed")

    def status(self) -> Mapping[str, Any]:
        """The task status structure of docs/explanation/http-contract.md#task-status."""
        return self._status

    @lazy
    def _status(self) -> Mapping[str, Any]:
        # made once, because the answer and each event contain it
        wire = self.definition.wire
        return {
            "taskId": self.task_id,
            "provisionerId": wire["provisionerId"],
            "workerType": wire["workerType"],
            "taskQueueId": self.work_queue.task_queue_id,
            "schedulerId": wire["schedulerId"],
            "projectId": self.definition.project_id,
            "taskGroupId": wire["taskGroupId"],
            "deadline": wire["deadline"],
            "expires": wire["expires"],
            "priority": self.priority,
            "retriesLeft": self.retries_left,
            "state": self.state,
            "runs": [run.wire for run in self.runs],
        }
