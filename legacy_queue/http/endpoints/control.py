"""``/control/v1``, with which a test controls a server: its clock, faults, requests and reset.

Source: docs/reference/control.md.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from legacy_queue.domain.errors import ResourceNotFound
from legacy_queue.domain.priority import PRIORITIES, WorkQueue
from legacy_queue.domain.times import format_time, parse_duration, parse_field
from legacy_queue.http.endpoint import Call, Reply, endpoint
from legacy_queue.http.request_journal import SELECTORS
from legacy_queue.http.site import Control, Site
from legacy_queue.services.control.clock_control import ClockState

SCOPE = "queue:control"
DISABLED = "this server was started without --control: start it with --control to use /control/v1"
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
    """Get the queue's time, how many seconds it is ahead of the real time, and whether it stands still.

    If the clock cannot be moved, ``reason`` says why.
    """
    return clock_answer(_control(call).clock.state())


@control_endpoint(
    "POST", "/control/v1/clock", "Move Clock", input="move-clock-request", output="control-clock"
)
def move_clock(call: Call) -> Reply:
    """Move the clock forward (``advance``), stop it (``freeze``), or let it run on (``release``).

    ``advance`` answers when everything that became due in that time has happened, in its order, including the
    events. Then all waiting claimWork requests look for work. Signatures, credentials and signed URLs stay
    on the real time. The clock can be moved with ``--storage embedded`` and ``memory``; otherwise the answer
    is 409.
    """
    clock = _control(call).clock
    match call.body:
        case {"advance": _}:
            clock.advance(parse_field(call.body, "advance", parse_duration))
        case {"freeze": _}:
            clock.freeze()
        case _:
            clock.release()
    return clock_answer(clock.state())


@control_endpoint("GET", "/control/v1/reset", "Get Reset", output="control-reset")
def get_reset(call: Call) -> Reply:
    """Ask whether a reset removes data that would otherwise outlive the server."""
    return {"kept": _control(call).is_kept}


@control_endpoint("POST", "/control/v1/reset", "Reset", output="control-empty")
def control_reset(call: Call) -> Reply:
    """Empty the queue, and set its clock to the real time.

    It removes all tasks, messages, events, artifacts, workers, faults and recorded requests. All
    waiting claimWork requests and all event streams end. On Azurite only the data under this server's
    queue-prefix is removed. On Azure the answer is 409.
    """
    _control(call).reset()
    return {}


def clock_answer(state: ClockState) -> Mapping[str, Any]:
    """The state of the clock as controlClock returns it."""
    return {
        "now": format_time(state.now),
        "offset": state.offset.total_seconds(),
        "frozen": state.is_frozen,
        "movable": not state.reason,
        **({"reason": state.reason} if state.reason else {}),
    }


@control_endpoint("GET", "/control/v1/faults", "List Faults", output="control-faults")
def list_faults(call: Call) -> Reply:
    """List the faults in force, the oldest first, and how often each has happened."""
    return {"faults": call.authorize().faults.list()}


@control_endpoint(
    "POST", "/control/v1/faults", "Add Fault", input="control-new-fault", output="control-fault"
)
def add_fault(call: Call) -> Reply:
    """Make requests to an endpoint fail or wait.

    These select the requests:

    - ``taskId`` and ``worker`` (``<workerGroup>/<workerId>``);
    - ``probability``: the same ``seed`` selects the same requests in each run;
    - ``times``: after so many requests the fault ends. If several faults match a request, the oldest happens.

    What happens to them: first they wait for the ``delay``, at most ``10m``. Then at most one of these:

    - ``status``, 400 to 599: the answer is this error with the ``message``, and the request is not handled.
    - ``drop``: the connection is closed without an answer, ``before`` or ``after`` the request is handled.
    - ``sas``, of pollTaskUrls: the signed URLs are ``expired``, or they expire after this duration.
    - ``double``, of azure.receive: a copy of the message is put at the end of its queue.
    - ``lose``, of azure.receive: the message is deleted instead of delivered.
    - ``stale``, of azure.receive: the message is delivered with a receipt that is no longer valid.

    A request that the server itself refuses does not count. On azure.receive, ``double``, ``lose``,
    ``stale`` and ``drop`` ``after`` wait for a request that receives a message. The other faults happen to
    any poll, and take no ``taskId``.
    """
    return call.authorize().faults.add(call.body)


@control_endpoint("DELETE", "/control/v1/faults/<faultId>", "Remove Fault", output="control-fault")
def remove_fault(call: Call) -> Reply:
    """End a fault. The answer says how often it has happened."""
    return call.authorize().faults.remove(call.params["faultId"])


@control_endpoint(
    "GET",
    "/control/v1/requests",
    "List Requests",
    query=("after", "limit", *SELECTORS),
    output="control-requests",
)
def list_requests(call: Call) -> Reply:
    """List the last requests that the server answered, oldest first.

    The list has ``limit`` requests, 100 by default. With ``after``, it has the first requests after that
    sequence number. ``taskId``, ``endpoint``, ``taskQueueId`` and ``caller`` select requests; a ``caller`` is
    a ``workerGroup/workerId`` or a clientId. ``failed=true`` selects the requests with a status of 400 or
    more, or without an answer. The server keeps the last 10,000 requests, except requests to /control/v1,
    /inspect/v1 and /events.

    A request without an answer has the status 0. ``begun`` is when the request came, ``time`` is when its
    answer was sent. Both are the queue's time, like ``now``. ``ms`` is real time.
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
    """Put a wrong message into a queue of a pool. It is visible at once and expires after an hour.

    These are the kinds:

    - ``poisoned``: it is not the message of any task;
    - ``forged``: it is signed with another secret;
    - ``foreign``: its task belongs to another pool;
    - ``doubled``: it is a second message for the last run of a task.

    ``priority`` is ``lowest`` by default.
    """
    messages = _control(call).messages
    queue = WorkQueue(*call.pool, call.body.get("priority", PRIORITIES[-1]))
    return {"messageId": messages.put(call.body["kind"], queue, call.body.get("taskId"))}
