"""Who does the work: provisioners, their worker types, and the workers of those.

Nobody has to register. Each is known from when it is first declared or seen until it expires: five days
after a provisioner or worker type was last active, one day after a worker was. Source: the original's
``src/workerinfo.js`` and ``schemas/`` of 2018.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Self

from legacy_queue.domain.task import Worker
from legacy_queue.domain.times import format_time, given_time, parse_time

# provisionerId; and workerType; and workerGroup and workerId
Path = tuple[str, ...]
Claimed = tuple[str, int]  # taskId and runId

ID_NAMES = ("provisionerId", "workerType", "workerGroup", "workerId")
STABILITIES = ("experimental", "stable", "deprecated")
ACTION_CONTEXTS = ("provisioner", "worker-type", "worker")
RECENT_TASKS = 20
_QUARANTINE_DETAILS = 20
ACTIVE_EVERY = timedelta(minutes=30)  # how old lastDateActive may be of who is active

_LIFE, _WORKER_LIFE = timedelta(days=5), timedelta(days=1)


def worker_path(provisioner_id: str, worker_type: str, worker: Worker) -> Path:
    return provisioner_id, worker_type, worker.worker_group, worker.worker_id


def parents(path: Path) -> list[Path]:
    """Those that it belongs to: its provisioner, and a worker's worker type."""
    return [path[:length] for length in (1, 2) if length < len(path)]


def parent_of(path: Path) -> Path:
    """That right above it, () above a provisioner."""
    return [(), *parents(path)][-1]


@dataclass(frozen=True)
class Activity:
    """That somebody was active, from when to when, and the runs that were claimed, oldest first."""

    first: datetime
    last: datetime
    claims: tuple[Claimed, ...] = ()

    def then(self, later: Self) -> Self:
        """Both of them."""
        return replace(self, last=later.last, claims=_most_recent(self.claims, later.claims))


@dataclass(frozen=True)
class WorkerRecord:
    """What is known of a provisioner, a worker type or a worker: of a worker its ``recent_claims``, oldest
    first, and its quarantine with the last 20 changes of it; of the others a description and a stability; of
    a provisioner its actions, also for its worker types and workers.
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
    quarantine_details: tuple[Mapping[str, str], ...] = ()  # its last changes, as they are answered

    @classmethod
    def new(cls, path: Path, now: datetime) -> Self:
        return cls(path, now, now, now + _life(path))

    @property
    def is_worker(self) -> bool:
        return len(self.path) == len(ID_NAMES)

    @property
    def kept_until(self) -> datetime:
        """When it is forgotten: a worker not before its quarantine ends."""
        return max(self.expires, self.quarantine_until or self.expires)

    def is_quarantined(self, now: datetime) -> bool:
        return self.quarantine_until is not None and self.quarantine_until > now

    def as_of(self, now: datetime) -> Self:
        """Without a quarantine that is over."""
        return self if self.is_quarantined(now) else replace(self, quarantine_until=None)

    def needs_write(self, activity: Activity) -> bool:
        """Whether it is worth writing down."""
        is_stale = activity.last - self.last_active >= ACTIVE_EVERY
        return is_stale or not set(activity.claims) <= set(self.recent_claims)

    def after(self, activity: Activity) -> Self:
        """With what somebody did. Safe to repeat; never expires earlier than it did."""
        return replace(
            self,
            first_active=min(self.first_active, activity.first),
            last_active=max(self.last_active, activity.last),
            expires=max(self.expires, activity.last + _life(self.path)),
            recent_claims=_most_recent(self.recent_claims, activity.claims),
        )

    def quarantined(self, until: datetime, now: datetime, client_id: str, info: str) -> Self:
        """Kept from work until then by that client, which says why."""
        change = {
            "updatedAt": format_time(now),
            "clientId": client_id,
            "quarantineUntil": format_time(until),
            "quarantineInfo": info,
        }
        details = (*self.quarantine_details, change)[-_QUARANTINE_DETAILS:]
        return replace(self, quarantine_until=until, quarantine_details=details)

    def declared(self, body: Mapping[str, Any], now: datetime) -> Self:
        """With the properties that a declaration gives, a past ``expires`` as now; raises InputError."""
        given: dict[str, Any] = {name: body[name] for name in ("description", "stability") if name in body}
        if "actions" in body:
            given["actions"] = tuple(body["actions"])
        if "expires" in body:
            given["expires"] = max(now, given_time(body, "expires"))
        return replace(self, **given)

    def to_wire(self) -> dict[str, Any]:
        """As getProvisioner, getWorkerType and getWorker answer, but for the actions of its provisioner."""
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
            recent_claims=tuple((one["taskId"], one["runId"]) for one in wire.get("recentTasks", ())),
            quarantine_until=parse_time(wire["quarantineUntil"]) if "quarantineUntil" in wire else None,
            quarantine_details=tuple(wire.get("quarantineDetails", ())),
        )


def _life(path: Path) -> timedelta:
    return _WORKER_LIFE if len(path) == len(ID_NAMES) else _LIFE


def _most_recent(claims: tuple[Claimed, ...], later: tuple[Claimed, ...]) -> tuple[Claimed, ...]:
    """The last 20 of both, each once."""
    return tuple(dict.fromkeys((*claims, *later)))[-RECENT_TASKS:]
