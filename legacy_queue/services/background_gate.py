"""Stops background work while the clock is moved, so that events happen in the order of their times."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition


class BackgroundGate:
    """Many threads can ``pass_through`` at once; while a thread has ``closed`` the gate, none can."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._inside = 0
        self._is_closed = False

    @contextmanager
    def pass_through(self) -> Iterator[None]:
        """Wait until the gate is open. A wait inside must end when ``closed`` calls its ``end_waits``."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_closed)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def closed(self, end_waits: Callable[[], None]) -> Iterator[None]:
        """No thread is inside, and none enters. ``end_waits`` ends waits inside. A second caller waits."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_closed)
            self._is_closed = True
        try:
            end_waits()
            with self._changed:
                self._changed.wait_for(lambda: not self._inside)
            yield
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()
