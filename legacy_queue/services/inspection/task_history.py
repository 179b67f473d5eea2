"""Tells what happened to a task, in order, in sentences for a person.

They come from the row of the task, and from the requests, events and clock moves on record.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby, zip_longest
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from legacy_queue.domain.messages import DELETE, RECEIVE
from legacy_queue.domain.task import Run, Task
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.history.words import request_words

# the calls that cause each change of a task
_DEFINE = ("createTask", "defineTask")
_MAKE_PENDING = {"scheduled": ("createTask", "scheduleTask"), "rerun": ("rerunTask",)}  # by reasonCreated
_CLAIM = ("claimTask", "claimWork")
_RESOLVE = ("reportCompleted", "reportFailed", "reportException", "cancelTask")
_CHANGE_PRIORITY = ("changeTaskPriority",)
_HIDDEN_FOR = re.compile(r"visibilitytimeout=(\d{1,7})")  # in the URL of a poll
_DEFAULT_HIDDEN_FOR = 30  # seconds. Source: Azure's Get Messages


class Moment(NamedTuple):
    """Something that happened: an entry in the history of a task."""

    # as in JSON
    time: str
    # a sentence for a person
    what: str
    # change (of the task), request, fault (a request that a fault happened to), event, or clock (a move)
    kind: str = "change"
    # further fields for programs, in the answer of inspectTask
    facts: Mapping[str, Any] = MappingProxyType({})
    # the calls that can have caused a change
    causes: Sequence[str] = ()

    def to_wire(self) -> Mapping[str, Any]:
        return {"time": self.time, "what": self.what, "kind": self.kind, **self.facts}


def task_history(
    task: Task,
    requests: Iterable[Mapping[str, Any]] = (),
    events: Iterable[Moment] = (),
    clock_moves: Sequence[Moment] = (),
    *,
    sees_polls: bool = True,
) -> list[Moment]:
    """Returns what happened to the task, the oldest first.

    ``requests`` are the journal's requests about this task, in its order and by the same clock.
    ``clock_moves`` are left out if they were before the task was created or after it was resolved. If the
    journal does not have the polls (``sees_polls``), nobody can know whether a message is visible, and the
    history does not say so.

    Several equal entries in a row become one, with their number.
    """
    asked = (_moment_of(request, task) for request in requests)
    moments = [*asked, *_moments(task, sees_polls=sees_polls), *events]
    begin, end = min(moment.time for moment in moments), max(moment.time for moment in moments)
    end = end if task.is_resolved else "9"  # later than any time
    moments += [move for move in clock_moves if begin <= move.time <= end and begin < move.facts["movedTo"]]
    moments.sort(key=attrgetter("time"))
    moments = [it for _, at_once in groupby(moments, attrgetter("time")) for it in _in_order([*at_once])]
    # A claim and its reclaims stay separate: they differ in takenUntil. Clock moves in a row become one.
    same = groupby(moments, lambda moment: (moment.what, moment.kind != "clock" and moment.facts))
    return [
        last._replace(time=group[0].time, what=last.what + f" ({len(group)} times)" * (len(group) > 1))
        for group in [list(group) for _, group in same]
        for last in group[-1:]
    ]


def _in_order(moments: Sequence[Moment]) -> Sequence[Moment]:
    """Puts entries with the same time in order. Under a frozen clock, all entries have the same time.

    The requests stay in the order of their answers. Each change follows the request that caused it, or if
    there is none, the change before it.
    """
    if len(moments) == 1:
        return moments
    requests = [it for it in moments if it.kind in ("request", "fault")]
    placed = [(number, it) for number, it in enumerate(requests, 1)]
    changes = [it for it in moments if it.kind == "change"]
    of_runs = [it for it in changes if it.causes != _CHANGE_PRIORITY]
    # one createTask defines a task and makes it pending; each change of a priority has its own request
    for chain, again in (of_runs, 1), ([it for it in changes if it not in of_runs], 0):
        behind = 0  # how many requests the change comes after
        for change in chain:
            left = range(max(behind - again, 0), len(requests))
            behind = next((number + 1 for number in left if _has_made(requests[number], change)), behind)
            placed.append((behind, change))
    placed.sort(key=itemgetter(0))
    moves = [it for it in moments if it.kind == "clock"]
    freezes = [it for it in moves if it.facts["movedTo"] == it.time and it.facts["frozen"]]
    return [
        *freezes,
        *(it for _, it in placed),
        *(it for it in moments if it.kind == "event"),
        *(it for it in moves if it not in freezes),
    ]


def _has_made(request: Moment, change: Moment) -> bool:
    called, run_id = request.facts, request.facts.get("runId")
    is_of_run = run_id is None or run_id == change.facts.get("runId")
    return called.get("endpoint") in change.causes and called["status"] < 400 and is_of_run


def _moment_of(request: Mapping[str, Any], task: Task) -> Moment:
    """The entry for a request, which may be about other tasks too. Messages of earlier runs are ignored."""
    time = parse_time(request["time"])
    run_id = max((run.run_id for run in task.runs if run.scheduled <= time), default=0)
    facts = {name: request[name] for name in ("endpoint", "status", "runId") if name in request}
    for claim in request.get("claims", ()):
        if claim["taskId"] == task.task_id:
            facts |= {"runId": claim["runId"], "takenUntil": claim["takenUntil"]}
    messages = [it for it in request.get("messages", ()) if it.get("taskId") == task.task_id]
    received = any(it["runId"] == run_id for it in messages)
    held = [run for run in task.runs if run.is_claimed(time)]
    # if a claim holds the message, the worker has received a duplicate of it
    if received and not any(run.started != time for run in held):
        found = _HIDDEN_FOR.search(request["path"])
        until = format_time(time + timedelta(seconds=int(found[1]) if found else _DEFAULT_HIDDEN_FOR))
        facts |= {"runId": run_id, "message": "hidden", "hiddenUntil": until}
    elif (
        not (messages or held)
        and request.get("runId", run_id) == run_id
        and (request.get("endpoint"), request["status"]) in ((DELETE, 204), (RECEIVE, 200))
    ):
        facts["message"] = "gone"  # a fault lost the message: it was received, but is not in the answer
    kind = "fault" if "fault" in request else "request"
    # storage had hidden or deleted the message by the time of the answer
    at = request["time" if "message" in facts else "begun"]
    return Moment(at, request_words(request), kind, facts)


def _moments(task: Task, *, sees_polls: bool) -> Iterator[Moment]:
    visible = {"message": "visible"} if sees_polls else {}
    wire = task.definition.wire
    pool = f"{wire['provisionerId']}/{wire['workerType']}"
    what = f"defined for {pool}, with priority {wire['priority']}"
    # the clock of the client that created the task may be ahead
    created = min([task.definition.created, *(run.scheduled for run in task.runs)])
    yield Moment(format_time(created), what, facts={"priority": wire["priority"]}, causes=_DEFINE)
    for change in task.priority_changes:
        what = f"priority changed from {change.old} to {change.new}"
        # a pending run gets a new message, in the queue of the new priority
        moves = any(run.is_pending(change.changed) for run in task.runs)
        facts = {"priority": change.new, **(visible if moves else {})}
        yield Moment(format_time(change.changed), what, facts=facts, causes=_CHANGE_PRIORITY)
    for run, after in zip_longest(task.runs, task.runs[1:]):
        yield from _moments_of(run, visible, is_retried=after is not None and after.is_retry)


def _moments_of(run: Run, visible: Mapping[str, str], *, is_retried: bool) -> Iterator[Moment]:
    def moment(time: datetime, what: str, state: str, causes: Sequence[str], **facts: Any) -> Moment:
        facts = {"runId": run.run_id, "state": state, **facts}
        return Moment(format_time(time), what, facts=facts, causes=causes)

    name = f"run {run.run_id}"
    if run.reason_created != "exception":  # such a run was never pending: it only says why the task ended
        what = f"{name} is pending ({run.reason_created})"
        causes = _MAKE_PENDING.get(run.reason_created, ())
        yield moment(run.scheduled, what, "pending", causes, **visible)
    if run.started and run.worker:
        by = f"{run.worker.worker_group}/{run.worker.worker_id}"
        until = {"takenUntil": format_time(run.taken_until)} if run.taken_until else {}
        words = f", last taken until {until['takenUntil']}" if until else ""
        what = f"{name} is running: claimed by {by}{words}"
        yield moment(run.started, what, "running", _CLAIM, message="held", **until)
    if run.resolved:
        # If no claim holds the message, it stays when the task is resolved: a poll finds it, or it expires.
        gone = {"message": "gone"} if run.started and not is_retried else {}
        yield moment(run.resolved, run.summary, run.state, _RESOLVE, **gone)
