"""Pages of lists: limited in items and in bytes, and a few at a time.

A list is read a few rows at a time. Each item becomes JSON at once, so that no page is in memory twice. The
server limits the pages that wait for their clients: see ``server.client_socket``.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import BoundedSemaphore
from typing import Generic, TypeVar

from legacy_queue.services.concurrency import map_concurrently

Position = TypeVar("Position")
Listed = TypeVar("Listed")

MAX_PAGE_BYTES = 4 * 1024 * 1024  # of JSON, roughly
_MAX_ROWS = 100  # in one read

_reading = BoundedSemaphore(8)  # pages at once in this process, each of which may take megabytes


@dataclass(frozen=True)
class Page(Generic[Position]):
    """The items as JSON; the list continues behind the position ``after``, None at its end."""

    items: Sequence[bytes]
    after: Position | None
    total: int | None = None  # items of the whole list, where that is known


def read_page(
    read: Callable[[Position, int], Sequence[Listed]],
    position: Callable[[Listed], Position],
    after: Position,
    limit: int,
    render: Callable[[Listed], bytes | None],
    concurrency: int = 1,
) -> Page[Position]:
    """A page of ``limit`` rows behind the position ``after``; it ends early at about ``MAX_PAGE_BYTES``.

    ``read`` returns that number of rows behind a position, fewer only at the end. ``position`` is the
    position of a row. A row that renders as None is counted, but left out. ``concurrency`` rows are rendered
    concurrently.
    """
    left = read_rows(read, position, after, limit + 1)
    ahead: deque[Listed] = deque()
    items: list[bytes] = []
    size = largest = count = 0
    end: Position | None = None
    with _reading:
        while count < limit and size + largest <= MAX_PAGE_BYTES:
            ahead.extend(islice(left, min(concurrency, limit - count)))
            if not ahead:
                return Page(items, None)
            for item in map_concurrently(render, list(ahead)):
                if size + largest > MAX_PAGE_BYTES:
                    break
                end = position(ahead.popleft())
                count = count + 1
                if item is not None:
                    items.append(item)
                    size = size + len(item)
                    largest = max(largest, len(item))
        is_last = not ahead and next(left, None) is None
    return Page(items, None if is_last else end)


def read_rows(
    read: Callable[[Position, int], Sequence[Listed]],
    position: Callable[[Listed], Position],
    after: Position,
    limit: int = sys.maxsize,
) -> Iterator[Listed]:
    """Up to ``limit`` rows behind the position ``after``, read when they are needed: see ``read_page``."""
    while limit:
        count = min(limit, _MAX_ROWS)
        rows = read(after, count)
        yield from rows
        if len(rows) < count:
            return
        after = position(rows[-1])
        limit = limit - count
