"""Group commit: concurrent writes of several callers go in batches."""

from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition
from typing import Generic, TypeVar

from legacy_queue.domain.errors import ServiceUnavailable

BatchItem = TypeVar("BatchItem")


class _WaitingItem(Generic[BatchItem]):
    def __init__(self, item: BatchItem) -> None:
        self.item = item
        self.is_done = False
        self.error: Exception | None = None


class GroupCommit(Generic[BatchItem]):
    """Items added while a batch is being written go with the next batch, in the order of their calls.

    ``write`` runs in one of the callers at a time, with up to ``max_items`` items of up to ``max_size``
    in total, or with a single larger item.
    """

    def __init__(
        self,
        write: Callable[[Sequence[BatchItem]], None],
        max_items: int,
        max_size: int = 0,
        size: Callable[[BatchItem], int] = lambda _: 0,
    ) -> None:
        self._write_items = write
        self._size = size
        self._max_items = max_items
        self._max_size = max_size
        self._waiting: deque[_WaitingItem[BatchItem]] = deque()
        self._is_writing = False
        self._changed = Condition()

    @property
    def waiting(self) -> int:
        """How many items wait for the next batches."""
        return len(self._waiting)

    def add(self, item: BatchItem) -> None:
        """Return once the item is written; raises the error that ``write`` raised for its batch."""
        call = _WaitingItem(item)
        with self._changed:
            self._waiting.append(call)
        while batch := self._next_batch(call):
            self._write(batch)
        if call.error:
            raise call.error

    def _next_batch(self, call: _WaitingItem[BatchItem]) -> list[_WaitingItem[BatchItem]]:
        """The batch that the caller has to write now; empty once its own call is done."""
        with self._changed:
            self._changed.wait_for(lambda: call.is_done or not self._is_writing)
            batch: list[_WaitingItem[BatchItem]] = []
            size = 0
            while not call.is_done and self._waiting and len(batch) < self._max_items:
                size += self._size(self._waiting[0].item)
                if batch and size > self._max_size:
                    break
                batch.append(self._waiting.popleft())
            self._is_writing |= bool(batch)
            return batch

    def _write(self, batch: Sequence[_WaitingItem[BatchItem]]) -> None:
        error: Exception | None = ServiceUnavailable("the write was given up, try again")
        try:
            self._write_items([call.item for call in batch])
            error = None
        except Exception as refusal:  # noqa: BLE001 - raised by every call of the batch
            error = refusal
        finally:  # also where the thread is being ended: other callers wait
            with self._changed:
                for call in batch:
                    call.is_done = True
                    call.error = error
                self._is_writing = False
                self._changed.notify_all()
