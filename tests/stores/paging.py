"""Reads lists page by page."""

from collections.abc import Callable, Iterator
from typing import Any

from legacy_queue.stores import Expiring


def pages(ask: Callable[[str], Any]) -> Iterator[Any]:
    """Calls ``ask`` for one page after the other. Each page begins where the one before it ended."""
    after: str | None = ""
    while after is not None:
        page, after = ask(after)
        yield page


def remove_all_expired(expiring: Expiring, now: Any, limit: int = 100) -> None:
    after: str | None = ""
    while after is not None:
        after = expiring.remove_expired(now, after, limit)
