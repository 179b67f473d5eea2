"""The clock of a server under control: what it says, and moving it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from legacy_queue.ports import AdjustableClock, Clock


@dataclass(frozen=True)
class ClockState:
    """``offset``: how far the queue's time is from the real time. ``reason``: why it cannot be moved."""

    now: datetime
    offset: timedelta
    is_frozen: bool
    reason: str = ""


class ClockControl:
    def __init__(self, clock: Clock, movable: AdjustableClock | None, reason: str) -> None:
        """``movable`` is the clock, if it can be moved; else ``reason`` says why not."""
        self._clock, self._movable, self._reason = clock, movable, reason

    def state(self) -> ClockState:
        if self._movable:
            return ClockState(self._clock.now(), self._movable.offset, self._movable.is_frozen)
        return ClockState(self._clock.now(), timedelta(0), is_frozen=False, reason=self._reason)
