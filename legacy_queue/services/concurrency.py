"""Concurrent calls, a bound on them, and a call that several threads share."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from threading import Event, Lock
from typing import Generic, TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")
Threads = Callable[[int], Executor]  # makes a pool for that number of concurrent calls

_MAX_THREADS = 16
_BATCH = 256  # calls that are submitted before other greenlets run


def map_concurrently(
    function: Callable[[Argument], Result], items: Sequence[Argument], threads: Threads = ThreadPoolExecutor
) -> list[Result]:
    """The function's answers, in the order of the items.

    Raises the first error once all calls of its batch have ended; later batches are not called then.
    """
    if len(items) < 2:
        return [function(item) for item in items]
    answers: list[Result] = []
    with threads(min(_MAX_THREADS, len(items))) as pool:
        for start in range(0, len(items), _BATCH):
            futures = [pool.submit(function, item) for item in items[start : start + _BATCH]]
            answers += [future.result() for future in futures]
    return answers


class Turns:
    """A fixed number of turns at a time, in the order in which they were asked for."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting = dict[Event, None]()
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


class SingleFlight(Generic[Result]):
    """Callers that come while a call is under way share its answer or its error."""

    def __init__(self, function: Callable[[], Result]) -> None:
        self._function = function
        self._lock = Lock()
        self._flight: Future[Result] | None = None

    def call(self) -> Result:
        """Returns or raises what the function does."""
        with self._lock:
            flight = self._flight or Future[Result]()
            is_mine = self._flight is None
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
