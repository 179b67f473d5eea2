"""Long work in a request pauses now and then, so that the other requests of the process go on."""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

_MOMENT = 0.000_001  # seconds


def let_others_run() -> None:
    """Other requests of the process go on, also those that wait for their clients.

    gevent looks what has arrived only in every fiftieth sleep of no time, which may be a second later.
    """
    time.sleep(_MOMENT)


def yielding(items: Iterable[Item], count: int) -> Iterator[Item]:
    """The same items. Other requests of the process go on after each ``count`` of them, 5 ms or so."""
    for number, item in enumerate(items, 1):
        yield item
        if not number % count:
            let_others_run()
