"""Moves the clock, and does everything that becomes due on the way, in the order of the times.

Usually the threads of ``process.background`` do this work. They are held up while the clock moves, so
nothing else happens meanwhile.
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
    """Moves a clock for one process: its tasks that become due, and its periodic jobs."""

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
        """Returns a context in which no thread does background work."""
        with self._gate.closed(self._resolver.end_waits):
            yield

    def pass_time(self, clock: AdjustableClock, target: datetime) -> None:
        """Move the clock to ``target``, and stop at each time at which something is due.

        Raises ServiceUnavailable if storage fails or the process ends. Then less time has passed.
        """
        # A storage whose clock can be moved has one living process. All others were killed, some so recently
        # that their silence does not show it yet.
        self._processes.take_over_all()
        self._resolver.handle_all()  # the effects that calls have left for later
        while not self._stopping.is_set() and (due := self._ledger.next_fires(target)):
            clock.move_to(due)
            self._ledger.fire()
            self._resolver.handle_all()
        if self._stopping.is_set():
            raise ServiceUnavailable(
                "the server is stopping or being reset: less time has passed than you asked for"
            )
        clock.move_to(target)
        self._ledger.fire()
        self._periodic_jobs.do_due(self._stopping)
        self._resolver.handle_all()
