"""How many event streams are open, and whose: one client must not take the places of all others."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from legacy_queue.domain.errors import ServiceUnavailable

_MIN_SHARE = 4  # streams that each client and address may open at least


@dataclass(frozen=True, eq=False)
class Follower:
    """Who opens a stream. ``names`` are the address and the client of the request."""

    names: Sequence[str]
    is_disconnected: Callable[[], bool]


class StreamAdmission:
    """At most ``max_streams`` are open, and of each client and address a tenth of them, four at least."""

    def __init__(self, max_streams: int) -> None:
        self._max_streams = max_streams
        self._max_per_name = max(_MIN_SHARE, max_streams // 10)
        self._lock = threading.Lock()
        # added to with the lock; discarded from without it, since a collection of garbage may end a stream
        self._open: set[Follower] = set()

    @property
    def count(self) -> int:
        """How many streams are open."""
        return len(self._open)

    def admit(self, follower: Follower) -> None:
        """Count the stream as open, until ``release``. A disconnected stream makes room for it if needed.

        Raises ServiceUnavailable if too many streams are open, or too many of this client or address.
        """
        with self._lock:
            if self._refusal(follower):
                for other in tuple(self._open):
                    if other.is_disconnected():
                        self._open.discard(other)
            if refusal := self._refusal(follower):
                raise ServiceUnavailable(refusal)
            self._open.add(follower)

    def release(self, follower: Follower) -> None:
        """The stream is closed. Safe to repeat."""
        self._open.discard(follower)

    def _refusal(self, follower: Follower) -> str | None:
        if len(self._open) >= self._max_streams:
            return f"{self._max_streams} streams of events are open: try again later"
        streams = Counter(name for other in tuple(self._open) for name in other.names)
        if any(streams[name] >= self._max_per_name for name in follower.names):
            return f"{self._max_per_name} streams of events are open by this client or address: try again"
        return None
