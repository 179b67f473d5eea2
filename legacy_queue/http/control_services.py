"""The services of the endpoints of ``/control/v1``."""

from collections.abc import Callable
from dataclasses import dataclass

from legacy_queue.http.request_journal import Journal
from legacy_queue.services.clock_control import ClockControl
from legacy_queue.services.fault_registry import FaultRegistry
from legacy_queue.services.peeking import Peeking


@dataclass(frozen=True)
class Reset:
    """``run`` returns once everything stored is removed; raises RequestConflict, ServiceUnavailable."""

    run: Callable[[], None]


@dataclass(frozen=True)
class ControlServices:
    """What the endpoints of ``/control/v1`` may need, each by its type."""

    clock: ClockControl
    faults: FaultRegistry
    journal: Journal
    peeking: Peeking
    reset: Reset
