"""What the endpoints of ``/control/v1`` act on."""

from collections.abc import Callable
from dataclasses import dataclass

from legacy_queue.http.request_journal import Journal
from legacy_queue.services.clock_control import ClockControl
from legacy_queue.services.fault_registry import FaultRegistry
from legacy_queue.services.peeking import Peeking


@dataclass(frozen=True)
class ControlServices:
    """What an endpoint gets once its caller is authorized.

    ``reset`` returns once nothing is left of what was stored; raises RequestConflict, ServiceUnavailable.
    """

    clock: ClockControl
    faults: FaultRegistry
    journal: Journal
    peeking: Peeking
    reset: Callable[[], None]
