"""What happened to a task, in order: sentences for a person, from its row and from what was recorded."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import groupby, zip_longest
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from legacy_queue.domain.fault import DELETE, RECEIVE
from legacy_queue.domain.task import Run, Task
from legacy_queue.domain.times import format_time, parse_time

_OF_A_CLAIM = re.compile(r"task-client/.*/on/(.*)/until/\d+")  # the client of temporary credentials
_HIDDEN_FOR = re.compile(r"visibilitytimeout=(\d{1,7})")  # of a poll
_DEFAULT_HIDDEN_FOR = 30  # seconds. Source: Azure's Get Messages


class Moment(NamedTuple):
    """Something that happened at ``time``, which is text.

    ``kind`` is change (of the task), request, fault (that a request has met), event, or clock (a move of it).
    ``facts`` are fields for a program: docs/reference/inspect.md#the-story.
    """

    time: str
    what: str
    kind: str = "change"
    facts: Mapping[str, Any] = MappingProxyType({})

    def to_wire(self) -> Mapping[str, Any]:
        return {"time": self.time, "what": self.what, "kind": self.kind, **self.facts}


def story(
    task: Task,
    requests: Iterable[Mapping[str, Any]] = (),
    events: Iterable[Moment] = (),
    clock_moves: Iterable[Moment] = (),
) -> list[Moment]:
    """The life of the task. ``requests`` are those of it in the journal, which have the same clock; each has
    the time of its begin. ``clock_moves`` before and after its life are left out.

    Equal moments in a row are one moment, with their number.
    """
    # a request comes before what it has changed
    asked = [_moment_of(request, task) for request in requests]
    moments = sorted([*asked, *_moments(task), *events], key=attrgetter("time"))
    begin = format_time(task.definition.created)
    end = moments[-1].time if task.is_resolved else "9"  # later than any time
    moments += [move for move in clock_moves if begin <= move.time <= end and begin < move.facts["movedTo"]]
    moments.sort(key=attrgetter("time"))
    # a claim and its reclaims differ in their ends; moves of the clock in a row are one
    same = groupby(moments, lambda moment: (moment.what, moment.kind != "clock" and moment.facts))
    return [
        last._replace(time=group[0].time, what=last.what + f" ({len(group)} times)" * (len(group) > 1))
        for group in [list(group) for _, group in same]
        for last in group[-1:]
    ]


def _moment_of(request: Mapping[str, Any], task: Task) -> Moment:
    """A request, which may be about other tasks too."""
    time = parse_time(request["time"])
    begin = time - timedelta(milliseconds=request["ms"])
    facts = {name: request[name] for name in ("endpoint", "status", "runId") if name in request}
    for claim in request.get("claims", ()):
        if claim["taskId"] == task.task_id:
            facts |= {"runId": claim["runId"], "takenUntil": claim["takenUntil"]}
    received = [each for each in request.get("messages", ()) if each.get("taskId") == task.task_id]
    if any(run.is_claimed(begin) and run.is_claimed(time) for run in task.runs):
        pass  # all the time: a duplicate of the message that the claim holds
    elif received:
        found = _HIDDEN_FOR.search(request["path"])
        until = format_time(time + timedelta(seconds=int(found[1]) if found else _DEFAULT_HIDDEN_FOR))
        facts |= {"runId": received[0]["runId"], "message": "hidden", "hiddenUntil": until}
    elif (request.get("endpoint"), request["status"]) in ((DELETE, 204), (RECEIVE, 200)):
        facts["message"] = "gone"  # a fault has lost what is received and not there
    kind = "fault" if "fault" in request else "request"
    return Moment(format_time(begin), request_words(request), kind, facts)


def _moments(task: Task) -> Iterator[Moment]:
    wire = task.definition.wire
    pool = f"{wire['provisionerId']}/{wire['workerType']}"
    what = f"defined for {pool}, with priority {wire['priority']}"
    yield Moment(format_time(task.definition.created), what, facts={"priority": wire["priority"]})
    for change in task.priority_changes:
        what = f"priority changed from {change.old} to {change.new}"
        yield Moment(format_time(change.changed), what, facts={"priority": change.new})
    for run, after in zip_longest(task.runs, task.runs[1:]):
        yield from _moments_of(run, is_retried=after is not None and after.is_retry)


def _moments_of(run: Run, *, is_retried: bool) -> Iterator[Moment]:
    def moment(time: datetime, what: str, state: str, **facts: Any) -> Moment:
        return Moment(format_time(time), what, facts={"runId": run.run_id, "state": state, **facts})

    name = f"run {run.run_id}"
    if run.reason_created != "exception":  # else it was never pending: it only says why the task ended
        what = f"{name} is pending ({run.reason_created})"
        yield moment(run.scheduled, what, "pending", message="visible")
    if run.started and run.worker:
        by = f"{run.worker.worker_group}/{run.worker.worker_id}"
        until = {"takenUntil": format_time(run.taken_until)} if run.taken_until else {}
        words = f", taken until {until['takenUntil']}" if until else ""
        yield moment(
            run.started, f"{name} is running: claimed by {by}{words}", "running", message="held", **until
        )
    if run.resolved:
        # a message that no claim holds is not deleted with its task: a poll finds it, or it expires
        gone = {"message": "gone"} if run.started and not is_retried else {}
        yield moment(run.resolved, run.summary, run.state, **gone)


def request_words(request: Mapping[str, Any]) -> str:
    """``claimTask of run 0 by <workerGroup>/<workerId>: 409 RequestConflict, <reason>``, of an entry of the
    journal.
    """
    run = f" of run {request['runId']}" if "runId" in request else ""
    by = requester(request)
    reason = request.get("reason", "")
    # the reason of a fault's answer names the fault
    fault = f" (fault {request['fault']})" if request.get("fault", "") not in reason else ""
    words = [str(request["status"] or "no answer"), request.get("code")]
    answer = " ".join(filter(None, words)) + (f", {reason}" if reason else "") + fault
    return f"{request.get('endpoint') or request['method'] + ' ' + request['path']}{run}" + (
        f" by {by}: {answer}" if by else f": {answer}"
    )


def requester(request: Mapping[str, Any]) -> str:
    """The sender of a request: ``<workerGroup>/<workerId>`` if it has one, else the clientId or ""."""
    if "workerId" in request:
        return f"{request.get('workerGroup')}/{request['workerId']}"
    return _OF_A_CLAIM.sub(r"\1", request.get("clientId", ""))
