"""Waiting for several answers of storage at once."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Threads = Callable[[int], Executor]  # for up to so many concurrent calls

_AT_ONCE = 16


def map_concurrently(
    function: Callable[[Item], Answer], items: Sequence[Item], threads: Threads = ThreadPoolExecutor
) -> list[Answer]:
    """The function's answers, in the order of the items; raises its first error, after all were done."""
    if len(items) < 2:
        return [function(item) for item in items]
    with threads(min(_AT_ONCE, len(items))) as pool:
        futures = [pool.submit(function, item) for item in items]
    return [future.result() for future in futures]
