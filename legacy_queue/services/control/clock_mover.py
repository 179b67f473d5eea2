"""What a process does when its time has come, in the order of the times, while a clock is moved.

Otherwise threads do it (``process.background``): while they are held up, nothing else happens.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from threading import Event

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports import AdjustableClock
from legacy_queue.services.background_gate import BackgroundGate
from legacy_queue.services.process.ledger import Ledger
from legacy_queue.services.process.processes import Processes
from legacy_queue.services.recovery.periodic_jobs import PeriodicJobs
from legacy_queue.services.recovery.resolver import Resolver


class ClockMover:
    """The tasks that are due and the periodic jobs of a process."""

    def __init__(
        self,
        processes: Processes,
        ledger: Ledger,
        resolver: Resolver,
        periodic_jobs: PeriodicJobs,
        gate: BackgroundGate,
        stopping: Event,
    ) -> None:
        self._processes = processes
        self._ledger = ledger
        self._resolver = resolver
        self._periodic_jobs = periodic_jobs
        self._gate = gate
        self._stopping = stopping

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """A context in which no thread does it."""
        with self._gate.closed(self._resolver.end_waits):
            yield

    def pass_time(self, clock: AdjustableClock, target: datetime) -> None:
        """Move the clock to that time, and stop at each time at which something is due.

        Raises ServiceUnavailable if storage fails or the process ends: then less time has passed.
        """
        # whoever was killed is not silent for long yet; no other process lives where a clock can be moved
        self._processes.take_over_all()
        self._resolver.handle_all()  # effects that calls have deferred
        while not self._stopping.is_set() and (due := self._ledger.next_fires(target)):
            clock.move_to(due)
            self._ledger.fire()
            self._resolver.handle_all()
        if self._stopping.is_set():
            raise ServiceUnavailable("the server ends or is reset: less time has passed than was asked for")
        clock.move_to(target)
        self._ledger.fire()
        self._periodic_jobs.do_due(self._stopping)
        self._resolver.handle_all()
