"""Bounds the concurrent uploads: each holds a block of some MiB in memory."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.fault import RunKey

_RETRY_AFTER = timedelta(seconds=5)


class UploadSlots:
    """At most ``max_uploads`` at once, and ``max_per_run`` of a run: scriptworker has 15 connections."""

    def __init__(self, max_uploads: int = 64, max_per_run: int = 16) -> None:
        self._max_uploads = max_uploads
        self._max_per_run = max_per_run
        self._taken: Counter[RunKey | None] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def acquire(self, run: RunKey | None) -> Iterator[None]:
        """A context that holds a slot. Raises ServiceUnavailable, with a retry time, if no slot is free."""
        with self._lock:
            if self._taken.total() >= self._max_uploads:
                raise ServiceUnavailable(
                    f"{self._max_uploads} uploads are under way: try again", _RETRY_AFTER
                )
            if self._taken[run] >= self._max_per_run:
                uploads = f"{self._max_per_run} uploads of this run"
                raise ServiceUnavailable(f"{uploads} are under way: try again", _RETRY_AFTER)
            self._taken[run] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken -= Counter([run])  # unlike -= 1, it removes zeros
