"""Bounds the concurrent uploads: each holds a block of some MiB in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import BoundedSemaphore

from legacy_queue.domain.errors import ServiceUnavailable

_RETRY_AFTER = timedelta(seconds=5)


class UploadSlots:
    """At most ``max_uploads`` at once in a process."""

    def __init__(self, max_uploads: int = 64) -> None:
        self._max_uploads = max_uploads
        self._free = BoundedSemaphore(max_uploads)

    @contextmanager
    def acquire(self) -> Iterator[None]:
        """A context that holds a slot. Raises ServiceUnavailable, with a retry time, if no slot is free."""
        if not self._free.acquire(blocking=False):
            raise ServiceUnavailable(f"{self._max_uploads} uploads are under way: try again", _RETRY_AFTER)
        try:
            yield
        finally:
            self._free.release()
