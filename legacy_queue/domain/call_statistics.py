"""How many calls of each kind a worker or a client has made for a pool, and when.

A caller is a worker, or a client that calls pollTaskUrls, polls a signed URL, or reads. The statistics keep
its calls for ten days.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from legacy_queue.domain.worker_record import RecordPath, WorkerRecord

POLL_TASK_URLS = "pollTaskUrls"
POLL = "poll"  # at a signed URL of this server
CLAIM_TASK = "claimTask"
CLAIM_WORK = "claimWork"
TODAYS_CLAIM_WORK = "claimWork by taskQueueId"  # by clients since 2020
METHODS = (POLL_TASK_URLS, POLL, CLAIM_TASK, CLAIM_WORK, TODAYS_CLAIM_WORK)

# the method, and then the fields that a claimTask left out or the scopes that a read needs
CallKind = tuple[str, tuple[str, ...]]

CALLS_KEPT = timedelta(days=10)  # after the last call of the kind
READERS = "", ""  # clients that read have this in place of provisionerId and workerType
_MAX_CALLER = 255  # characters
_TASK_CLIENT = re.compile(r"task-client/[^/]+/[^/]+/on/([^/]+/[^/]+)/until/\d+")


@dataclass(frozen=True)
class Calls:
    """How many calls there were, and the times of the first and the last."""

    count: int
    first: datetime
    last: datetime

    def plus(self, other: "Calls") -> "Calls":
        """The sum of both."""
        return Calls(self.count + other.count, min(self.first, other.first), max(self.last, other.last))


@dataclass(frozen=True)
class CallStatistics:
    """The calls of one caller by kind. A kind is dropped ten days after its last call."""

    calls: Mapping[CallKind, Calls] = field(default_factory=dict)
    # for a worker: the name of the client that sent its last claimTask
    client: str = ""

    @property
    def last_call(self) -> datetime:
        """The time of the last call of any kind. There must be one."""
        return max(calls.last for calls in self.calls.values())

    @property
    def last_method(self) -> str:
        """The method of the last call, for statistics with calls."""
        return max(self.calls.items(), key=lambda item: item[1].last)[0][0]

    def counted(self, kind: CallKind, more: Calls, client: str = "") -> "CallStatistics":
        """Returns the statistics with these calls added. ``client`` sent them, if it is known."""
        calls = {other: calls for other, calls in self.calls.items() if calls.last + CALLS_KEPT > more.last}
        calls[kind] = calls[kind].plus(more) if kind in calls else more
        return CallStatistics(calls, client or self.client)


@dataclass(frozen=True)
class CallingClient:
    """A client that polls a pool, or reads. ``name`` is its ``caller_name``."""

    provisioner_id: str
    worker_type: str
    name: str

    def __str__(self) -> str:
        return f"{self.provisioner_id}/{self.worker_type}/{self.name}"


@dataclass(frozen=True)
class Caller:
    """A worker or a client that has called for a pool."""

    provisioner_id: str
    worker_type: str
    name: str  # workerGroup/workerId, or the name of the client
    statistics: CallStatistics
    worker: WorkerRecord | None = None  # None for a client

    @property
    def task_queue_id(self) -> str:
        return f"{self.provisioner_id}/{self.worker_type}"

    @property
    def last_call(self) -> datetime:
        return self.statistics.last_call

    def quarantined_until(self, now: datetime) -> datetime | None:
        """When the quarantine of the worker ends, or None if it is not quarantined."""
        return self.worker.quarantine_until if self.worker and self.worker.is_quarantined(now) else None


def merge_clients(callers: Sequence[Caller]) -> list[Caller]:
    """Returns the callers, with a client and its worker as one.

    If a client claimed for one worker only, it is left out, and its calls are added to the worker's.
    """
    workers: dict[CallingClient, list[WorkerRecord]] = {}
    for caller in callers:
        if caller.worker and caller.statistics.client:
            client = CallingClient(caller.provisioner_id, caller.worker_type, caller.statistics.client)
            workers.setdefault(client, []).append(caller.worker)
    kept: list[Caller] = []
    polls: dict[RecordPath, Mapping[CallKind, Calls]] = {}  # of the clients that are left out
    for caller in callers:
        client = CallingClient(caller.provisioner_id, caller.worker_type, caller.name)
        if caller.worker or len(workers.get(client, ())) != 1:
            kept.append(caller)
        else:
            polls[workers[client][0].path] = caller.statistics.calls
    return [
        replace(caller, statistics=replace(caller.statistics, calls={**calls, **caller.statistics.calls}))
        for caller in kept
        for calls in [polls.get(caller.worker.path, {}) if caller.worker else {}]
    ]


def caller_name(caller: str) -> str:
    """Returns the name of the caller, shortened if it is long.

    The taskId is cut out of a clientId of a claim, so that a worker has the same name for each task.
    """
    return _TASK_CLIENT.sub(r"task-client/*/on/\1", caller)[:_MAX_CALLER]
