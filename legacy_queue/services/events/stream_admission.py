"""How many event streams are open, and whose: one client must not take the places of all others."""

import threading
from collections import Counter
from itertools import chain

from legacy_queue.domain.errors import ServiceUnavailable

_MIN_SHARE = 4  # streams that each client and address may open at least


class StreamAdmission:
    """At most ``max_streams`` are open, and of each client and address a tenth of them, four at least."""

    def __init__(self, max_streams: int) -> None:
        self._max_streams = max_streams
        self._max_of_each = max(_MIN_SHARE, max_streams // 10)
        self._lock = threading.Lock()
        # The client and the address of each stream. It is appended to with the lock, but removed from without
        # it: a collection of garbage may end a stream in the thread that has the lock.
        self._open: list[tuple[str, ...]] = []

    @property
    def count(self) -> int:
        """How many streams are open."""
        return len(self._open)

    def admit(self, names: tuple[str, ...]) -> None:
        """Count a stream of this client and address as open, until ``release``. Raises ServiceUnavailable."""
        with self._lock:
            if len(self._open) >= self._max_streams:
                raise ServiceUnavailable(f"{self._max_streams} streams of events are open: try again later")
            streams = Counter(chain.from_iterable([*self._open]))
            if any(streams[name] >= self._max_of_each for name in names):
                raise ServiceUnavailable(
                    f"{self._max_of_each} streams of events are open by this client or address: try again"
                )
            self._open.append(names)

    def release(self, names: tuple[str, ...]) -> None:
        """A stream of this client and address is closed."""
        self._open.remove(names)
