"""What happened to tasks in the last hour, from the events that this process has published and has in memory.

It reads nothing from storage, and does not know the events of other processes.
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
    """What the events of the last hour say."""

    # an hour ago, or the time of the first event in memory if that is later; None without an event
    since: datetime | None
    # how many tasks were resolved since then, by state
    resolved: Mapping[str, int]
    # claims that expired since then, the last one first
    lost_claims: Sequence[LostClaim]
    # the tasks by state of each group that cannot go on: one failed, others are unscheduled, none is open
    stopped: Mapping[str, Mapping[str, int]]
    # how many tasks are pending or running, if every task has an event in memory
    open_count: int


def recent_events(events: Sequence[BufferedEvent], now: datetime) -> RecentEvents:
    """Summarize the events, which are in the order in which they were published."""
    since = max(events[0].time, now - RECENT) if events else now
    last: dict[str, BufferedEvent] = {}  # by taskId
    lost: dict[tuple[str, int], LostClaim] = {}  # by run, because two events of today's shape show it
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
        sum(states["pending"] + states["running"] for states in groups.values()),
    )


def _lost_claim(event: BufferedEvent) -> Iterator[tuple[tuple[str, int], LostClaim]]:
    """The claim that expired before this event: a task-exception, or the task-pending of the retry."""
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
