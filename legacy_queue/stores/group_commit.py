"""Group commit: concurrent writes of several callers go in batches."""

from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Generic, TypeVar

from legacy_queue.domain.errors import ServiceUnavailable

BatchItem = TypeVar("BatchItem")


class GroupCommit(Generic[BatchItem]):
    """Items added while a batch is being written go with the next batch, in the order of their calls.

    ``write`` runs in one of the callers at a time, with up to ``max_items`` items.
    """

    def __init__(self, write: Callable[[Sequence[BatchItem]], None], max_items: int) -> None:
        self._write_items = write
        self._max_items = max_items
        # with what became of each: nothing until its batch is written, then the error of that, or None
        self._waiting: deque[tuple[BatchItem, list[Exception | None]]] = deque()
        self._writer = Lock()

    @property
    def waiting(self) -> int:
        """How many items wait for the next batches."""
        return len(self._waiting)

    def add(self, item: BatchItem) -> None:
        """Return once the item is written; raises the error that ``write`` raised for its batch."""
        written: list[Exception | None] = []
        self._waiting.append((item, written))
        while not written:
            with self._writer:
                if not written:  # by the caller that had the lock before
                    self._write_batch()
        if written[0]:
            raise written[0]

    def _write_batch(self) -> None:
        count = min(len(self._waiting), self._max_items)
        batch = [self._waiting.popleft() for _ in range(count)]
        error: Exception | None = ServiceUnavailable("the write was given up, try again")
        try:
            self._write_items([item for item, _ in batch])
            error = None
        except Exception as refusal:  # noqa: BLE001 - raised by every call of the batch
            error = refusal
        finally:  # also where the thread is being ended: other callers wait
            for _, written in batch:
                written.append(error)
