"""The records of provisioners, pools and workers.

A record is made when its provisioner, pool or worker is first declared or active. The record of a provisioner
or pool expires five days after its last activity, the record of a worker one day after. Source:
``src/workerinfo.js`` and ``schemas/`` of the original queue of 2018.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Self

from legacy_queue.domain.ids import RunKey
from legacy_queue.domain.task import Worker
from legacy_queue.domain.times import format_time, parse_field, parse_time

ID_NAMES = ("provisionerId", "workerType", "workerGroup", "workerId")
STABILITIES = ("experimental", "stable", "deprecated")
RECENT_TASKS = 20
_QUARANTINE_DETAILS = 20
# a day is divided into periods of this length; activity is written at least once in each of them
ACTIVE_EVERY = timedelta(minutes=30)

_DECLARED_EVERY = timedelta(hours=6)
_LIFE = timedelta(days=5)
_WORKER_LIFE = timedelta(days=1)


class ProvisionerPath(NamedTuple):
    """The name of a provisioner."""

    provisioner_id: str


class PoolPath(NamedTuple):
    """The names of a pool."""

    provisioner_id: str
    worker_type: str


class WorkerPath(NamedTuple):
    """The names of a worker."""

    provisioner_id: str
    worker_type: str
    worker_group: str
    worker_id: str


RecordPath = ProvisionerPath | PoolPath | WorkerPath
# a place in a list of records: the names of the record before it, () at the start
RecordPlace = tuple[str, ...]
# the ``context`` of a provisioner's actions says what they are for
ACTION_CONTEXTS: Mapping[type[RecordPath], str] = {
    ProvisionerPath: "provisioner",
    PoolPath: "worker-type",
    WorkerPath: "worker",
}


def worker_path(provisioner_id: str, worker_type: str, worker: Worker) -> WorkerPath:
    return WorkerPath(provisioner_id, worker_type, worker.worker_group, worker.worker_id)


def path_in(names: Mapping[str, str]) -> RecordPath:
    """Returns the path of the worker, pool or provisioner that these names on the wire are about."""
    found = [names[name] for name in ID_NAMES if name in names]
    kind = WorkerPath if "workerId" in names else PoolPath if "workerType" in names else ProvisionerPath
    return kind(*found)


def parents(path: RecordPath) -> Sequence[ProvisionerPath | PoolPath]:
    """Returns the paths of the records above: the provisioner and, for a worker, its pool."""
    if isinstance(path, ProvisionerPath):
        return []
    provisioner = ProvisionerPath(path.provisioner_id)
    return [provisioner, PoolPath(*path[:2])] if isinstance(path, WorkerPath) else [provisioner]


@dataclass(frozen=True)
class WorkerRecord:
    """A provisioner, a pool or a worker. A worker has its last claims, the oldest first, and its
    quarantine with its last 20 changes. The others have a description and a stability. A provisioner has the
    actions for itself, its pools and its workers.
    """

    path: RecordPath
    first_active: datetime
    last_active: datetime
    expires: datetime
    description: str = ""
    stability: str = STABILITIES[0]
    actions: tuple[Mapping[str, str], ...] = ()
    recent_claims: tuple[RunKey, ...] = ()
    quarantine_until: datetime | None = None
    quarantine_details: tuple[Mapping[str, str], ...] = ()  # the last changes, as in answers

    @classmethod
    def new(cls, path: RecordPath, now: datetime) -> Self:
        return cls(path, now, now, now + _life(path))

    @property
    def is_worker(self) -> bool:
        return isinstance(self.path, WorkerPath)

    @property
    def kept_until(self) -> datetime:
        """When the record may be removed: of a worker not before its quarantine ends."""
        return max(self.expires, self.quarantine_until or self.expires)

    def is_quarantined(self, now: datetime) -> bool:
        return self.quarantine_until is not None and self.quarantine_until > now

    def as_of(self, now: datetime) -> Self:
        """The record without a quarantine that has ended."""
        return self if self.is_quarantined(now) else replace(self, quarantine_until=None)

    def is_active_in(self, now: datetime) -> bool:
        """Whether its last activity was in the same half hour as ``now``."""
        return _period(self.last_active) == _period(now)

    def alive(self, now: datetime) -> Self:
        """Returns the record, or a new one if it has expired."""
        return self if self.kept_until > now else self.new(self.path, now)

    def active(self, now: datetime, claims: Sequence[RunKey] = ()) -> Self:
        """Returns the record after activity that claimed these runs. It never expires earlier than before."""
        return replace(
            self,
            last_active=max(self.last_active, now),
            expires=max(self.expires, now + _life(self.path)),
            # each claim once, the last ones only
            recent_claims=tuple(dict.fromkeys((*self.recent_claims, *claims)))[-RECENT_TASKS:],
        )

    def quarantined(self, until: datetime, now: datetime, client_id: str, info: str) -> Self:
        """Returns the record with a quarantine by this client, for the reason ``info``."""
        change = {
            "updatedAt": format_time(now),
            "clientId": client_id,
            "quarantineUntil": format_time(until),
            "quarantineInfo": info,
        }
        details = (*self.quarantine_details, change)[-_QUARANTINE_DETAILS:]
        return replace(self, quarantine_until=until, quarantine_details=details)

    def declared(self, body: Mapping[str, Any], now: datetime) -> Self:
        """Returns the record as declared. An ``expires`` in the past becomes now. Raises InputError."""
        changes: dict[str, Any] = {name: body[name] for name in ("description", "stability") if name in body}
        if "actions" in body:
            changes["actions"] = tuple(body["actions"])
        if "expires" in body:
            changes["expires"] = max(now, parse_field(body, "expires", parse_time))
        return replace(self, **changes)

    def active_by_declaration(self, now: datetime) -> Self:
        """As ``active``, but a provisioner or pool changes only if its activity is over six hours old."""
        return self.active(now) if self.is_worker or now - self.last_active > _DECLARED_EVERY else self

    def outliving(self, expires: datetime) -> Self:
        """Returns the record, kept at least until ``expires``: a record below it must not outlive it."""
        return replace(self, expires=max(self.expires, expires))

    def to_wire(self) -> dict[str, Any]:
        """Returns the answer of getProvisioner, getWorkerType or getWorker, without provisioner actions."""
        wire: dict[str, Any] = {
            **dict(zip(ID_NAMES, self.path, strict=False)),
            "expires": format_time(self.expires),
            "lastDateActive": format_time(self.last_active),
        }
        if not isinstance(self.path, ProvisionerPath):
            wire["taskQueueId"] = "/".join(self.path[:2])
        if self.is_worker:
            tasks = [{"taskId": task_id, "runId": run_id} for task_id, run_id in self.recent_claims]
            wire |= {"firstClaim": format_time(self.first_active), "recentTasks": tasks}
            if self.quarantine_until:
                wire["quarantineUntil"] = format_time(self.quarantine_until)
            if self.quarantine_details:
                wire["quarantineDetails"] = list(self.quarantine_details)
            return wire
        wire |= {"description": self.description, "stability": self.stability}
        if isinstance(self.path, ProvisionerPath):
            wire["actions"] = list(self.actions)
        return wire

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """The inverse of ``to_wire``."""
        last_active = parse_time(wire["lastDateActive"])
        return cls(
            path=path_in(wire),
            first_active=parse_time(wire["firstClaim"]) if "firstClaim" in wire else last_active,
            last_active=last_active,
            expires=parse_time(wire["expires"]),
            description=wire.get("description", ""),
            stability=wire.get("stability", STABILITIES[0]),
            actions=tuple(wire.get("actions", ())),
            recent_claims=tuple((task["taskId"], task["runId"]) for task in wire.get("recentTasks", ())),
            quarantine_until=parse_time(wire["quarantineUntil"]) if "quarantineUntil" in wire else None,
            quarantine_details=tuple(wire.get("quarantineDetails", ())),
        )


def _life(path: RecordPath) -> timedelta:
    return _WORKER_LIFE if isinstance(path, WorkerPath) else _LIFE


def _period(time: datetime) -> int:
    return int(time.timestamp() // ACTIVE_EVERY.total_seconds())
