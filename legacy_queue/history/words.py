"""What happened to a task, and the requests of the journal, as sentences.

The pages, the commands, the reports and the test kit all take their words from here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from legacy_queue.domain.times import age_words, parse_time

_OF_A_CLAIM = re.compile(r"task-client/.*/on/(.*)/until/\d+")  # the client of temporary credentials
_FIRST, _LAST = 20, 100  # entries of a long history that are shown
_MESSAGE = {
    "visible": "its message is visible",
    "hidden": "its message is hidden",
    "held": "the claim hides its message",
    "gone": "its message is gone",
}


def shortened(story: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The first and the last entries of a long history. An entry between them says how many are left out."""
    others = story[_FIRST:-_LAST]
    if len(others) < 2:
        return story
    gap = {"time": others[0]["time"], "what": f"{len(others)} entries are not shown", "kind": "gap"}
    return [*story[:_FIRST], gap, *story[-_LAST:]]


def moment_words(moment: Mapping[str, Any]) -> str:
    """The sentence for an entry of inspectTask's ``story``. It also says when the claim ends, and where the
    message is.
    """
    words: str = moment["what"]
    if "endpoint" in moment and "takenUntil" in moment:
        words += f", taken until {moment['takenUntil']}"
    if "message" in moment:
        words += f"; {_MESSAGE[moment['message']]}"
        words += f" until {moment['hiddenUntil']}" if "hiddenUntil" in moment else ""
    return words


def request_words(request: Mapping[str, Any]) -> str:
    """``claimTask of run 0 by <workerGroup>/<workerId>: 409 RequestConflict, <reason>``, from an entry of the
    journal.
    """
    run = f" of run {request['runId']}" if "runId" in request else ""
    by = requester(request)
    reason = request.get("reason", "")
    # if a fault gave the answer, its reason names the fault already
    fault = f" (fault {request['fault']})" if request.get("fault", "") not in reason else ""
    words = [str(request["status"] or "no answer"), request.get("code")]
    answer = " ".join(filter(None, words)) + (f", {reason}" if reason else "") + fault
    return f"{request.get('endpoint') or request['method'] + ' ' + request['path']}{run}" + (
        f" by {by}: {answer}" if by else f": {answer}"
    )


def printable(text: str) -> str:
    """The text without characters that a terminal would act on."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def requester(request: Mapping[str, Any]) -> str:
    """The worker that sent the request, as ``<workerGroup>/<workerId>``; else its clientId; else ""."""
    if "workerId" in request:
        return f"{request.get('workerGroup')}/{request['workerId']}"
    return _OF_A_CLAIM.sub(r"\1", request.get("clientId", ""))


def explanation_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """The answer of inspectTask as lines: the status, what the task waits for, and what happened to it.

    Published events are left out. Lines that differ only in a time are one line, with their number.
    """
    yield task_line(answer["status"])
    if "name" in answer:  # a server of 0.1.0 does not have it
        age = parse_time(answer["now"]) - parse_time(answer["created"])
        created = f"{age_words(max(0.0, age.total_seconds()))} ago"
        yield f'  The task "{printable(answer["name"])}" was created {created}.'
    yield from (f"  {wait['sentence']}" for wait in answer["waitsFor"])
    moments = (moment for moment in answer["story"] if moment["kind"] != "event")
    for _, group in groupby(moments, itemgetter("what")):
        same = list(group)
        times = f" ({len(same)} times)" * (len(same) > 1)
        yield f"  {same[0]['time'][:-1].replace('T', ' ')} {moment_words(same[-1])}{times}"


def task_line(status: Mapping[str, Any]) -> str:
    """``<taskId> <pool> pending: run 0 exception (claim-expired) by g/w, run 1 pending``"""
    runs = ", ".join(map(_run_words, status["runs"])) or "no run"
    return f"{status['taskId']} {status['provisionerId']}/{status['workerType']} {status['state']}: {runs}"


def state_words(status: Mapping[str, Any]) -> str:
    """The state of a task or of a run, with its reason if that is another word: ``exception (canceled)``."""
    last = [status, *status.get("runs", ())][-1]
    reason = last.get("reasonResolved", last["state"])
    return str(reason) if reason == last["state"] else f"{last['state']} ({reason})"


def _run_words(run: Mapping[str, Any]) -> str:
    words = f"run {run['runId']} {state_words(run)}"
    if "workerId" in run:
        words += f" by {run['workerGroup']}/{run['workerId']}"
    return words + (f" until {run['takenUntil']}" if run["state"] == "running" else "")
