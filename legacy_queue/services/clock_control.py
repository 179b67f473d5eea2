"""The clock of a server under control: what it says, and moving it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event

from legacy_queue.domain.errors import InputError, RequestConflict, ServiceUnavailable
from legacy_queue.ports import AdjustableClock, Clock
from legacy_queue.services.gate import Gate
from legacy_queue.services.periodic_jobs import PeriodicJobs
from legacy_queue.services.resolver import Resolver
from legacy_queue.services.timers import Timers

MAX_OFFSET = timedelta(days=36_500)  # from the real time


@dataclass(frozen=True)
class ClockState:
    """``offset``: how far the queue's time is from the real time. ``reason``: why it cannot be moved."""

    now: datetime
    offset: timedelta
    is_frozen: bool
    reason: str = ""


class ClockControl:
    """Moves the clock; raises RequestConflict where it cannot be moved.

    Source: docs/explanation/clock.md.
    """

    def __init__(
        self,
        clock: Clock,
        timers: Timers,
        resolver: Resolver,
        periodic_jobs: PeriodicJobs | None,
        gate: Gate,
        stopping: Event,
        poll_now: Callable[[], None],
    ) -> None:
        """``poll_now`` makes requests that wait for work look for it at once."""
        self._clock = clock
        self._movable = clock if isinstance(clock, AdjustableClock) else None
        self._timers, self._resolver, self._periodic_jobs = timers, resolver, periodic_jobs
        self._gate, self._stopping, self._poll_now = gate, stopping, poll_now

    def state(self) -> ClockState:
        if self._movable:
            return ClockState(self._clock.now(), self._movable.offset, self._movable.is_frozen)
        reason = "the storage has a clock of its own, which cannot be moved: use --storage memory"
        return ClockState(self._clock.now(), timedelta(0), is_frozen=False, reason=reason)

    def freeze(self) -> None:
        """Time stands still. Safe to repeat."""
        with self._moving() as clock:
            clock.freeze()

    def release(self) -> None:
        """Time goes on from where it stands. Safe to repeat."""
        with self._moving() as clock:
            clock.release()

    def advance(self, duration: timedelta) -> None:
        """Let so much time pass. What becomes due happens in the order of its times, before this returns.

        Then periodic jobs are done that are due. Time stands still while anything happens. Raises InputError
        for a time that is too far away; ServiceUnavailable: then less time has passed, as where the server
        stops.
        """
        with self._moving() as clock:
            if duration > MAX_OFFSET - clock.offset:
                raise InputError(
                    f"advance: the clock can be {MAX_OFFSET.days}d ahead at most: reset the server"
                )
            is_frozen = clock.is_frozen
            clock.freeze()
            try:
                self._pass_time(clock, clock.now() + duration)
            finally:
                if not is_frozen:
                    clock.release()
        self._poll_now()

    @contextmanager
    def _moving(self) -> Iterator[AdjustableClock]:
        if self._movable is None:
            raise RequestConflict(self.state().reason)
        with self._gate.closed(self._resolver.wake):
            yield self._movable

    def _pass_time(self, clock: AdjustableClock, target: datetime) -> None:
        self._resolver.handle_all()  # what calls have left behind
        while not self._stopping.is_set() and (due := self._timers.next_due(target)):
            clock.move_to(due)
            self._timers.fire()
            self._resolver.handle_all()
        if self._stopping.is_set():
            raise ServiceUnavailable("the server ends or is reset: less time has passed than was asked for")
        clock.move_to(target)
        self._timers.tick()  # its messages are visible by now
        if self._periodic_jobs:
            self._periodic_jobs.do_due(self._stopping)
            self._resolver.handle_all()
