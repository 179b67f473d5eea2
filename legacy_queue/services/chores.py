"""What is done now and then, by one process for all: sweeping, and removing what has expired.

A chore goes through its pages one after the other with a pause between them. Where it stopped is stored: the
next process to have its turn goes on there. Source: docs/explanation/recovery.md#periodic-jobs.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.ports import BrokerAway, Changed, Clock
from legacy_queue.services.gate import Gate
from legacy_queue.stores import Turn, Turns

log = structlog.get_logger()

LEASE = timedelta(seconds=15)  # short, so that what a dead process held goes on soon
PAGE = 100
RENEWED_EVERY = LEASE / 3
PAUSE = timedelta(seconds=0.5)  # between pages: at most 200 a second
_SHORTEST_SLEEP = timedelta(seconds=1)
_LONGEST_SLEEP = timedelta(minutes=1)  # the clock may be moved meanwhile
_NEXT_LOOK = timedelta(seconds=10)  # where storage could not be reached
_AFTER_A_FAILURE = timedelta(minutes=1)

# (after, limit, last_pass) -> where to go on, None at the end
Step = Callable[[str, int, datetime | None], str | None]


@dataclass(frozen=True)
class Chore:
    """``step`` does one page of it; a pass through all of them begins ``period`` after the last one ended."""

    name: str
    period: timedelta
    step: Step


class RenewedTurn:
    """A context in which this process keeps the turn, while it is alive and storage answers."""

    def __init__(self, turns: Turns, turn: Turn, clock: Clock, every: timedelta) -> None:
        self._turns, self._turn, self._clock, self._every = turns, turn, clock, every
        self._changed, self._is_ended = threading.Condition(), False
        self._renewing = threading.Thread(target=self._renew, name="renewal", daemon=True)

    def __enter__(self) -> "RenewedTurn":
        self._renewing.start()
        return self

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()
        self._renewing.join()

    def keep(self, cursor: str, since: datetime | None) -> None:
        """Note how far the work came; raises Changed where another process has taken the turn."""
        with self._changed:
            self._keep(self._clock.now() + LEASE, cursor, since)

    def release(self, until: datetime, cursor: str, since: datetime | None) -> None:
        """End it: the turn may be taken again from ``until`` on. Raises Changed."""
        with self._changed:
            self._is_ended = True
            self._keep(until, cursor, since)

    def _renew(self) -> None:
        with self._changed:
            while not self._changed.wait_for(lambda: self._is_ended, self._every.total_seconds()):
                with suppress(Changed, ServiceUnavailable):
                    self._keep(self._clock.now() + LEASE, self._turn.cursor, self._turn.since)

    def _keep(self, until: datetime, cursor: str, since: datetime | None) -> None:
        self._turn = self._turns.keep(self._turn, until, cursor, since)


class Chores:
    """Does each chore when it is due and no other process does."""

    def __init__(
        self,
        chores: Sequence[Chore],
        turns: Turns,
        clock: Clock,
        pause: timedelta = PAUSE,
        renewed_every: timedelta = RENEWED_EVERY,
    ) -> None:
        """``pause`` is that between pages. A turn is renewed every so often in real time, not the clock's."""
        self._chores, self._turns, self._clock = chores, turns, clock
        self._pause, self._renewed_every = pause.total_seconds(), renewed_every

    def run(self, stop: threading.Event, gate: Gate) -> None:
        """Do them until ``stop`` is set. A closed gate holds them up."""
        while not stop.is_set():
            try:
                with gate.pass_through():
                    due = self.do_due(stop)
            except Exception as error:
                due = self._clock.now() + _NEXT_LOOK
                if not isinstance(error, ServiceUnavailable):
                    log.exception("chore-failed")
            left = max(_SHORTEST_SLEEP, due - self._clock.now())
            while left > timedelta(0) and not stop.wait(min(_LONGEST_SLEEP, left).total_seconds()):
                left = due - self._clock.now()

    def do_due(self, stop: threading.Event) -> datetime:
        """Do what is due now; when the next one may be. Raises ServiceUnavailable."""
        return min([self._do(chore, stop) for chore in self._chores])

    def _do(self, chore: Chore, stop: threading.Event) -> datetime:
        turn = self._turns.take(f"chore-{chore.name}", self._clock.now() + LEASE)
        if not isinstance(turn, Turn):
            return turn
        try:
            with RenewedTurn(self._turns, turn, self._clock, self._renewed_every) as held:
                try:
                    return self._go_on(chore, turn, held, stop)
                except (Changed, ServiceUnavailable):
                    raise
                except BrokerAway:
                    log.warning("chore-waits", chore=chore.name)
                except Exception:
                    log.exception("chore-failed", chore=chore.name)
                next_time = self._clock.now() + _AFTER_A_FAILURE
                held.release(next_time, "", turn.since)  # at the beginning: the cursor may be at fault
                return next_time
        except Changed:
            log.info("chore-taken-over", chore=chore.name)
        return self._clock.now() + LEASE

    def _go_on(self, chore: Chore, turn: Turn, held: RenewedTurn, stop: threading.Event) -> datetime:
        """Page by page; when the chore may be due again. Raises Changed, ServiceUnavailable."""
        began, after = _began(turn.cursor) or (self._clock.now(), "")
        cursor = turn.cursor
        while not stop.is_set():
            gone_on = chore.step(after, PAGE, turn.since)
            if gone_on is None:
                next_time = self._clock.now() + chore.period
                held.release(next_time, "", began)
                return next_time
            after, cursor = gone_on, f"{format_time(began)} {gone_on}"
            held.keep(cursor, turn.since)
            stop.wait(self._pause)
        held.release(self._clock.now(), cursor, turn.since)  # for another process
        return self._clock.now() + LEASE


def _began(cursor: str) -> tuple[datetime, str] | None:
    """When the pass that was not finished began, and how far it came; None where the cursor does not say."""
    began, _, after = cursor.partition(" ")
    try:
        return parse_time(began), after
    except ValueError:
        return None
