"""What became of tasks lately, from the events that this process has published and still has in memory.

It costs no read of storage. It lacks what other processes have published.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from legacy_queue.cooperation import yielding
from legacy_queue.domain.states import RESOLVED, UNRESOLVED
from legacy_queue.services.events.event_buffer import BufferedEvent

RECENT = timedelta(hours=1)
_YIELD_AFTER = 1000  # events
_STATES = {f"task-{state}": state for state in (*UNRESOLVED, *RESOLVED)} | {"task-defined": "unscheduled"}


@dataclass(frozen=True)
class LostClaim:
    """A claim that expired, so that its worker has probably died."""

    time: datetime
    task_id: str
    task_queue_id: str
    worker: str  # workerGroup/workerId


@dataclass(frozen=True)
class RecentEvents:
    """``since`` is when the first event in memory was published, or an hour ago if that is later; None if
    there is no event.

    ``resolved`` counts the tasks that were resolved since then, by state. ``lost_claims`` are the claims that
    expired since then, the last first. ``stopped`` has the task groups that cannot go on, with their tasks by
    state: a task failed, others are unscheduled, and none is pending or running.
    """

    since: datetime | None
    resolved: Mapping[str, int]
    lost_claims: Sequence[LostClaim]
    stopped: Mapping[str, Mapping[str, int]]


def recent_events(events: Sequence[BufferedEvent], now: datetime) -> RecentEvents:
    """What became of the tasks that the events are about."""
    since = max(events[0].time, now - RECENT) if events else now
    last: dict[str, BufferedEvent] = {}  # by taskId
    lost: dict[tuple[str, int], LostClaim] = {}  # by run: of today's shape, two events say so
    for event in yielding(events, _YIELD_AFTER):
        if event.exchange in _STATES:
            last[event.routing_key.split(".", 2)[1]] = event
        if event.exchange in ("task-pending", "task-exception") and event.time >= since:
            lost |= _lost_claim(event)
    groups: dict[str, Counter[str]] = {}
    for event in last.values():
        groups.setdefault(event.routing_key.split(".")[8], Counter())[_STATES[event.exchange]] += 1
    resolved = Counter(_STATES[event.exchange] for event in last.values() if event.time >= since)
    return RecentEvents(
        since if events else None,
        {state: resolved[state] for state in RESOLVED},
        [*lost.values()][::-1],
        {group: states for group, states in groups.items() if _has_stopped(states)},
    )


def _lost_claim(event: BufferedEvent) -> Iterator[tuple[tuple[str, int], LostClaim]]:
    """The claim whose end the event shows: a final exception, or the run that retries."""
    words = event.routing_key.split(".")
    run_id = int(words[2]) - (event.exchange == "task-pending")
    if run_id < 0:
        return
    ended = json.loads(event.payload)["status"]["runs"][run_id]
    if ended.get("reasonResolved") == "claim-expired":
        worker = f"{ended['workerGroup']}/{ended['workerId']}"
        yield (words[1], run_id), LostClaim(event.time, words[1], "/".join(words[5:7]), worker)


def _has_stopped(states: Mapping[str, int]) -> bool:
    has_failed = states["failed"] or states["exception"]
    return bool(has_failed and states["unscheduled"] and not states["pending"] and not states["running"])
