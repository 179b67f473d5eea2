"""Limits the open event streams, in total and for each client, so that one client cannot use them all up."""

import threading
from collections import Counter
from itertools import chain

from legacy_queue.domain.errors import ServiceUnavailable

_MIN_SHARE = 4  # at least so many streams for each client and address


class StreamAdmission:
    """Admits ``max_streams`` streams: to each client and address a tenth of them, but at least four."""

    def __init__(self, max_streams: int) -> None:
        self._max_streams = max_streams
        self._max_of_each = max(_MIN_SHARE, max_streams // 10)
        self._lock = threading.Lock()
        # The client and the address of each stream. Adding needs the lock, removing must not: garbage
        # collection may end a stream in the thread that holds the lock.
        self._open: list[tuple[str, ...]] = []

    @property
    def count(self) -> int:
        """The number of open streams."""
        return len(self._open)

    def admit(self, names: tuple[str, ...]) -> None:
        """Count a stream of this client and address as open, until ``release``. Raises ServiceUnavailable."""
        with self._lock:
            if len(self._open) >= self._max_streams:
                raise ServiceUnavailable(
                    f"{self._max_streams} event streams are already open: try again later"
                )
            streams = Counter(chain.from_iterable([*self._open]))
            if any(streams[name] >= self._max_of_each for name in names):
                raise ServiceUnavailable(
                    f"{self._max_of_each} event streams of this client or address are already open: try again"
                )
            self._open.append(names)

    def release(self, names: tuple[str, ...]) -> None:
        """Count a stream of this client and address as closed."""
        self._open.remove(names)
