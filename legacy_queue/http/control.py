"""``/control/v1``: what a test does with a server: its clock, its tasks, a reset.

Source: docs/reference/control.md.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from legacy_queue.domain.ids import TASK_ID
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import format_time, parse_duration
from legacy_queue.http.control_endpoint import control_endpoint
from legacy_queue.http.control_faults import FAULT_ENDPOINTS
from legacy_queue.http.endpoint import Answer, Call, Endpoint
from legacy_queue.http.paging import PAGED, page_answer, render
from legacy_queue.services.clock_control import ClockState

DISABLED = "this server lets no test control it: it does only when it is started with --control"


@control_endpoint("GET", "/control/v1/clock", "Get Clock", output="control-clock")
def control_clock(call: Call) -> Answer:
    """The queue's time, how many seconds it is ahead of the real time, and whether it stands still.

    Where it cannot be moved, ``reason`` says why.
    """
    return _clock_answer(call.authorize_control().clock.state())


@control_endpoint(
    "POST", "/control/v1/clock", "Move Clock", input="move-clock-request", output="control-clock"
)
def move_clock(call: Call) -> Answer:
    """Let time pass (``advance``), stand still (``freeze``), or go on from where it stands (``release``).

    With ``advance`` all that becomes due in that time happens in its order, and has happened when this
    answers, events included; then requests of claimWork that wait look for work. Signatures, credentials and
    signed URLs stay on the real time. 409 where the clock cannot be moved: it can with ``--storage memory``.
    """
    clock = call.authorize_control().clock
    match call.body:
        case {"advance": duration}:
            clock.advance(parse_duration(duration))
        case {"freeze": _}:
            clock.freeze()
        case _:
            clock.release()
    return _clock_answer(clock.state())


@control_endpoint(
    "GET", "/control/v1/tasks", "List Tasks", query=(*PAGED, "state"), output="control-tasks-response"
)
def control_tasks(call: Call) -> Answer:
    """The status structures of all tasks that are not resolved; with ``state=all`` those of the others too.

    They are in the order of their taskIds, in pages as those of listTaskGroup.
    """
    services = call.authorize()
    ask = partial(services.listing.all_tasks, call.query.get("state") == "all", render=_status)
    return page_answer(call, services, "tasks", TASK_ID, ask)


def _status(task: Task) -> bytes:
    return render(task.status())


@control_endpoint("POST", "/control/v1/reset", "Reset", output="control-empty")
def control_reset(call: Call) -> Answer:
    """Remove all tasks, messages, events, artifacts, workers, faults and what was noted of requests; the
    clock says the real time again. Requests of claimWork that wait, and event streams, end.

    On Azurite what has this server's queue-prefix is removed, and nothing else; 409 on Azure.
    """
    call.authorize_control().reset()
    return {}


def _clock_answer(state: ClockState) -> Mapping[str, Any]:
    return {
        "now": format_time(state.now),
        "offset": state.offset.total_seconds(),
        "frozen": state.is_frozen,
        "movable": not state.reason,
        **({"reason": state.reason} if state.reason else {}),
    }


CONTROL_ENDPOINTS = (control_clock, move_clock, control_tasks, control_reset, *FAULT_ENDPOINTS)


def control_endpoints(is_enabled: bool) -> tuple[Endpoint, ...]:
    """Those that are not enabled answer 404 with a sentence that says how to enable them."""
    if is_enabled:
        return CONTROL_ENDPOINTS
    return tuple(replace(one, disabled=DISABLED) for one in CONTROL_ENDPOINTS)
