"""Limits how many uploads run at the same time, because each keeps a block in memory while it arrives."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import RunKey
from legacy_queue.stores.blobs import BLOCK

_RETRY_AFTER = timedelta(seconds=5)
_SHARE = 3  # a run gets another slot if it has fewer than a third of the free ones


class UploadSlots:
    """Slots for ``max_slots`` blocks. All runs of a process share them.

    If no other run has any, a run gets 16 of 64 slots, because scriptworker has 15 connections. Each further
    run gets fewer. So a worker with four claims leaves 20 slots to the others.
    """

    def __init__(self, max_slots: int = 64) -> None:
        self._max_slots = max_slots
        self._taken: Counter[RunKey | None] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def acquire(self, run: RunKey | None, size: int = BLOCK) -> Iterator[None]:
        """Returns a context that holds a slot for each 4 MiB of ``size``, the bytes in memory at once.

        Raises ServiceUnavailable, with a time to retry, if too few slots are free.
        """
        count = max(1, -(-size // BLOCK))
        with self._lock:
            taken = self._taken.total()
            free = self._max_slots - taken
            if count > free or _SHARE * self._taken[run] >= free:
                raise ServiceUnavailable(
                    f"{self._taken[run]} uploads of this run and {taken} in all are under way: try again",
                    _RETRY_AFTER,
                )
            self._taken[run] += count
        try:
            yield
        finally:
            with self._lock:
                self._taken -= Counter({run: count})  # unlike -= 1, it removes zeros
