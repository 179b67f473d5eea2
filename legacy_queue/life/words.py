"""The moments of a task's story and the requests of the journal, as sentences."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_OF_A_CLAIM = re.compile(r"task-client/.*/on/(.*)/until/\d+")  # the client of temporary credentials
_FIRST, _LAST = 20, 130  # moments of a long story that are shown


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
