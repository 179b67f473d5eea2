"""The threads of a server process. They end with the process and leave no work half done."""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports import Waiter
from legacy_queue.services.events.event_publisher import EventPublisher
from legacy_queue.services.gate import Gate
from legacy_queue.services.recovery.jobs import RESOLVERS, Pace
from legacy_queue.services.recovery.periodic_jobs import PeriodicJobs
from legacy_queue.services.recovery.resolver import Resolver
from legacy_queue.services.recovery.timers import Timers
from legacy_queue.services.workers.workers import Workers

log = structlog.get_logger()

_STOP_TIMEOUT = 10  # seconds for the work under way
_RESTART_AFTER = 1.0  # seconds

Act = Callable[[], None]  # may raise ServiceUnavailable


class Background:
    """Runs the repeated work of a process in threads.

    ``wakes`` are called after ``stopping`` is set: each wakes waiting requests, which then end.
    """

    def __init__(
        self,
        timers: Timers,
        workers: Workers,
        resolver: Resolver,
        publisher: EventPublisher,
        periodic_jobs: PeriodicJobs,
        stopping: threading.Event,
        wakes: Sequence[Callable[[], None]],
        pace: Pace,
        gate: Gate,
        waiter: Waiter,
        watch: Act,
        watch_interval: timedelta | None,
    ) -> None:
        """A closed ``gate`` holds all threads up."""
        self._timers = timers
        self._workers = workers
        self._publisher = publisher
        self._gate = gate
        self.stopping = stopping
        self._waiter = waiter
        self._wakes = (resolver.wake, *wakes)
        self._loops: list[Callable[[], None]] = [
            partial(self._repeat, timers.tick, pace.tick),
            partial(self._repeat, workers.flush, pace.flush),
            partial(self._repeat, self._check_broker, pace.check),
            partial(self._repeat, self._receive, pace.receive),
            *[partial(resolver.run, stopping, gate)] * RESOLVERS,
            partial(periodic_jobs.run, stopping, gate),
        ]
        self._watch = watch
        if watch_interval:
            self._loops.append(partial(self._repeat, watch, watch_interval))
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads. Call it in the process that serves, after any fork."""
        _try(self._check_broker)  # consumers bind once the process is ready
        for loop in self._loops:
            thread = threading.Thread(target=self._keep_running, args=[loop], daemon=True)
            thread.start()
            self._threads.append(thread)  # after its start: stop() joins it

    def begin_stop(self) -> None:
        """Begin no new work, and answer waiting requests. Returns at once. Safe to repeat."""
        self.stopping.set()
        for wake in self._wakes:
            wake()

    @property
    def is_running(self) -> bool:
        """Whether the threads were started."""
        return bool(self._threads)

    def stop(self) -> None:
        """End the threads after their work under way, and leave the timers to other processes."""
        self._end()
        self._workers.note_counted()
        self._workers.flush()
        _try(self._timers.hand_over)
        _try(self._watch)  # it tells the last offers
        self._publisher.close()

    def abandon(self) -> None:
        """End the threads after their work under way. The rest of the work is dropped."""
        self._end()
        self._publisher.close()

    def _end(self) -> None:
        self.begin_stop()
        end = time.monotonic() + _STOP_TIMEOUT
        for thread in self._threads:
            thread.join(max(0, end - time.monotonic()))

    def _check_broker(self) -> None:
        if self._publisher.check():
            self._timers.retry_now()

    def _receive(self) -> None:
        while not self.stopping.is_set() and self._timers.receive():
            pass

    def _keep_running(self, loop: Act) -> None:
        """Begin the loop again if it ends by a defect: without it the process would still look well."""
        while not self.stopping.is_set():
            try:
                loop()
            except Exception:
                log.exception("background-restarted")
                self._waiter.wait(self.stopping, _RESTART_AFTER)

    def _repeat(self, act: Act, every: timedelta) -> None:
        while not self._waiter.wait(self.stopping, every.total_seconds()):
            with self._gate.pass_through():
                _try(act)


def _try(act: Act) -> None:
    try:
        act()
    except ServiceUnavailable:
        log.warning("background-delayed", act=act.__qualname__)  # it is repeated
    except Exception:
        log.exception("background-failed", act=act.__qualname__)
