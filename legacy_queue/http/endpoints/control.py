"""``/control/v1``: how a test controls a server: clock, faults, requests and reset.

Source: docs/reference/control.md.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from legacy_queue.domain.errors import ResourceNotFound
from legacy_queue.domain.priority import PRIORITIES, WorkQueue
from legacy_queue.domain.times import format_time, given, parse_duration
from legacy_queue.http.endpoint import Call, Reply, endpoint
from legacy_queue.http.request_journal import SELECTORS
from legacy_queue.http.site import Control, Site
from legacy_queue.services.control.clock_control import ClockState

SCOPE = "queue:control"
DISABLED = "tests can control this server only when it is started with --control"
_REQUESTS = 100  # by default


def _disabled(site: Site) -> str:
    return "" if site.control else DISABLED


control_endpoint = partial(
    endpoint, scopes=SCOPE, service="control", has_prefix=False, is_recorded=False, disabled=_disabled
)


def _control(call: Call) -> Control:
    control = call.authorize().control
    if control is None:
        raise ResourceNotFound(DISABLED)
    return control


@control_endpoint("GET", "/control/v1/clock", "Get Clock", output="control-clock")
def control_clock(call: Call) -> Reply:
    """The queue's time, how many seconds it is ahead of the real time, and whether it stands still.

    If the clock cannot be moved, ``reason`` says why.
    """
    return clock_answer(_control(call).clock.state())


@control_endpoint(
    "POST", "/control/v1/clock", "Move Clock", input="move-clock-request", output="control-clock"
)
def move_clock(call: Call) -> Reply:
    """Let time pass (``advance``), stop it (``freeze``), or let it run again from there (``release``).

    ``advance`` lets everything that becomes due in that time happen in its order before it answers, events
    included; then waiting requests of claimWork look for work. Signatures, credentials and signed URLs keep
    the real time. 409 if the clock cannot be moved: it can with ``--storage embedded`` and
    ``memory``.
    """
    clock = _control(call).clock
    match call.body:
        case {"advance": _}:
            clock.advance(given(call.body, "advance", parse_duration))
        case {"freeze": _}:
            clock.freeze()
        case _:
            clock.release()
    return clock_answer(clock.state())


@control_endpoint("GET", "/control/v1/reset", "Get Reset", output="control-reset")
def get_reset(call: Call) -> Reply:
    """Whether a reset removes what would otherwise stay after the program."""
    return {"kept": _control(call).is_kept}


@control_endpoint("POST", "/control/v1/reset", "Reset", output="control-empty")
def control_reset(call: Call) -> Reply:
    """Remove all tasks, messages, events, artifacts, workers, faults and recorded requests, and set the clock
    to the real time. Waiting requests of claimWork and event streams end.

    On Azurite only the data under this server's queue-prefix is removed. 409 on Azure.
    """
    _control(call).reset()
    return {}


def clock_answer(state: ClockState) -> Mapping[str, Any]:
    """The answer of controlClock."""
    return {
        "now": format_time(state.now),
        "offset": state.offset.total_seconds(),
        "frozen": state.is_frozen,
        "movable": not state.reason,
        **({"reason": state.reason} if state.reason else {}),
    }


@control_endpoint("GET", "/control/v1/faults", "List Faults", output="control-faults")
def list_faults(call: Call) -> Reply:
    """The faults in force, the oldest first, and how often each has happened."""
    return {"faults": call.authorize().faults.list()}


@control_endpoint(
    "POST", "/control/v1/faults", "Add Fault", input="control-new-fault", output="control-fault"
)
def add_fault(call: Call) -> Reply:
    """Let something happen to requests: an error, a delay, or a connection closed without an answer.

    ``taskId`` and ``worker`` (``<workerGroup>/<workerId>``) select requests, and so does a ``probability``:
    the same ``seed`` selects the same requests in each run. If several faults match a request, the oldest
    happens, until its ``times`` are used up.

    After the ``delay``, at most ``10m``, one of these happens. With ``status``, 400 to 599, the answer is
    this error with the ``message``, and the request is not handled. With ``drop`` the connection is closed
    without an answer, ``before`` the request is handled or ``after``. With ``sas`` the signed URLs in the
    answer of pollTaskUrls are ``expired``, or expire after a duration. Of azure.receive: ``double`` puts a
    copy of the message behind the others in its queue; ``lose`` deletes the message instead of delivering
    it; ``stale`` delivers it with a receipt that is no longer good.

    A request that the server refuses by itself is not counted. ``double``, ``lose``, ``stale`` and the
    ``drop`` ``after`` of azure.receive wait for a request that receives a message. Other faults of it happen
    to any poll, and take no ``taskId``.
    """
    return call.authorize().faults.add(call.body)


@control_endpoint("DELETE", "/control/v1/faults/<faultId>", "Remove Fault", output="control-fault")
def remove_fault(call: Call) -> Reply:
    """End a fault; the answer says how often it happened."""
    return call.authorize().faults.remove(call.params["faultId"])


@control_endpoint(
    "GET",
    "/control/v1/requests",
    "List Requests",
    query=("after", "limit", *SELECTORS),
    output="control-requests",
)
def list_requests(call: Call) -> Reply:
    """The last requests that the server answered, oldest first, 100 by default. With ``after``, the first
    requests after that sequence number. The last 10,000 are kept, except those to /control/v1, /inspect/v1
    and /events. A request that got no answer has the status 0. ``now`` is the queue's time, and so are
    ``begun`` and ``time``, when a request came and when its answer was sent; ``ms`` is real time.

    ``taskId``, ``endpoint`` and ``taskQueueId`` select requests, and ``failed`` those with a status of 400 or
    more, or with no answer.
    """
    site = call.authorize()
    chosen = {name: call.query[name] for name in SELECTORS if name in call.query}
    after = int(call.query["after"]) if "after" in call.query else None
    requests = site.journal.requests(int(call.query.get("limit", _REQUESTS)), after, chosen)
    return {"now": format_time(site.services.clock.now()), "requests": requests}


@control_endpoint(
    "POST",
    "/control/v1/messages/<provisionerId>/<workerType>",
    "Put Message",
    input="control-new-message",
    output="control-message",
)
def put_message(call: Call) -> Reply:
    """Put a message that should not be there in a queue of a pool, visible at once, for an hour.

    ``poisoned`` is no message of a task, ``forged`` is signed with another secret, ``foreign`` is of a task
    of another pool, and ``doubled`` is a second message of a task's last run. ``priority`` is
    ``lowest`` by default.
    """
    messages = _control(call).messages
    queue = WorkQueue(*call.pool, call.body.get("priority", PRIORITIES[-1]))
    return {"messageId": messages.put(call.body["kind"], queue, call.body.get("taskId"))}
