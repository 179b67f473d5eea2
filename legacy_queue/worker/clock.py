"""Time, as the worker is given it: the only place that reads it or waits for it to pass."""

import threading
import time
from datetime import UTC, datetime


class Clock:
    """The machine's own time; a test hands in another clock."""

    def now(self) -> datetime:
        """The time of day, to compare with the queue's times."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that only ever grow, to measure how long a command runs."""
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set or the seconds are over; says whether it is set."""
        return event.wait(seconds)
