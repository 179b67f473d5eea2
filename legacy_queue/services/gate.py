"""Holds up the work of the background while the clock is moved, so that time passes in order."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition


class Gate:
    """Any number of threads ``pass_through`` at once, or one has ``closed`` it."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._inside = 0
        self._is_closed = False

    @contextmanager
    def pass_through(self) -> Iterator[None]:
        """Wait until the gate is open. What waits inside must end when ``closed`` wakes it."""
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
    def closed(self, wake: Callable[[], None]) -> Iterator[None]:
        """Nothing is inside, and nothing enters. ``wake`` ends the waits inside. Callers take turns."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_closed)
            self._is_closed = True
        try:
            wake()
            with self._changed:
                self._changed.wait_for(lambda: not self._inside)
            yield
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()
