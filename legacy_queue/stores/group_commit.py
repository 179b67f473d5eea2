"""Writes of several callers at once, in batches."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from threading import Condition
from typing import Generic, TypeVar

from legacy_queue.domain.errors import ServiceUnavailable

Item = TypeVar("Item")


class _Call(Generic[Item]):
    def __init__(self, items: Sequence[Item], size: int) -> None:
        self.items, self.size = items, size
        self.is_done = False
        self.error: Exception | None = None


class GroupCommit(Generic[Item]):
    """What callers add while a batch is being written goes with the next one, in the order of their calls.

    ``write`` is called by one of them at a time, with up to ``most_items`` items of together up to
    ``most_size``, or with a single larger one.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Item]], None],
        size: Callable[[Item], int],
        most_items: int,
        most_size: int,
    ) -> None:
        self._write_items, self._size = write, size
        self._most_items, self._most_size = most_items, most_size
        self._waiting: deque[_Call[Item]] = deque()
        self._is_writing = False
        self._changed = Condition()

    def add(self, items: Sequence[Item]) -> None:
        """Return once all of them were written; raises what ``write`` raised for a batch with any of them."""
        while items:
            sizes = [self._size(item) for item in items]
            count = self._fitting((1, size) for size in sizes)
            self._add(_Call(items[:count], sum(sizes[:count])))
            items = items[count:]

    def _add(self, call: _Call[Item]) -> None:
        with self._changed:
            self._waiting.append(call)
        while batch := self._next_batch(call):
            self._write(batch)
        if call.error:
            raise call.error

    def _next_batch(self, call: _Call[Item]) -> list[_Call[Item]]:
        """What the caller is to write now; nothing once its own call is done."""
        with self._changed:
            self._changed.wait_for(lambda: call.is_done or not self._is_writing)
            if call.is_done:
                return []
            self._is_writing = True
            count = self._fitting((len(waiting.items), waiting.size) for waiting in self._waiting)
            return [self._waiting.popleft() for _ in range(count)]

    def _write(self, batch: Sequence[_Call[Item]]) -> None:
        error: Exception | None = ServiceUnavailable("the write was given up, try again")
        try:
            self._write_items([item for call in batch for item in call.items])
            error = None
        except Exception as refusal:  # noqa: BLE001 - raised by every call of the batch
            error = refusal
        finally:  # also when the thread is being ended: others wait
            with self._changed:
                for call in batch:
                    call.is_done, call.error = True, error
                self._is_writing = False
                self._changed.notify_all()

    def _fitting(self, parts: Iterable[tuple[int, int]]) -> int:
        """How many of the first parts, each so many items of such a size, make one batch: at least one."""
        fitting = count = size = 0
        for part_count, part_size in parts:
            count, size = count + part_count, size + part_size
            if fitting and (count > self._most_items or size > self._most_size):
                break
            fitting += 1
        return fitting
