"""Reads lists page by page. A page is limited in items and in bytes, and few pages are read at the same time.

A list is read a few rows at a time. Each item becomes JSON at once, so that no page is in memory twice. The
server limits how many pages wait for their clients: see ``server.client_socket``.
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

MAX_PAGE_BYTES = 4 * 1024 * 1024  # approximate size of the JSON
_MAX_ROWS = 100  # in one read

_reading = BoundedSemaphore(8)  # pages read at the same time in this process; each may take megabytes


@dataclass(frozen=True)
class Page(Generic[Position]):
    """A page: its items as JSON. The list continues after the position ``after``. At the end that is None."""

    items: Sequence[bytes]
    after: Position | None
    total: int | None = None  # items of the whole list, if their number is known


def read_page(
    read: Callable[[Position, int], Sequence[Listed]],
    position: Callable[[Listed], Position],
    after: Position,
    limit: int,
    render: Callable[[Listed], bytes | None],
    concurrency: int = 1,
) -> Page[Position]:
    """Returns a page of ``limit`` rows after the position ``after``. It ends early at about
    ``MAX_PAGE_BYTES``.

    ``read`` returns the wanted number of rows after a position, and fewer only at the end of the list.
    ``position`` returns the position of a row. If ``render`` returns None for a row, the row counts, but is
    left out. ``concurrency`` rows are rendered at the same time.
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
    """Yields up to ``limit`` rows after the position ``after``. They are read when they are needed.

    The parameters are as for ``read_page``.
    """
    while limit:
        count = min(limit, _MAX_ROWS)
        rows = read(after, count)
        yield from rows
        if len(rows) < count:
            return
        after = position(rows[-1])
        limit = limit - count
