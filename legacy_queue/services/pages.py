"""Pages of lists: bounded in items, in bytes, and in the memory that all of them take until they are sent.

A list is read a few rows at a time. Each item is made JSON at once, so that no page is in memory twice.
"""

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

MAX_PAGE_BYTES = 4 * 1024 * 1024  # of JSON, about
MAX_ITEM_BYTES = 1024 * 1024  # a task with all its runs has less
_MAX_SIZE = MAX_PAGE_BYTES + MAX_ITEM_BYTES
_MAX_PAGES = 8  # of the largest size that are in memory at once
_TIMEOUT = timedelta(seconds=10)
_ROWS = 100  # asked for at once


@dataclass(frozen=True)
class Page(Generic[Place]):
    """JSON of the items; the list goes on behind the place ``after``, None at the end."""

    items: Sequence[bytes]
    after: Place | None


def read_page(
    ask: Callable[[Place, int], Sequence[Row]],
    place: Callable[[Row], Place],
    after: Place,
    limit: int,
    render: Callable[[Row], bytes | None],
    at_once: int = 1,
) -> Page[Place]:
    """A page of ``limit`` rows behind the place ``after``, or fewer: as many as have about
    ``MAX_PAGE_BYTES``, one at least.

    ``ask`` gives so many rows behind a place, and fewer at the end only; ``place`` says where a row is. A row
    that renders as None counts and is left out. ``at_once`` rows are rendered concurrently.
    """
    left = _rows_behind(after, limit, ask, place)
    ahead: deque[Row] = deque()
    items: list[bytes] = []
    size = largest = count = 0
    end: Place | None = None
    while count < limit and size + largest <= MAX_PAGE_BYTES:
        ahead.extend(islice(left, min(at_once, limit - count)))
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


def _rows_behind(
    after: Place, limit: int, ask: Callable[[Place, int], Sequence[Row]], place: Callable[[Row], Place]
) -> Iterator[Row]:
    """The rows, asked for as they are needed: no more than ``limit`` and one are to be taken."""
    left = limit + 1
    while True:
        asked = min(left, _ROWS)
        found = ask(after, asked)
        yield from found
        if len(found) < asked:
            return
        after, left = place(found[-1]), left - asked


class PageMemory:
    """The bytes that pages have in memory, of all listings of a process: those wait their turn, in order."""

    def __init__(self, timeout: timedelta = _TIMEOUT) -> None:
        self._timeout = timeout.total_seconds()
        self._free = _MAX_PAGES * _MAX_SIZE
        self._line: deque[object] = deque()
        self._changed = Condition()

    def acquire(self) -> "Acquired":
        """Memory for a page; raises ServiceUnavailable where clients that read slowly hold all of it."""
        ticket = object()
        with self._changed:
            self._line.append(ticket)
            try:
                if not self._changed.wait_for(
                    lambda: self._line[0] is ticket and self._free >= _MAX_SIZE, self._timeout
                ):
                    raise ServiceUnavailable("many large lists are being read now, try again")
                self._free -= _MAX_SIZE
            finally:
                self._line.remove(ticket)
                self._changed.notify_all()
        return Acquired(self)

    def give_back(self, size: int) -> None:
        """So many bytes are in memory no more."""
        with self._changed:
            self._free += size
            self._changed.notify_all()


class Acquired:
    """Memory of one page, until it is released."""

    def __init__(self, memory: PageMemory) -> None:
        self._memory, self._size = memory, _MAX_SIZE

    def keep(self, size: int) -> None:
        """The page has no more than so many bytes. Safe to repeat, and for a page that has more."""
        excess = max(0, self._size - size)
        self._size -= excess
        self._memory.give_back(excess)

    def release(self) -> None:
        """The page is sent, or never will be. Safe to repeat."""
        self.keep(0)
