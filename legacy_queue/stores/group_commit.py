"""Group commit: writes that several callers make at the same time are sent together in batches."""

from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Generic, TypeVar

from legacy_queue.domain.errors import ServiceUnavailable

BatchItem = TypeVar("BatchItem")


class GroupCommit(Generic[BatchItem]):
    """Collects items while a batch is being written. They go into the next batch, in the order of the calls.

    Only one of the callers runs ``write`` at a time, with up to ``max_items`` items.
    """

    def __init__(self, write: Callable[[Sequence[BatchItem]], None], max_items: int) -> None:
        self._write_items = write
        self._max_items = max_items
        # each item, and a list that gets its result: the error of the write, or None
        self._waiting: deque[tuple[BatchItem, list[Exception | None]]] = deque()
        self._writer = Lock()

    @property
    def waiting(self) -> int:
        """The number of items that wait for the next batches."""
        return len(self._waiting)

    def add(self, item: BatchItem) -> None:
        """Return when the item is written. Raises the error that ``write`` has raised for its batch."""
        written: list[Exception | None] = []
        self._waiting.append((item, written))
        while not written:
            with self._writer:
                if not written:  # otherwise the caller that had the lock before has written it
                    self._write_batch()
        if written[0]:
            raise written[0]

    def _write_batch(self) -> None:
        count = min(len(self._waiting), self._max_items)
        batch = [self._waiting.popleft() for _ in range(count)]
        error: Exception | None = ServiceUnavailable("the write was abandoned, try again")
        try:
            self._write_items([item for item, _ in batch])
            error = None
        except Exception as refusal:  # noqa: BLE001 - every call of the batch raises it
            error = refusal
        finally:  # even if the thread is being ended, because other callers wait
            for _, written in batch:
                written.append(error)
