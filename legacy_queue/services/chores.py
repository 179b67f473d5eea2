"""What is done now and then, by one process for all: sweeping, and removing what has expired.

A chore goes through its pages one after the other with a pause between them. Where it stopped is stored: the
next process to have its turn goes on there. Source: "Timers" in design/protocol.md.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.ports import BrokerAway, Changed, Clock
from legacy_queue.services.leases import LEASE, RenewedTurn
from legacy_queue.stores import Turn, Turns

log = structlog.get_logger()

PAGE = 100
_PAUSE = timedelta(seconds=0.5)  # between pages: at most 200 a second
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


class Chores:
    """Does each chore when it is due and nobody else does."""

    def __init__(self, chores: Sequence[Chore], turns: Turns, clock: Clock) -> None:
        self._chores, self._turns, self._clock = chores, turns, clock

    def run(self, stop: threading.Event) -> None:
        """Do them until ``stop`` is set."""
        while not stop.is_set():
            try:
                due = self.do_due(stop)
            except ServiceUnavailable:
                due = self._clock.now() + _NEXT_LOOK
            except Exception:
                log.exception("chore-failed")
                due = self._clock.now() + _NEXT_LOOK
            stop.wait(max(1.0, (due - self._clock.now()).total_seconds()))

    def do_due(self, stop: threading.Event) -> datetime:
        """Do what is due now; when the next one may be. Raises ServiceUnavailable."""
        return min([self._do(chore, stop) for chore in self._chores])

    def _do(self, chore: Chore, stop: threading.Event) -> datetime:
        turn = self._turns.take(f"chore-{chore.name}", self._clock.now() + LEASE)
        if not isinstance(turn, Turn):
            return turn
        try:
            with RenewedTurn(self._turns, turn, self._clock) as held:
                try:
                    return self._go_on(chore, turn, held, stop)
                except (Changed, ServiceUnavailable):
                    raise
                except Exception as error:
                    if isinstance(error, BrokerAway):
                        log.warning("chore-waits", chore=chore.name)
                    else:
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
            after = gone_on
            cursor = f"{format_time(began)} {after}"
            held.keep(cursor, turn.since)
            stop.wait(_PAUSE.total_seconds())
        held.release(self._clock.now(), cursor, turn.since)  # for another process
        return self._clock.now() + LEASE


def _began(cursor: str) -> tuple[datetime, str] | None:
    """When the pass that was not finished began, and how far it came; None where the cursor does not say."""
    began, _, after = cursor.partition(" ")
    try:
        return parse_time(began), after
    except ValueError:
        return None
