"""Types of the fields of a definition, and of answers, so that mypy finds a misspelled field.

Fields are named as in Python, and answers as in JSON. An answer may have more properties than its type.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NotRequired, TypedDict

State = Literal["unscheduled", "pending", "running", "completed", "failed", "exception"]
Priority = Literal["highest", "very-high", "high", "medium", "low", "very-low", "lowest", "normal"]
Time = str | datetime | timedelta  # a timedelta counts from the queue's time
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
    """What a ``fault`` does, and to which requests."""

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
    """A run in a status."""

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
    """A message in a pool's queues. ``visibleIn`` is in seconds. A poisoned message belongs to no run."""

    messageId: str
    priority: Priority
    visibleIn: float
    dequeueCount: int
    inserted: str
    taskId: NotRequired[str]
    runId: NotRequired[int]


class QueueEvent(TypedDict):
    """An event, with the id that this server gave it."""

    id: str
    exchange: str
    routingKey: str
    routes: list[str]
    payload: dict[str, Any]
