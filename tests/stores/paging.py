"""Reads lists page by page."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from legacy_queue.stores import Expiring


def pages(ask: Callable[[str], Any]) -> Iterator[Any]:
    """The pages of ``ask``, each beginning where the last ended."""
    after: str | None = ""
    while after is not None:
        page, after = ask(after)
        yield page


def keyed_pages(
    ask: Callable[[str, int], Sequence[Any]], limit: int, key: Callable[[Any], str] = str
) -> list[Sequence[Any]]:
    """The pages of ``ask``, up to the first short page."""
    after = ""
    found: list[Sequence[Any]] = []
    while not found or len(found[-1]) == limit:
        found.append(ask(after, limit))
        after = key(found[-1][-1]) if found[-1] else after
    return found


def remove_all_expired(expiring: Expiring, now: Any, limit: int = 100) -> None:
    after: str | None = ""
    while after is not None:
        after = expiring.remove_expired(now, after, limit)
