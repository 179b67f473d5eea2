"""Leases that are renewed while work goes on, and short, so that what a dead process held goes on soon."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports import Changed, Clock
from legacy_queue.stores import Turn, Turns

LEASE = timedelta(seconds=15)
RENEWED_EVERY = LEASE / 3


class RenewedTurn:
    """A context in which this process keeps the turn, while it is alive and storage answers."""

    def __init__(self, turns: Turns, turn: Turn, clock: Clock, every: timedelta = RENEWED_EVERY) -> None:
        self._turns, self._turn, self._clock = turns, turn, clock
        self._lock, self._is_released = threading.Lock(), False
        self._renewing = repeated(self._renew, every)

    def __enter__(self) -> "RenewedTurn":
        self._renewing.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._renewing.__exit__(None, None, None)

    def keep(self, cursor: str, since: datetime | None) -> None:
        """Note how far the work came; raises Changed where another process has taken the turn."""
        with self._lock:
            self._keep(self._clock.now() + LEASE, cursor, since)

    def release(self, until: datetime, cursor: str, since: datetime | None) -> None:
        """End it: the turn may be taken again from ``until`` on. Raises Changed."""
        with self._lock:
            self._is_released = True
            self._keep(until, cursor, since)

    def _renew(self) -> None:
        with self._lock, suppress(Changed, ServiceUnavailable):
            if not self._is_released:
                self._keep(self._clock.now() + LEASE, self._turn.cursor, self._turn.since)

    def _keep(self, until: datetime, cursor: str, since: datetime | None) -> None:
        self._turn = self._turns.keep(self._turn, until, cursor, since)


@contextmanager
def repeated(act: Callable[[], None], every: timedelta) -> Iterator[None]:
    """Call ``act`` again and again, with a pause of ``every``, until the context ends."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(every.total_seconds()):
            act()

    thread = threading.Thread(target=repeat, name="renewal", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
