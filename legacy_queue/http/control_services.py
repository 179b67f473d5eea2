"""What an endpoint of ``/control/v1`` gets hold of once its caller is authorized."""

from dataclasses import dataclass

from legacy_queue.services.clock_control import ClockControl


@dataclass(frozen=True)
class ControlServices:
    """Of a server that is started with ``--control``."""

    clock: ClockControl
