"""Shows and moves the clock of a server."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from legacy_queue.domain.errors import InputError, RequestConflict
from legacy_queue.domain.times import duration_words
from legacy_queue.ports import AdjustableClock, Clock
from legacy_queue.services.control.clock_mover import ClockMover

MAX_OFFSET = timedelta(days=36_500)  # from the real time


@dataclass(frozen=True)
class ClockState:
    """``offset`` is the queue's time minus the real time. ``reason`` says why the clock cannot be moved."""

    now: datetime
    offset: timedelta
    is_frozen: bool
    reason: str = ""


class ClockControl:
    """Moves the clock. Raises RequestConflict if it cannot be moved.

    Source: docs/explanation/clock.md.
    """

    def __init__(
        self,
        clock: Clock,
        clock_mover: ClockMover,
        poll_now: Callable[[], None],
        record_move: Callable[[datetime, str, datetime, bool], None],
    ) -> None:
        """``poll_now`` polls at once for the requests that wait for work. ``record_move`` is called with the
        time before a move, the words for it, the time after it, and whether the clock stands still then.
        """
        self._clock = clock
        self._movable = clock if isinstance(clock, AdjustableClock) else None
        self._clock_mover = clock_mover
        self._poll_now = poll_now
        self._record_move = record_move

    def state(self) -> ClockState:
        if self._movable:
            return ClockState(self._clock.now(), self._movable.offset, self._movable.is_frozen)
        usable = "--storage embedded or --storage memory"
        reason = f"the storage has a clock of its own, which cannot be moved: use {usable}"
        return ClockState(self._clock.now(), timedelta(0), is_frozen=False, reason=reason)

    def freeze(self) -> None:
        """Stop the clock. Safe to repeat."""
        with self._moving("the clock was frozen") as clock:
            clock.freeze()

    def release(self) -> None:
        """Let the clock go on from its time. Safe to repeat."""
        with self._moving("the clock was released") as clock:
            clock.release()

    def advance(self, duration: timedelta) -> None:
        """Let ``duration`` pass. What becomes due is done before this returns, in order.

        Then the periodic jobs that are due run. The clock stands still while something happens. Raises
        InputError if the new time is too far away; ServiceUnavailable if storage fails or the server stops:
        then less time has passed.
        """
        with self._moving(f"the clock was moved by {duration_words(duration.total_seconds())}") as clock:
            if duration > MAX_OFFSET - clock.offset:
                raise InputError(
                    f"advance: the clock can be {MAX_OFFSET.days}d ahead at most: reset the server"
                )
            is_frozen = clock.is_frozen
            clock.freeze()
            try:
                self._clock_mover.pass_time(clock, clock.now() + duration)
            finally:
                if not is_frozen:
                    clock.release()
        self._poll_now()

    @contextmanager
    def _moving(self, what: str) -> Iterator[AdjustableClock]:
        if self._movable is None:
            raise RequestConflict(self.state().reason)
        with self._clock_mover.held_up():
            begin = self._clock.now()
            offset = self._movable.offset
            try:
                yield self._movable
            except Exception:
                if self._movable.offset > offset:  # it failed half-way: until then time has passed for tasks
                    passed = duration_words((self._clock.now() - begin).total_seconds())
                    self._record(begin, f"the clock was moved by {passed}, and no further")
                raise
            self._record(begin, what)

    def _record(self, begin: datetime, what: str) -> None:
        state = self.state()
        self._record_move(begin, what, state.now, state.is_frozen)
