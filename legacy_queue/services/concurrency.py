"""Calls a function concurrently for many items, and shares one call between several threads."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from threading import Lock
from typing import Generic, TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")
Threads = Callable[[int], Executor]  # makes a thread pool for this number of concurrent calls

_MAX_THREADS = 16
_BATCH = 256  # calls that are submitted together; after them, other greenlets run


def map_concurrently(
    function: Callable[[Argument], Result], items: Sequence[Argument], threads: Threads = ThreadPoolExecutor
) -> list[Result]:
    """Returns the function's result for each item, in the order of the items.

    If a call fails, raises the first error after all calls of its batch. Later batches are not called.
    """
    if len(items) < 2:
        return [function(item) for item in items]
    answers: list[Result] = []
    with threads(min(_MAX_THREADS, len(items))) as pool:
        for start in range(0, len(items), _BATCH):
            futures = [pool.submit(function, item) for item in items[start : start + _BATCH]]
            answers += [future.result() for future in futures]
    return answers


class SingleFlight(Generic[Result]):
    """Calls a function once for all callers that come during the call. They share its result or its error."""

    def __init__(self, function: Callable[[], Result]) -> None:
        self._function = function
        self._lock = Lock()
        self._flight: Future[Result] | None = None

    def call(self) -> Result:
        """Returns what the function returns, or raises what it raises."""
        with self._lock:
            flight = self._flight or Future[Result]()
            is_mine = self._flight is None
            self._flight = flight
        if is_mine:
            try:
                flight.set_result(self._function())
            except BaseException as error:  # noqa: BLE001 - each caller raises it, even if a thread was ended
                flight.set_exception(error)
            finally:
                with self._lock:
                    self._flight = None
        return flight.result()
