"""The threads of a server process: they end when the process does, and leave nothing half-done."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.services.event_publisher import EventPublisher
from legacy_queue.services.gate import Gate
from legacy_queue.services.periodic_jobs import PeriodicJobs
from legacy_queue.services.resolver import RESOLVERS, Resolver
from legacy_queue.services.timers import Timers

log = structlog.get_logger()

_END = 10  # seconds that what is under way has left

Flush = Callable[[], None]  # writes down what is only in memory; may raise ServiceUnavailable


@dataclass(frozen=True)
class Pace:
    """How often is done what is repeated."""

    tick: timedelta = timedelta(seconds=0.5)
    check: timedelta = timedelta(seconds=1)  # whether the broker is back
    receive: timedelta = timedelta(seconds=5)  # so what a killed process has left goes on within 30 s
    flush: timedelta = timedelta(seconds=10)
    flush_soon: timedelta = timedelta(seconds=0.5)


class Background:
    """``periodic_jobs`` is None where another process resolves: then timers of others are not received
    either.

    ``waiting`` are called once ``stopping`` is set: each wakes requests that wait, which then end.
    """

    def __init__(
        self,
        timers: Timers,
        resolver: Resolver,
        publisher: EventPublisher,
        periodic_jobs: PeriodicJobs | None,
        flushes: Sequence[Flush],
        stopping: threading.Event,
        waiting: Sequence[Callable[[], None]] = (),
        soon: Flush = lambda: None,
        pace: Pace = Pace(),
        gate: Gate | None = None,
    ) -> None:
        """``soon`` writes a little of what is not to wait for ``flushes``. A closed ``gate`` holds all up."""
        self._gate = gate or Gate()
        self._timers, self._publisher, self._flushes = timers, publisher, flushes
        self.stopping, self._waiting = stopping, (resolver.wake, *waiting)
        self._loops: list[Callable[[], None]] = [
            partial(self._repeat, timers.tick, pace.tick),
            partial(self._repeat, publisher.check, pace.check),
            partial(self._repeat, soon, pace.flush_soon),
            *(partial(self._repeat, flush, pace.flush) for flush in flushes),
            *[partial(resolver.run, stopping, self._gate)] * RESOLVERS,
        ]
        if periodic_jobs:
            receive = partial(self._repeat, self._receive, pace.receive)
            self._loops += [receive, partial(periodic_jobs.run, stopping, self._gate)]
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads, in the process that is to have them."""
        for loop in self._loops:
            thread = threading.Thread(target=loop, daemon=True)
            thread.start()
            self._threads.append(thread)  # not before: it may be stopped meanwhile

    def begin_stop(self) -> None:
        """Nothing new begins, and requests that wait are answered. Returns at once, may be repeated."""
        self.stopping.set()
        for wake in self._waiting:
            wake()

    @property
    def is_running(self) -> bool:
        """Whether the threads were started."""
        return bool(self._threads)

    def stop(self) -> None:
        """End them after what they are at, and leave what is to be done to other processes."""
        self._end()
        for act in (self._timers.leave, *self._flushes):
            _try(act)
        self._publisher.close()

    def abandon(self) -> None:
        """End them after what they are at; what is to be done is not done by anybody."""
        self._end()
        self._publisher.close()

    def _end(self) -> None:
        self.begin_stop()
        end = time.monotonic() + _END
        for thread in self._threads:
            thread.join(max(0, end - time.monotonic()))

    def _receive(self) -> None:
        while not self.stopping.is_set() and self._timers.receive():
            pass

    def _repeat(self, act: Flush, every: timedelta) -> None:
        while not self.stopping.wait(every.total_seconds()):
            with self._gate.pass_through():
                _try(act)


def _try(act: Flush) -> None:
    try:
        act()
    except ServiceUnavailable:
        log.warning("background-delayed", act=act.__qualname__)  # it is tried again
    except Exception:
        log.exception("background-failed", act=act.__qualname__)
