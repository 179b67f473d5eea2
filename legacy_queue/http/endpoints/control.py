"""``/control/v1``: how a test controls a server: clock, faults, requests and reset.

Source: docs/reference/control.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from legacy_queue.domain.priority import PRIORITIES, WorkQueue
from legacy_queue.domain.times import format_time, given, parse_duration
from legacy_queue.http.endpoint import Call, Endpoint, Reply, endpoint
from legacy_queue.http.request_journal import SELECTORS, Journal
from legacy_queue.ports import Clock
from legacy_queue.services.control.clock_control import ClockControl, ClockState
from legacy_queue.services.control.fault_registry import FaultRegistry
from legacy_queue.services.control.message_injection import MessageInjection

SCOPE = "queue:control"
DISABLED = "tests can control this server only when it is started with --control"
_REQUESTS = 100  # by default


@dataclass(frozen=True)
class Reset:
    """``run`` returns once everything stored is removed; raises RequestConflict, ServiceUnavailable.

    ``is_kept``: what is stored stays after the program.
    """

    run: Callable[[], None]
    is_kept: bool


@dataclass(frozen=True)
class ControlServices:
    """What the endpoints of ``/control/v1`` may need, each by its type."""

    clock: ClockControl
    faults: FaultRegistry
    reset: Reset
    messages: MessageInjection


control_endpoint = partial(endpoint, scopes=SCOPE, service="control")


@control_endpoint("GET", "/control/v1/clock", "Get Clock", output="control-clock")
def control_clock(call: Call[ClockControl]) -> Reply:
    """The queue's time, how many seconds it is ahead of the real time, and whether it stands still.

    If the clock cannot be moved, ``reason`` says why.
    """
    return clock_answer(call.authorize().state())


@control_endpoint(
    "POST", "/control/v1/clock", "Move Clock", input="move-clock-request", output="control-clock"
)
def move_clock(call: Call[ClockControl]) -> Reply:
    """Let time pass (``advance``), stop it (``freeze``), or let it run again from there (``release``).

    ``advance`` lets everything that becomes due in that time happen in its order before it answers, events
    included; then waiting requests of claimWork look for work. Signatures, credentials and signed URLs keep
    the real time. 409 if the clock cannot be moved: it can with ``--storage embedded`` and
    ``memory``.
    """
    clock = call.authorize()
    match call.body:
        case {"advance": _}:
            clock.advance(given(call.body, "advance", parse_duration))
        case {"freeze": _}:
            clock.freeze()
        case _:
            clock.release()
    return clock_answer(clock.state())


@control_endpoint("GET", "/control/v1/reset", "Get Reset", output="control-reset")
def get_reset(call: Call[Reset]) -> Reply:
    """Whether a reset removes what would otherwise stay after the program."""
    return {"kept": call.authorize().is_kept}


@control_endpoint("POST", "/control/v1/reset", "Reset", output="control-empty")
def control_reset(call: Call[Reset]) -> Reply:
    """Remove all tasks, messages, events, artifacts, workers, faults and recorded requests, and set the clock
    to the real time. Waiting requests of claimWork and event streams end.

    On Azurite only the data under this server's queue-prefix is removed. 409 on Azure.
    """
    call.authorize().run()
    return {}


@control_endpoint(
    "POST",
    "/control/v1/messages/<provisionerId>/<workerType>",
    "Put Message",
    input="control-new-message",
    output="control-message",
)
def put_message(call: Call[MessageInjection]) -> Reply:
    """Put a message that should not be there in a queue of a pool, visible at once, for an hour.

    ``poisoned`` is no message of a task, ``forged`` is signed with another secret, ``foreign`` is of a task
    of another pool, and ``doubled`` is a second message of a task's last run. ``priority`` is
    ``lowest`` by default.
    """
    injection = call.authorize()
    pool = call.params["provisionerId"], call.params["workerType"]
    queue = WorkQueue(*pool, call.body.get("priority", PRIORITIES[-1]))
    return {"messageId": injection.put(call.body["kind"], queue, call.body.get("taskId"))}


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
def list_faults(call: Call[FaultRegistry]) -> Reply:
    """The faults in force, the oldest first, and how often each has happened."""
    return {"faults": call.authorize().list()}


@control_endpoint(
    "POST", "/control/v1/faults", "Add Fault", input="control-new-fault", output="control-fault"
)
def add_fault(call: Call[FaultRegistry]) -> Reply:
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
    return call.authorize().add(call.body)


@control_endpoint("DELETE", "/control/v1/faults/<faultId>", "Remove Fault", output="control-fault")
def remove_fault(call: Call[FaultRegistry]) -> Reply:
    """End a fault; the answer says how often it happened."""
    return call.authorize().remove(call.params["faultId"])


@control_endpoint(
    "GET",
    "/control/v1/requests",
    "List Requests",
    query=("after", "limit", *SELECTORS),
    output="control-requests",
)
def list_requests(call: Call[tuple[Journal, Clock]]) -> Reply:
    """The last requests that the server answered, oldest first, 100 by default. With ``after``, the first
    requests after that sequence number. The last 10,000 are kept, except those to /control/v1, /inspect/v1
    and /events. A request that got no answer has the status 0. ``now`` is the queue's time, and so are
    ``begun`` and ``time``, when a request came and when its answer was sent; ``ms`` is real time.

    ``taskId``, ``endpoint`` and ``taskQueueId`` select requests, and ``failed`` those with a status of 400 or
    more, or with no answer.
    """
    journal, clock = call.authorize()
    chosen = {name: call.query[name] for name in SELECTORS if name in call.query}
    after = int(call.query["after"]) if "after" in call.query else None
    requests = journal.requests(int(call.query.get("limit", _REQUESTS)), after, chosen)
    return {"now": format_time(clock.now()), "requests": requests}


CONTROL_ENDPOINTS = (
    control_clock,
    move_clock,
    get_reset,
    control_reset,
    list_faults,
    add_fault,
    remove_fault,
    list_requests,
    put_message,
)


def control_endpoints(is_enabled: bool) -> tuple[Endpoint, ...]:
    """The endpoints. If they are not enabled, they answer a 404 that says how to enable them."""
    if is_enabled:
        return CONTROL_ENDPOINTS
    return tuple(replace(endpoint, disabled=DISABLED) for endpoint in CONTROL_ENDPOINTS)
