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
Listed = TypeVar("Listed")

MAX_PAGE_BYTES = 4 * 1024 * 1024  # of JSON, roughly
MAX_ITEM_BYTES = 1024 * 1024  # a task with all its runs is smaller
_MAX_ALLOCATION = MAX_PAGE_BYTES + MAX_ITEM_BYTES
_MAX_PAGES = 8  # of the maximal size, in memory at once
_TIMEOUT = timedelta(seconds=10)
_MAX_ROWS = 100  # in one read


@dataclass(frozen=True)
class Page(Generic[Place]):
    """The items as JSON; the list continues behind the place ``after``, None at its end."""

    items: Sequence[bytes]
    after: Place | None


def read_page(
    read: Callable[[Place, int], Sequence[Listed]],
    place: Callable[[Listed], Place],
    after: Place,
    limit: int,
    render: Callable[[Listed], bytes | None],
    concurrency: int = 1,
) -> Page[Place]:
    """A page of ``limit`` rows behind the place ``after``; it ends early at about ``MAX_PAGE_BYTES``.

    ``read`` returns that number of rows behind a place, fewer only at the end. ``place`` is the place of a
    row. A row that renders as None is counted, but left out. ``concurrency`` rows are rendered concurrently.
    """
    left = read_rows(read, place, after, limit + 1)
    ahead: deque[Listed] = deque()
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
            end = place(ahead.popleft())
            count = count + 1
            if item is not None:
                items.append(item)
                size = size + len(item)
                largest = max(largest, len(item))
    is_last = not ahead and next(left, None) is None
    return Page(items, None if is_last else end)


def read_rows(
    read: Callable[[Place, int], Sequence[Listed]],
    place: Callable[[Listed], Place],
    after: Place,
    limit: int = sys.maxsize,
) -> Iterator[Listed]:
    """Up to ``limit`` rows behind the place ``after``, read when they are needed: see ``read_page``."""
    while limit:
        count = min(limit, _MAX_ROWS)
        rows = read(after, count)
        yield from rows
        if len(rows) < count:
            return
        after = place(rows[-1])
        limit = limit - count


class PageMemory:
    """The memory for the pages of all lists of a process."""

    def __init__(self, timeout: timedelta = _TIMEOUT) -> None:
        self._timeout = timeout.total_seconds()
        self._free = _MAX_PAGES * _MAX_ALLOCATION
        self._changed = Condition()

    def acquire(self) -> "PageAllocation":
        """Memory for a page of the maximal size. Raises ServiceUnavailable after the timeout."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._free >= _MAX_ALLOCATION, self._timeout):
                raise ServiceUnavailable("many large lists are being read now, try again")
            self._free -= _MAX_ALLOCATION
        return PageAllocation(self)

    def release(self, size: int) -> None:
        """Free ``size`` bytes."""
        with self._changed:
            self._free += size
            self._changed.notify_all()


class PageAllocation:
    """The memory of one page, until it is released."""

    def __init__(self, memory: PageMemory) -> None:
        self._memory = memory
        self._size = _MAX_ALLOCATION

    def shrink(self, size: int) -> None:
        """The page needs at most ``size`` bytes. Safe to repeat; never grows."""
        excess = max(0, self._size - size)
        self._size -= excess
        self._memory.release(excess)

    def release(self) -> None:
        """The page was sent, or will not be sent. Safe to repeat."""
        self.shrink(0)
