"""Stops background work while the clock is moved, so that everything happens in the order of the times."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition


class BackgroundGate:
    """Many threads can ``pass_through`` together, but none while a thread has ``closed`` the gate."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._inside = 0
        self._is_closed = False

    @contextmanager
    def pass_through(self) -> Iterator[None]:
        """Wait until the gate is open. Code inside must stop waiting when ``closed`` calls ``end_waits``."""
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
        """Close the gate, and wait until no thread is inside. No thread enters until the context ends.

        ``end_waits`` must end the waits of the threads inside. A second caller waits for the first.
        """
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
