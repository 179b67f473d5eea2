"""What happened to a task, in order: sentences for a person, from its row and from recorded requests."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from legacy_queue.domain.task import Run, Task
from legacy_queue.domain.times import format_time, parse_time

_OF_A_CLAIM = re.compile(r"task-client/.*/on/(.*)/until/\d+")  # the client of temporary credentials


class Moment(NamedTuple):
    """Something that happened at ``time``, which is text."""

    time: str
    what: str

    def to_wire(self) -> Mapping[str, str]:
        return self._asdict()


def story(task: Task, requests: Iterable[Mapping[str, Any]] = ()) -> list[Moment]:
    """The life of the task. ``requests`` are those of it in the journal, which have the same clock; each has
    the time of its begin.

    Equal requests in a row are one moment, with their number.
    """
    # a request comes before what it has changed
    asked = [Moment(_begin(request), request_words(request)) for request in requests]
    moments = sorted([*asked, *_moments(task)], key=attrgetter("time"))
    same = [list(moments) for _, moments in groupby(moments, lambda moment: moment.what)]
    return [
        Moment(first.time, first.what + f" ({len(more) + 1} times)" * bool(more)) for first, *more in same
    ]


def _begin(request: Mapping[str, Any]) -> str:
    return format_time(parse_time(request["time"]) - timedelta(milliseconds=request["ms"]))


def _moments(task: Task) -> Iterator[Moment]:
    wire = task.definition.wire
    pool = f"{wire['provisionerId']}/{wire['workerType']}"
    what = f"defined for {pool}, with priority {wire['priority']}"
    yield Moment(format_time(task.definition.created), what)
    for change in task.priority_changes:
        yield Moment(format_time(change.changed), f"priority changed from {change.old} to {change.new}")
    for run in task.runs:
        yield from _moments_of(run)


def _moments_of(run: Run) -> Iterator[Moment]:
    name = f"run {run.run_id}"
    if run.reason_created != "exception":  # else it was never pending: it only says why the task ended
        yield Moment(format_time(run.scheduled), f"{name} is pending ({run.reason_created})")
    if run.started and run.worker:
        by = f"{run.worker.worker_group}/{run.worker.worker_id}"
        until = f", taken until {format_time(run.taken_until)}" if run.taken_until else ""
        yield Moment(format_time(run.started), f"{name} is running: claimed by {by}{until}")
    if run.resolved:
        yield Moment(format_time(run.resolved), run.summary)


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
