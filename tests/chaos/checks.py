"""Promises that must be kept after the load, and contradictions: pure functions of a record and of statuses.

``statuses`` holds the final status structure of each task that exists.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from .record import RETRIES, Claim, Event, Json, Record

_RESOLVED = ("completed", "failed", "exception")
_IN_A_RUN = {"task-defined": 0, "task-pending": 0, "task-running": 1}  # 2: its end
_CLOCK = 0.002  # seconds: times on the wire are whole milliseconds

Statuses = Mapping[str, Json]


@dataclass(frozen=True)
class Promise:
    """Something that must happen: not before ``due``; it happened at ``kept``."""

    about: str
    what: str
    due: float
    kept: float | None


@dataclass(frozen=True)
class Contradiction:
    """Something that must never be."""

    about: str
    what: str


def seconds(time: str) -> float:
    """Since 1970, of a time on the wire."""
    return datetime.fromisoformat(time).timestamp()


def resolved_at(status: Json) -> float | None:
    """When the task was resolved; None if it is not."""
    return seconds(status["runs"][-1]["resolved"]) if status["state"] in _RESOLVED else None


def promises(record: Record, statuses: Statuses, since: float) -> Iterator[Promise]:
    """Every acknowledged task is resolved, every event arrives, and every group is resolved at last.

    ``since`` is the end of the load; a task may be resolved later.
    """
    arrivals: defaultdict[tuple[str, str, int | None], list[float]] = defaultdict(list)
    for event in list(record.events):
        arrivals[event.exchange, event.about, event.run_id].append(event.at)
    groups: defaultdict[str, list[float | None]] = defaultdict(list)
    for task_id, group in record.groups.items():
        status = statuses.get(task_id)
        at = resolved_at(status) if status else None
        yield Promise(task_id, "resolved" if status else "there", since, at)
        groups[group].append(at)
        for exchange, run_id, due in _events_of(status) if status else ():
            times = arrivals[exchange, task_id, run_id]
            name = exchange if run_id is None else f"{exchange} of run {run_id}"
            yield Promise(task_id, name, due, times[0] if times else None)
    for group, times_resolved in groups.items():
        ends = [at for at in times_resolved if at is not None]
        if len(ends) == len(times_resolved):  # a promise of its own covers a task that is not resolved
            due = max(ends)
            after = [at for at in arrivals["task-group-resolved", group, None] if at >= due]
            yield Promise(group, "task-group-resolved", due, after[0] if after else None)


def _events_of(status: Json) -> Iterator[tuple[str, int | None, float]]:
    """The events that the status implies, about which run, and since when."""
    runs = status["runs"]
    if runs:
        yield "task-defined", None, seconds(runs[0]["scheduled"])
    for run in runs:
        if run["reasonCreated"] != "exception":
            yield "task-pending", run["runId"], seconds(run["scheduled"])
        if "workerId" in run:
            yield "task-running", run["runId"], seconds(run["started"])
    if status["state"] in _RESOLVED:
        yield f"task-{status['state']}", runs[-1]["runId"], seconds(runs[-1]["resolved"])


def contradictions(record: Record, statuses: Statuses) -> Iterator[Contradiction]:
    """Wrong answers, runs held by two workers, events of what never happened, and a wrong order."""
    yield from (Contradiction(task_id, what) for task_id, what in list(record.refusals))
    yield from _wrong_resolutions(record, statuses)
    yield from _overlapping_claims(record, statuses)
    yield from _wrong_retries(statuses)
    yield from _wrong_events(record, statuses)
    yield from _wrong_order(record)


def _run(statuses: Statuses, task_id: str, run_id: int) -> Json:
    runs = statuses.get(task_id, {}).get("runs", [])
    return dict(runs[run_id]) if run_id < len(runs) else {"state": "not there"}


def _wrong_resolutions(record: Record, statuses: Statuses) -> Iterator[Contradiction]:
    for resolution in list(record.resolutions):
        run = _run(statuses, resolution.task_id, resolution.run_id)
        is_so = run["state"], run.get("reasonResolved"), run.get("workerId", "")
        answered = resolution.state, resolution.reason, resolution.worker_id
        if is_so != answered:
            yield Contradiction(
                resolution.task_id, f"run {resolution.run_id} was answered as {answered}, but is {is_so}"
            )


def _overlapping_claims(record: Record, statuses: Statuses) -> Iterator[Contradiction]:
    held: defaultdict[tuple[str, int], list[Claim]] = defaultdict(list)
    for claim in list(record.claims):
        held[claim.task_id, claim.run_id].append(claim)
    for (task_id, run_id), claims in held.items():
        workers = list(dict.fromkeys(claim.worker_id for claim in claims))
        run = _run(statuses, task_id, run_id)
        if len(workers) > 1:
            yield Contradiction(task_id, f"run {run_id} was given to {' and '.join(workers)}")
        elif run.get("workerId") != workers[0]:
            yield Contradiction(
                task_id, f"run {run_id} was given to {workers[0]}, but has {run.get('workerId')}"
            )
        until = max(claim.taken_until for claim in claims)
        if run.get("reasonResolved") == "claim-expired" and seconds(run["resolved"]) < until - _CLOCK:
            early = until - seconds(run["resolved"])
            yield Contradiction(task_id, f"the claim of run {run_id} expired {early:.3f} s too early")


def _wrong_retries(statuses: Statuses) -> Iterator[Contradiction]:
    for task_id, status in statuses.items():
        retries = sum(run["reasonCreated"] in ("retry", "task-retry") for run in status["runs"])
        if status["retriesLeft"] != RETRIES - retries:
            yield Contradiction(task_id, f"{status['retriesLeft']} of {RETRIES} retries left after {retries}")


def _wrong_events(record: Record, statuses: Statuses) -> Iterator[Contradiction]:
    for event in dict.fromkeys(_without_time(list(record.events))):
        status = statuses.get(event.about)
        if status and event.run_id is not None and not _is_so(event, status):
            yield Contradiction(
                event.about, f"{event.exchange} of run {event.run_id} {event.worker_id or ''} never was"
            )


def _without_time(events: Iterable[Event]) -> Iterator[Event]:
    return (Event(event.exchange, event.about, 0.0, event.run_id, event.worker_id) for event in events)


def _is_so(event: Event, status: Json) -> bool:
    run_id, runs = event.run_id or 0, status["runs"]
    if run_id >= len(runs):
        return False
    if event.exchange == "task-pending":
        return bool(runs[run_id]["reasonCreated"] != "exception")
    if event.worker_id != runs[run_id].get("workerId"):
        return False
    ended = run_id == len(runs) - 1 and event.exchange == f"task-{status['state']}"
    return ended or event.exchange == "task-running"


def _wrong_order(record: Record) -> Iterator[Contradiction]:
    """First arrivals of the events of a task are in the order of its life."""
    arrived: defaultdict[str, dict[tuple[int, int], Event]] = defaultdict(dict)
    for event in list(record.events):
        place = -1 if event.run_id is None else event.run_id, _IN_A_RUN.get(event.exchange, 2)
        earlier = arrived[event.about]
        if event.exchange != "task-group-resolved" and place not in earlier:
            if later := [one for at, one in earlier.items() if at > place]:
                what = f"{event.exchange} of run {event.run_id} came after {later[0].exchange}"
                yield Contradiction(event.about, f"{what} of run {later[0].run_id}")
            earlier[place] = event
