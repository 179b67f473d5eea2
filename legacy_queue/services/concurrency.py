"""Concurrent calls, a bound on them, and a call that several threads share."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from threading import Event, Lock
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Threads = Callable[[int], Executor]  # makes a pool for that number of concurrent calls

_MAX_THREADS = 16
_BATCH = 256  # calls that are submitted before other greenlets run


def map_concurrently(
    function: Callable[[Item], Answer], items: Sequence[Item], threads: Threads = ThreadPoolExecutor
) -> list[Answer]:
    """The function's answers, in the order of the items.

    Raises the first error once all calls of its batch have ended; later batches are not called then.
    """
    if len(items) < 2:
        return [function(item) for item in items]
    answers: list[Answer] = []
    with threads(min(_MAX_THREADS, len(items))) as pool:
        for start in range(0, len(items), _BATCH):
            futures = [pool.submit(function, item) for item in items[start : start + _BATCH]]
            answers += [future.result() for future in futures]
    return answers


class Turns:
    """A fixed number of turns at a time, in the order in which they were asked for."""

    def __init__(self, count: int) -> None:
        self._free, self._waiting = count, dict[Event, None]()
        self._lock = Lock()

    @contextmanager
    def turn(self, wake: Event, is_urgent: Callable[[], bool]) -> Iterator[None]:
        """Wait for a turn, or until the caller, which may set ``wake``, is urgent: then it needs none."""
        with self._lock:
            self._waiting[wake] = None
        while not (has_turn := self._take(wake)) and not is_urgent():
            wake.wait()
            wake.clear()
        try:
            yield
        finally:
            with self._lock:
                self._waiting.pop(wake, None)
                self._free += has_turn
                for waiting in islice(self._waiting, self._free):
                    waiting.set()

    def _take(self, wake: Event) -> bool:
        with self._lock:
            is_next = wake in islice(self._waiting, self._free)
            if is_next:
                del self._waiting[wake]
                self._free -= 1
            return is_next


class SingleFlight(Generic[Answer]):
    """Callers that come while a call is under way share its answer or its error."""

    def __init__(self, function: Callable[[], Answer]) -> None:
        self._function, self._lock = function, Lock()
        self._flight: Future[Answer] | None = None

    def call(self) -> Answer:
        """Returns or raises what the function does."""
        with self._lock:
            flight, is_mine = self._flight or Future[Answer](), self._flight is None
            self._flight = flight
        if is_mine:
            try:
                flight.set_result(self._function())
            except BaseException as error:  # noqa: BLE001 - raised by each caller, also where a thread is ended
                flight.set_exception(error)
            finally:
                with self._lock:
                    self._flight = None
        return flight.result()
