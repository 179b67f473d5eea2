"""Time, as the worker is given it: the only place that reads it or waits for it to pass."""

import threading
import time
from datetime import UTC, datetime, timedelta

RECLAIM_MARGIN = timedelta(minutes=3)
SHORTEST_DELAY = timedelta(seconds=1)


class Clock:
    """The machine's own time; a test hands in another one."""

    def now(self) -> datetime:
        """The time of day, to compare with what the queue says."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that only ever grow, to measure how long a command runs."""
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set or the seconds are over; says whether it is set."""
        return event.wait(seconds)


def reclaim_delay(left: timedelta) -> timedelta:
    """How long to wait before reclaiming a claim that ends when ``left`` is over: until three minutes
    before its end, or two thirds of it where it is shorter than nine minutes.

    Never less than a second, so that a clock which is ahead of the queue's cannot make the worker spin.
    Source: "a few minutes prior to expiration, to allow for clock drift" (seed 003).
    """
    return max(left - min(RECLAIM_MARGIN, left / 3), SHORTEST_DELAY)
