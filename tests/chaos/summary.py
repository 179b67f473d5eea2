"""The record in figures, as lines of text."""

import json
import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from .checks import Promise, Statuses, seconds
from .record import Json, Record

_SHOWN = 20  # tasks whose history is shown


def figures(values: Iterable[float]) -> str:
    """Count, median, 99th percentile and maximum, in seconds."""
    ordered = sorted(values)
    if not ordered:
        return "none"
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    median = statistics.median(ordered)
    return f"{len(ordered):5}   median {median:6.2f} s   p99 {p99:6.2f} s   max {ordered[-1]:6.2f} s"


def ends(statuses: Statuses) -> Iterator[str]:
    """The ends of tasks and runs."""
    tasks: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    for status in statuses.values():
        last = status["runs"][-1] if status["runs"] else {}
        tasks[f"{status['state']} ({last.get('reasonResolved', '-')})"] += 1
        runs.update(run.get("reasonResolved", run["state"]) for run in status["runs"])
    no_retries = sum(
        status["runs"][-1].get("reasonResolved") in ("claim-expired", "worker-shutdown", "intermittent-task")
        for status in statuses.values()
        if status["runs"]
    )
    yield f"tasks: {_counted(tasks)}"
    yield f"runs: {_counted(runs)}"
    yield f"tasks that ended because no retries were left: {no_retries}"


def recovery(record: Record) -> Iterator[str]:
    """The time from each kind of kill to the first claim, event and answer of that server."""
    claims = [claim.at for claim in record.claims]
    events = [event.at for event in record.events]
    for kind in ("worker", "supervisor", "both"):
        kills = [kill for kill in record.kills if kill.what == kind]
        first = {
            "the first claim anywhere": [_next(claims, kill.at) for kill in kills],
            "the first event": [_next(events, kill.at) for kill in kills],
            "the first answer of that server": [_next(record.served[kill.server], kill.at) for kill in kills],
        }
        for name, delays in first.items():
            shown = figures(delay for delay in delays if delay is not None)
            yield f"  {kind + ' killed: ' + name:48} {shown}"


def _next(times: list[float], since: float) -> float | None:
    """Seconds until the next of these times, which threads recorded in any order."""
    times = sorted(times)
    place = bisect_right(times, since)
    return times[place] - since if place < len(times) else None


def event_delays(promises: Sequence[Promise]) -> Iterator[str]:
    """The delays of events."""
    for exchange in dict.fromkeys(promise.what.partition(" ")[0] for promise in promises):
        if exchange.startswith("task-"):
            late = [
                promise.kept - promise.due
                for promise in promises
                if promise.what.partition(" ")[0] == exchange and promise.kept is not None
            ]
            yield f"  {exchange:48} {figures(late)}"


def waits(statuses: Statuses) -> Iterator[str]:
    """How long runs were pending, and how late claims expired."""
    runs: list[Json] = [run for status in statuses.values() for run in status["runs"]]
    pending = [seconds(run["started"]) - seconds(run["scheduled"]) for run in runs if "started" in run]
    expired = [run for run in runs if run.get("reasonResolved") == "claim-expired"]
    yield f"  {'pending until claimed':48} {figures(pending)}"
    late = [seconds(run["resolved"]) - seconds(run["takenUntil"]) for run in expired]
    yield f"  {'takenUntil until claim-expired':48} {figures(late)}"


def answers(record: Record) -> Iterator[str]:
    """The answers by status; 0 is no answer."""
    for endpoint in sorted({endpoint for endpoint, _ in record.answers}):
        counts = {str(status): count for (name, status), count in record.answers.items() if name == endpoint}
        yield f"  {endpoint:16} {_counted(Counter(counts))}"


def logs(folder: Path) -> Iterator[str]:
    """The warnings and errors in the logs of the servers."""
    counts: Counter[str] = Counter()
    for log in folder.glob("server-*.log"):
        for line in log.read_text(errors="replace").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                counts["not JSON"] += 1
                continue
            if entry.get("level") in ("warning", "error", "critical"):
                counts[f"{entry['level']} {entry.get('event')}"] += 1
    return (f"  {count:6} {what}" for what, count in counts.most_common(_SHOWN))


def histories(abouts: Iterable[str], record: Record, statuses: Statuses, start: float) -> Iterator[str]:
    """The history of the first of these tasks or groups, in seconds after ``start``."""
    for about in list(dict.fromkeys(abouts))[:_SHOWN]:
        yield f"{about}, group {record.groups.get(about, '-')}"
        known = [
            (event.at, _event(event.exchange, event.run_id, event.worker_id))
            for event in record.events
            if event.about == about
        ]
        known += [
            (
                claim.at,
                f"answered: run {claim.run_id} of {claim.worker_id} until {claim.taken_until - start:.3f}",
            )
            for claim in record.claims
            if claim.task_id == about
        ]
        known += [
            (end.at, f"answered: run {end.run_id} {end.worker_id} is {end.state} ({end.reason})")
            for end in record.resolutions
            if end.task_id == about
        ]
        for run in statuses.get(about, {}).get("runs", []):
            known += [
                (seconds(run[name]), f"is so: run {run['runId']} {run.get('workerId', '')} {name} ({why})")
                for name, why in (
                    ("scheduled", run["reasonCreated"]),
                    ("started", f"until {_after(run.get('takenUntil'), start)}"),
                    ("resolved", run.get("reasonResolved")),
                )
                if name in run
            ]
        yield from (f"  {at - start:9.3f} s  {what}" for at, what in sorted(known))


def _event(exchange: str, run_id: int | None, worker_id: str | None) -> str:
    return f"event: {exchange} {'' if run_id is None else run_id} {worker_id or ''}"


def _after(time: str | None, start: float) -> str:
    return f"{datetime.fromisoformat(time).timestamp() - start:.3f}" if time else "-"


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.most_common())
