"""What happened to a task, in order: sentences for a person, from its row and from what was recorded."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby, zip_longest
from types import MappingProxyType
from typing import Any, NamedTuple

from legacy_queue.domain.fault import DELETE, RECEIVE
from legacy_queue.domain.ids import MAX_RUNS
from legacy_queue.domain.task import Run, Task
from legacy_queue.domain.times import format_time, parse_time

_OF_A_CLAIM = re.compile(r"task-client/.*/on/(.*)/until/\d+")  # the client of temporary credentials
_FIRST, _LAST = 20, 130  # moments of a long story that are shown
# of moments at the same time
_ORDER = (
    *("createTask", "defineTask", "defined", "scheduleTask", "rerunTask", "pending", RECEIVE, "claimTask"),
    *("claimWork", "running", DELETE, "reclaimTask", "cancelTask", "reportCompleted", "reportFailed"),
    *("reportException", "completed", "failed", "exception"),
)
_HIDDEN_FOR = re.compile(r"visibilitytimeout=(\d{1,7})")  # of a poll
_DEFAULT_HIDDEN_FOR = 30  # seconds. Source: Azure's Get Messages


class Moment(NamedTuple):
    """Something that happened at ``time``, which is text.

    ``kind`` is change (of the task), request, fault (that a request has met), event, or clock (a move of it).
    ``facts`` are fields for a program: the answer of inspectTask.
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
    clock_moves: Sequence[Moment] = (),
    *,
    sees_polls: bool = True,
) -> list[Moment]:
    """The life of the task. ``requests`` are those of it in the journal, which have the same clock.
    ``clock_moves`` before and after its life are left out. Unless the journal
    ``sees_polls``, a message in a queue may be visible or hidden: it is not said.

    Equal moments in a row are one moment, with their number.
    """
    asked = (_moment_of(request, task) for request in requests)
    moments = [*asked, *_moments(task, sees_polls=sees_polls), *events]
    begin, end = min(moment.time for moment in moments), max(moment.time for moment in moments)
    end = end if task.is_resolved else "9"  # later than any time
    moments += [move for move in clock_moves if begin <= move.time <= end and begin < move.facts["movedTo"]]
    moments.sort(key=lambda moment: (moment.time, *_rank(moment)))
    # a claim and its reclaims differ in their ends; moves of the clock in a row are one
    same = groupby(moments, lambda moment: (moment.what, moment.kind != "clock" and moment.facts))
    return [
        last._replace(time=group[0].time, what=last.what + f" ({len(group)} times)" * (len(group) > 1))
        for group in [list(group) for _, group in same]
        for last in group[-1:]
    ]


def shortened(story: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The first and the last moments of a long story, and in place of the others how many these are."""
    others = story[_FIRST:-_LAST]
    if len(others) < 2:
        return story
    gap = {"time": others[0]["time"], "what": f"{len(others)} moments are not shown", "kind": "gap"}
    return [*story[:_FIRST], gap, *story[-_LAST:]]


def moment_words(moment: Mapping[str, Any]) -> str:
    """A moment of inspectTask's story, with what it shows of the message and of the claim."""
    words: str = moment["what"]
    if "endpoint" in moment and "takenUntil" in moment:
        words += f", taken until {moment['takenUntil']}"
    if "message" in moment:
        until = f" until {moment['hiddenUntil']}" if "hiddenUntil" in moment else ""
        words += f"; its message is {moment['message']}{until}"
    return words


def _rank(moment: Moment) -> tuple[int, int]:
    """The order of moments at the same time: a request comes before what it has changed."""
    facts = moment.facts
    if moment.kind in ("event", "clock"):  # they have no run
        return (-1 if facts.get("movedTo") == moment.time else MAX_RUNS), len(facts)
    name = facts.get("endpoint") or facts.get("state") or moment.what.partition(" ")[0]
    return facts.get("runId", 0), _ORDER.index(name) if name in _ORDER else len(_ORDER)


def _moment_of(request: Mapping[str, Any], task: Task) -> Moment:
    """A request, when it came. It may be about other tasks too; a message of an earlier run means nothing
    any more.
    """
    time = parse_time(request["time"])
    run_id = max((run.run_id for run in task.runs if run.scheduled <= time), default=0)
    facts = {name: request[name] for name in ("endpoint", "status", "runId") if name in request}
    for claim in request.get("claims", ()):
        if claim["taskId"] == task.task_id:
            facts |= {"runId": claim["runId"], "takenUntil": claim["takenUntil"]}
    messages = [it for it in request.get("messages", ()) if it.get("taskId") == task.task_id]
    received = any(it["runId"] == run_id for it in messages)
    held = [run for run in task.runs if run.is_claimed(time)]
    if received and not any(run.started != time for run in held):  # else it is a duplicate of the held one
        found = _HIDDEN_FOR.search(request["path"])
        until = format_time(time + timedelta(seconds=int(found[1]) if found else _DEFAULT_HIDDEN_FOR))
        facts |= {"runId": run_id, "message": "hidden", "hiddenUntil": until}
    elif (
        not (messages or held)
        and request.get("runId", run_id) == run_id
        and (request.get("endpoint"), request["status"]) in ((DELETE, 204), (RECEIVE, 200))
    ):
        facts["message"] = "gone"  # a fault has lost what is received and not there
    kind = "fault" if "fault" in request else "request"
    return Moment(request["begun"], request_words(request), kind, facts)


def _moments(task: Task, *, sees_polls: bool) -> Iterator[Moment]:
    visible = {"message": "visible"} if sees_polls else {}
    wire = task.definition.wire
    pool = f"{wire['provisionerId']}/{wire['workerType']}"
    what = f"defined for {pool}, with priority {wire['priority']}"
    # the clock of who created it may be ahead
    created = min([task.definition.created, *(run.scheduled for run in task.runs)])
    yield Moment(format_time(created), what, facts={"priority": wire["priority"]})
    for change in task.priority_changes:
        what = f"priority changed from {change.old} to {change.new}"
        # a pending run gets another message, in the queue of that priority
        moves = any(run.is_pending(change.changed) for run in task.runs)
        facts = {"priority": change.new, **(visible if moves else {})}
        yield Moment(format_time(change.changed), what, facts=facts)
    for run, after in zip_longest(task.runs, task.runs[1:]):
        yield from _moments_of(run, visible, is_retried=after is not None and after.is_retry)


def _moments_of(run: Run, visible: Mapping[str, str], *, is_retried: bool) -> Iterator[Moment]:
    def moment(time: datetime, what: str, state: str, **facts: Any) -> Moment:
        return Moment(format_time(time), what, facts={"runId": run.run_id, "state": state, **facts})

    name = f"run {run.run_id}"
    if run.reason_created != "exception":  # else it was never pending: it only says why the task ended
        what = f"{name} is pending ({run.reason_created})"
        yield moment(run.scheduled, what, "pending", **visible)
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
