"""The records of provisioners, worker types and workers.

A record begins when its provisioner, worker type or worker is first declared or active. It expires five days
after the last activity of a provisioner or worker type, one day after that of a worker. Source:
``src/workerinfo.js`` and ``schemas/`` of the original queue of 2018.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Self

from legacy_queue.domain.task import Worker
from legacy_queue.domain.times import format_time, given_time, parse_time

# provisionerId, then workerType, then workerGroup and workerId
Path = tuple[str, ...]
Claimed = tuple[str, int]  # taskId and runId

ID_NAMES = ("provisionerId", "workerType", "workerGroup", "workerId")
STABILITIES = ("experimental", "stable", "deprecated")
ACTION_CONTEXTS = ("provisioner", "worker-type", "worker")
RECENT_TASKS = 20
_QUARANTINE_DETAILS = 20
ACTIVE_EVERY = timedelta(minutes=30)  # lastDateActive is at most so old while there is activity

_LIFE, _WORKER_LIFE = timedelta(days=5), timedelta(days=1)


def worker_path(provisioner_id: str, worker_type: str, worker: Worker) -> Path:
    return provisioner_id, worker_type, worker.worker_group, worker.worker_id


def parents(path: Path) -> list[Path]:
    """The paths of its provisioner and, of a worker, its worker type."""
    return [path[:length] for length in (1, 2) if length < len(path)]


def parent_of(path: Path) -> Path:
    """The last of ``parents``; () for a provisioner."""
    return [(), *parents(path)][-1]


@dataclass(frozen=True)
class Activity:
    """Activity from ``first`` to ``last``, and the runs that were claimed, the oldest first."""

    first: datetime
    last: datetime
    claims: tuple[Claimed, ...] = ()

    def then(self, later: Self) -> Self:
        """Both activities."""
        return replace(self, last=later.last, claims=_last_claims(self.claims, later.claims))


@dataclass(frozen=True)
class WorkerRecord:
    """A provisioner, a worker type or a worker. A worker has its last claims, the oldest first, and its
    quarantine with its last 20 changes. The others have a description and a stability. A provisioner has the
    actions for itself, its worker types and its workers.
    """

    path: Path
    first_active: datetime
    last_active: datetime
    expires: datetime
    description: str = ""
    stability: str = STABILITIES[0]
    actions: tuple[Mapping[str, str], ...] = ()
    recent_claims: tuple[Claimed, ...] = ()
    quarantine_until: datetime | None = None
    quarantine_details: tuple[Mapping[str, str], ...] = ()  # the last changes, as in answers

    @classmethod
    def new(cls, path: Path, now: datetime) -> Self:
        return cls(path, now, now, now + _life(path))

    @property
    def is_worker(self) -> bool:
        return len(self.path) == len(ID_NAMES)

    @property
    def kept_until(self) -> datetime:
        """When the record may be removed: of a worker not before its quarantine ends."""
        return max(self.expires, self.quarantine_until or self.expires)

    def is_quarantined(self, now: datetime) -> bool:
        return self.quarantine_until is not None and self.quarantine_until > now

    def as_of(self, now: datetime) -> Self:
        """The record without a quarantine that has ended."""
        return self if self.is_quarantined(now) else replace(self, quarantine_until=None)

    def needs_write(self, activity: Activity) -> bool:
        """Whether the activity must be written: a new claim, or the last activity is old."""
        is_stale = activity.last - self.last_active >= ACTIVE_EVERY
        return is_stale or not set(activity.claims) <= set(self.recent_claims)

    def after(self, activity: Activity) -> Self:
        """The record with this activity. Safe to repeat; it never expires earlier than before."""
        return replace(
            self,
            first_active=min(self.first_active, activity.first),
            last_active=max(self.last_active, activity.last),
            expires=max(self.expires, activity.last + _life(self.path)),
            recent_claims=_last_claims(self.recent_claims, activity.claims),
        )

    def quarantined(self, until: datetime, now: datetime, client_id: str, info: str) -> Self:
        """The record with a quarantine by this client, for the reason ``info``."""
        change = {
            "updatedAt": format_time(now),
            "clientId": client_id,
            "quarantineUntil": format_time(until),
            "quarantineInfo": info,
        }
        details = (*self.quarantine_details, change)[-_QUARANTINE_DETAILS:]
        return replace(self, quarantine_until=until, quarantine_details=details)

    def declared(self, body: Mapping[str, Any], now: datetime) -> Self:
        """The record with the fields of a declaration; a past ``expires`` is now. Raises InputError."""
        given: dict[str, Any] = {name: body[name] for name in ("description", "stability") if name in body}
        if "actions" in body:
            given["actions"] = tuple(body["actions"])
        if "expires" in body:
            given["expires"] = max(now, given_time(body, "expires"))
        return replace(self, **given)

    def to_wire(self) -> dict[str, Any]:
        """The answer of getProvisioner, getWorkerType or getWorker, without the provisioner's actions."""
        wire: dict[str, Any] = {
            **dict(zip(ID_NAMES, self.path, strict=False)),
            "expires": format_time(self.expires),
            "lastDateActive": format_time(self.last_active),
        }
        if len(self.path) > 1:
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
        if len(self.path) == 1:
            wire["actions"] = list(self.actions)
        return wire

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """The inverse of ``to_wire``."""
        last_active = parse_time(wire["lastDateActive"])
        return cls(
            path=tuple(wire[name] for name in ID_NAMES if name in wire),
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


def _life(path: Path) -> timedelta:
    return _WORKER_LIFE if len(path) == len(ID_NAMES) else _LIFE


def _last_claims(claims: tuple[Claimed, ...], later: tuple[Claimed, ...]) -> tuple[Claimed, ...]:
    """The last 20 claims of both, each once."""
    return tuple(dict.fromkeys((*claims, *later)))[-RECENT_TASKS:]
