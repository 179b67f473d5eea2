"""Reads lists page by page."""

from collections.abc import Callable, Iterator
from typing import Any

from legacy_queue.stores import Expiring


def pages(ask: Callable[[str], Any]) -> Iterator[Any]:
    """The pages of ``ask``, each beginning where the last ended."""
    after: str | None = ""
    while after is not None:
        page, after = ask(after)
        yield page


def remove_all_expired(expiring: Expiring, now: Any, limit: int = 100) -> None:
    after: str | None = ""
    while after is not None:
        after = expiring.remove_expired(now, after, limit)
