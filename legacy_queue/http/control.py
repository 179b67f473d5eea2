"""``/control/v1``: what a test does with a server: the clock.

Source: docs/reference/control.md.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from legacy_queue.domain.times import format_time
from legacy_queue.http.control_schemas import DURATION
from legacy_queue.http.endpoint import Answer, Call, Endpoint, endpoint
from legacy_queue.services.clock_control import ClockState

SCOPE = "queue:control"
DISABLED = "this server lets no test control it: it does only when it is started with --control"

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}

control_endpoint = partial(endpoint, scopes=SCOPE, service="control")


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
            clock.advance(_duration(duration))
        case {"freeze": _}:
            clock.freeze()
        case _:
            clock.release()
    return _clock_answer(clock.state())


def _duration(text: str) -> timedelta:
    match = re.fullmatch(DURATION, text)
    assert match  # noqa: S101  by the schema
    return int(match[1]) * _UNITS[match[2]]


def _clock_answer(state: ClockState) -> Mapping[str, Any]:
    return {
        "now": format_time(state.now),
        "offset": state.offset.total_seconds(),
        "frozen": state.is_frozen,
        "movable": not state.reason,
        **({"reason": state.reason} if state.reason else {}),
    }


CONTROL_ENDPOINTS = (control_clock, move_clock)


def control_endpoints(is_enabled: bool) -> tuple[Endpoint, ...]:
    """Those that are not enabled answer 404 with a sentence that says how to enable them."""
    if is_enabled:
        return CONTROL_ENDPOINTS
    return tuple(replace(one, disabled=DISABLED) for one in CONTROL_ENDPOINTS)
