"""Long work in a request pauses now and then, so that the other requests of the process go on."""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

_MOMENT = 0.000_001  # seconds


def let_others_run() -> None:
    """Let other requests of the process go on, even those that wait for their clients.

    A sleep of zero is not enough: gevent looks for new data only in every fiftieth of them, which may be a
    second later.
    """
    time.sleep(_MOMENT)


def yielding(items: Iterable[Item], count: int) -> Iterator[Item]:
    """Yields the same items. After each ``count`` of them, which should take about 5 ms, others go on."""
    for number, item in enumerate(items, 1):
        yield item
        if not number % count:
            let_others_run()
