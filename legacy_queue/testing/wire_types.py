"""The fields of a task's definition, and the answers, as types: a misspelled field is an error of mypy.

Fields are in Python's case, answers as on the wire. Answers may have more than these.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NotRequired, TypedDict

State = Literal["unscheduled", "pending", "running", "completed", "failed", "exception"]
Priority = Literal["highest", "very-high", "high", "medium", "low", "very-low", "lowest", "normal"]
Time = str | datetime | timedelta  # a timedelta is from the queue's time on
Duration = str | float | timedelta  # a number is in seconds


class TaskFields(TypedDict, total=False):
    """The fields of createTask."""

    provisioner_id: str
    worker_type: str
    task_queue_id: str
    project_id: str
    scheduler_id: str
    task_group_id: str
    dependencies: Sequence[str]
    requires: Literal["all-completed", "all-resolved"]
    routes: Sequence[str]
    priority: Priority
    retries: int
    created: Time
    deadline: Time
    expires: Time
    scopes: Sequence[str]
    payload: Mapping[str, Any]
    metadata: Mapping[str, str]
    tags: Mapping[str, str]
    extra: Mapping[str, Any]


class FaultFields(TypedDict, total=False):
    """What ``fault`` causes, and in which requests."""

    status: int
    message: str
    drop: Literal["before", "after"]
    sas: Duration
    double: bool
    lose: bool
    stale: bool
    delay: Duration
    task: str
    worker: str
    times: int
    probability: float
    seed: int


class RunStatus(TypedDict):
    """One run of a status."""

    runId: int
    state: State
    reasonCreated: str
    scheduled: str
    reasonResolved: NotRequired[str]
    workerGroup: NotRequired[str]
    workerId: NotRequired[str]
    takenUntil: NotRequired[str]
    started: NotRequired[str]
    resolved: NotRequired[str]


class Status(TypedDict):
    """The status of a task."""

    taskId: str
    provisionerId: str
    workerType: str
    schedulerId: str
    taskGroupId: str
    deadline: str
    expires: str
    retriesLeft: int
    state: State
    runs: list[RunStatus]


class InspectedMessage(TypedDict):
    """A message in a pool's queues. ``visibleIn`` is in seconds. A poisoned one is of no run."""

    messageId: str
    priority: Priority
    visibleIn: float
    dequeueCount: int
    inserted: str
    taskId: NotRequired[str]
    runId: NotRequired[int]


class QueueEvent(TypedDict):
    """An event, with its id on this server."""

    id: str
    exchange: str
    routingKey: str
    routes: list[str]
    payload: dict[str, Any]
