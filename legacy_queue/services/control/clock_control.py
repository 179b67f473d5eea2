"""Shows and moves the clock of a server."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from legacy_queue.domain.errors import InputError, RequestConflict
from legacy_queue.domain.times import duration_words
from legacy_queue.ports import AdjustableClock, Clock
from legacy_queue.services.control.clock_mover import ClockMover

MAX_OFFSET = timedelta(days=36_500)  # how far the clock may be ahead of the real time


@dataclass(frozen=True)
class ClockState:
    """What the queue's clock shows.

    ``offset`` is the queue's time minus the real time. ``reason`` says why the clock cannot be moved.
    """

    now: datetime
    offset: timedelta
    is_frozen: bool
    reason: str = ""


class ClockControl:
    """Moves the clock. Raises RequestConflict if it cannot be moved. Source: docs/explanation/clock.md."""

    def __init__(
        self,
        clock: Clock,
        clock_mover: ClockMover,
        poll_now: Callable[[], None],
        record_move: Callable[[datetime, str, datetime, bool], None],
    ) -> None:
        """Takes two functions to call around a move of the clock.

        ``poll_now`` polls at once for the requests that wait for work. ``record_move`` gets the time before
        the move, a description, the time after the move, and whether the clock is frozen then.
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
        reason = f"the clock of this storage cannot be moved: use {usable}"
        return ClockState(self._clock.now(), timedelta(0), is_frozen=False, reason=reason)

    def freeze(self) -> None:
        """Stop the clock. Safe to repeat."""
        with self._moving("the clock was frozen") as clock:
            clock.freeze()

    def release(self) -> None:
        """Let the clock run on from the time that it shows. Safe to repeat."""
        with self._moving("the clock was released") as clock:
            clock.release()

    def advance(self, duration: timedelta) -> None:
        """Move the clock forward by ``duration``.

        Everything that becomes due is done in order before this returns, and after that the periodic jobs
        that are due. The clock stands still while something is done. Raises InputError if the new time is too
        far away. Raises ServiceUnavailable if storage fails or the server stops: then less time has passed.
        """
        with self._moving(f"the clock was moved by {duration_words(duration.total_seconds())}") as clock:
            if duration > MAX_OFFSET - clock.offset:
                raise InputError(
                    f"advance: expected a clock at most {MAX_OFFSET.days}d ahead of the real time. "
                    "To set it back, reset the server"
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
                # it failed half-way, but some time has passed for the tasks
                if self._movable.offset > offset:
                    passed = duration_words((self._clock.now() - begin).total_seconds())
                    self._record(begin, f"the clock was moved by {passed}, and no further")
                raise
            self._record(begin, what)

    def _record(self, begin: datetime, what: str) -> None:
        state = self.state()
        self._record_move(begin, what, state.now, state.is_frozen)
