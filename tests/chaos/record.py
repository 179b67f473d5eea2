"""The answers of the clients and the events of a consumer, with times.

Times are seconds since 1970, by the clock of the servers. Lists only grow, so threads may share a record.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

RETRIES = 30  # of each task: enough for each to end as planned


@dataclass(frozen=True)
class Claim:
    """An answer 200 to a claim, or to the reclaim of a run: the worker holds it until ``taken_until``."""

    task_id: str
    run_id: int
    worker_id: str
    at: float
    taken_until: float


@dataclass(frozen=True)
class Resolution:
    """An answer 200 to a report or a cancelTask, which shows a run as resolved; ``worker_id`` may be ""."""

    task_id: str
    run_id: int
    worker_id: str
    state: str
    reason: str
    at: float


@dataclass(frozen=True)
class Event:
    """A message as it arrived; ``about`` is the taskId, or the taskGroupId of task-group-resolved."""

    exchange: str
    about: str
    at: float
    run_id: int | None = None
    worker_id: str | None = None


@dataclass(frozen=True)
class Kill:
    """``what`` was killed: worker process, supervisor or both, of the server with this number."""

    what: str
    server: int
    at: float


@dataclass
class Record:
    """``groups`` has the group of each task whose createTask was answered. ``refusals`` are answers that no
    client should get: (taskId, request and answer). ``answers`` counts all by request and status, 0 for none.
    ``served`` has the times of each server's answers below 500.
    """

    groups: dict[str, str] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    resolutions: list[Resolution] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    refusals: list[tuple[str, str]] = field(default_factory=list)
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    served: defaultdict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    is_ending: bool = False  # the load is over: workers resolve every task
