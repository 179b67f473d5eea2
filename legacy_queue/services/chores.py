"""What is done now and then, by one process for all: sweeping, and removing what has expired.

A chore goes through its pages one after the other with a pause between them. Where it stopped is stored: the
next process to have its turn goes on there. Source: "Timers" in design/protocol.md.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.ports import Changed, Clock, Turn, Turns

log = structlog.get_logger()

PAGE = 100
_PAUSE = timedelta(seconds=0.5)  # between pages: at most 200 a second
_TURN = timedelta(minutes=5)  # longer than a page takes
_NEXT_LOOK = timedelta(minutes=1)  # where storage could not be reached

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
        turn = self._turns.take(f"chore-{chore.name}", self._clock.now() + _TURN)
        if not isinstance(turn, Turn):
            return turn
        began, after = _began(turn.cursor) or (self._clock.now(), "")
        try:
            while not stop.is_set():
                gone_on = chore.step(after, PAGE, turn.since)
                if gone_on is None:
                    next_time = self._clock.now() + chore.period
                    self._turns.keep(turn, next_time, "", began)
                    return next_time
                after = gone_on
                cursor = f"{format_time(began)} {after}"
                turn = self._turns.keep(turn, self._clock.now() + _TURN, cursor, turn.since)
                stop.wait(_PAUSE.total_seconds())
            self._turns.keep(turn, self._clock.now(), turn.cursor, turn.since)  # for another process
        except Changed:
            log.info("chore-taken-over", chore=chore.name)
        except ServiceUnavailable:
            raise
        except Exception:
            log.exception("chore-failed", chore=chore.name)
            return self._begin_anew(turn)
        return self._clock.now() + _TURN

    def _begin_anew(self, turn: Turn) -> datetime:
        """The next pass starts at the beginning: perhaps the place fails where this one stopped."""
        next_time = self._clock.now() + _NEXT_LOOK
        with suppress(Changed):
            self._turns.keep(turn, next_time, "", turn.since)
        return next_time


def _began(cursor: str) -> tuple[datetime, str] | None:
    """When the pass that was not finished began, and how far it came; None where the cursor does not say."""
    began, _, after = cursor.partition(" ")
    try:
        return parse_time(began), after
    except ValueError:
        return None
