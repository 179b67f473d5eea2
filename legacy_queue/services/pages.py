"""Pages of lists: limited in items, in bytes, and in the memory of all pages until they are sent.

A list is read a few rows at a time. Each item becomes JSON at once, so that no page is in memory twice.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from threading import Condition
from typing import Generic, TypeVar

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.services.concurrency import map_concurrently

Place = TypeVar("Place")
Row = TypeVar("Row")

MAX_PAGE_BYTES = 4 * 1024 * 1024  # of JSON, roughly
MAX_ITEM_BYTES = 1024 * 1024  # a task with all its runs is smaller
_MAX_SIZE = MAX_PAGE_BYTES + MAX_ITEM_BYTES
_MAX_PAGES = 8  # of the maximal size, in memory at once
_TIMEOUT = timedelta(seconds=10)
_MAX_ROWS = 100  # in one read


@dataclass(frozen=True)
class Page(Generic[Place]):
    """The items as JSON; the list continues behind the place ``after``, None at its end."""

    items: Sequence[bytes]
    after: Place | None


def read_page(
    read: Callable[[Place, int], Sequence[Row]],
    place: Callable[[Row], Place],
    after: Place,
    limit: int,
    render: Callable[[Row], bytes | None],
    concurrency: int = 1,
) -> Page[Place]:
    """A page of ``limit`` rows behind the place ``after``; it ends early at about ``MAX_PAGE_BYTES``.

    ``read`` returns that number of rows behind a place, fewer only at the end. ``place`` is the place of a
    row. A row that renders as None is counted, but left out. ``concurrency`` rows are rendered concurrently.
    """
    left = read_rows(read, place, after, limit + 1)
    ahead: deque[Row] = deque()
    items: list[bytes] = []
    size = largest = count = 0
    end: Place | None = None
    while count < limit and size + largest <= MAX_PAGE_BYTES:
        ahead.extend(islice(left, min(concurrency, limit - count)))
        if not ahead:
            return Page(items, None)
        for item in map_concurrently(render, list(ahead)):
            if size + largest > MAX_PAGE_BYTES:
                break
            end, count = place(ahead.popleft()), count + 1
            if item is not None:
                items.append(item)
                size, largest = size + len(item), max(largest, len(item))
    is_last = not ahead and next(left, None) is None
    return Page(items, None if is_last else end)


def read_rows(
    read: Callable[[Place, int], Sequence[Row]],
    place: Callable[[Row], Place],
    after: Place,
    limit: int = sys.maxsize,
) -> Iterator[Row]:
    """Up to ``limit`` rows behind the place ``after``, read when they are needed: see ``read_page``."""
    while limit:
        count = min(limit, _MAX_ROWS)
        rows = read(after, count)
        yield from rows
        if len(rows) < count:
            return
        after, limit = place(rows[-1]), limit - count


class PageMemory:
    """The memory for the pages of all lists of a process. Requests get it in the order of their arrival."""

    def __init__(self, timeout: timedelta = _TIMEOUT) -> None:
        self._timeout = timeout.total_seconds()
        self._free = _MAX_PAGES * _MAX_SIZE
        self._queue: deque[object] = deque()
        self._changed = Condition()

    @property
    def waiting(self) -> int:
        """How many requests wait for memory."""
        return len(self._queue)

    def acquire(self) -> "PageAllocation":
        """Memory for a page of the maximal size. Raises ServiceUnavailable after the timeout."""
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            try:
                if not self._changed.wait_for(
                    lambda: self._queue[0] is ticket and self._free >= _MAX_SIZE, self._timeout
                ):
                    raise ServiceUnavailable("many large lists are being read now, try again")
                self._free -= _MAX_SIZE
            finally:
                self._queue.remove(ticket)
                self._changed.notify_all()
        return PageAllocation(self)

    def release(self, size: int) -> None:
        """Free ``size`` bytes."""
        with self._changed:
            self._free += size
            self._changed.notify_all()


class PageAllocation:
    """The memory of one page, until it is released."""

    def __init__(self, memory: PageMemory) -> None:
        self._memory, self._size = memory, _MAX_SIZE

    def shrink(self, size: int) -> None:
        """The page needs at most ``size`` bytes. Safe to repeat; never grows."""
        excess = max(0, self._size - size)
        self._size -= excess
        self._memory.release(excess)

    def release(self) -> None:
        """The page was sent, or will not be sent. Safe to repeat."""
        self.shrink(0)
