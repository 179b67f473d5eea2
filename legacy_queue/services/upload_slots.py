"""Places for uploads, each of which may hold a block of some MiB in memory."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from legacy_queue.domain.errors import ServiceUnavailable

_AGAIN = timedelta(seconds=5)


class UploadSlots:
    """At most ``max_uploads`` at once, and ``max_of_one`` with the same permission."""

    def __init__(self, max_uploads: int = 64, max_of_one: int = 4) -> None:
        self._max_uploads, self._max_of_one = max_uploads, max_of_one
        self._taken: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def taken(self, permission: str) -> Iterator[None]:
        """Around an upload; raises ServiceUnavailable, with when to try again, where there is no place."""
        with self._lock:
            if self._taken.total() >= self._max_uploads:
                raise ServiceUnavailable(f"{self._max_uploads} uploads are under way: try again", _AGAIN)
            if self._taken[permission] >= self._max_of_one:
                uploads = f"{self._max_of_one} uploads to this URL"
                raise ServiceUnavailable(f"{uploads} are under way: try again", _AGAIN)
            self._taken[permission] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken -= Counter([permission])  # which keeps no zeros
