"""What an endpoint of ``/control/v1`` gets hold of once its caller is authorized."""

from collections.abc import Callable
from dataclasses import dataclass

from legacy_queue.http.journal import Journal
from legacy_queue.services.clock_control import ClockControl
from legacy_queue.services.faults import Faults
from legacy_queue.services.peeking import Peeking


@dataclass(frozen=True)
class ControlServices:
    """Of a server that is started with ``--control``.

    ``reset`` returns once nothing is left of what was; raises RequestConflict, ServiceUnavailable.
    """

    clock: ClockControl
    faults: Faults
    journal: Journal
    peeking: Peeking
    reset: Callable[[], None]
