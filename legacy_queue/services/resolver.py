"""Handles the timers that have fired: a few at a time, so that calls are not slowed."""

import threading
import time
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports import BrokerAway, Clock, Corrupt
from legacy_queue.services.advance import Advance
from legacy_queue.services.gate import Gate
from legacy_queue.services.groups import Groups
from legacy_queue.services.timer_state import Due
from legacy_queue.services.timers import LEASE, Timers

log = structlog.get_logger()

RESOLVERS = 2  # threads: so few that calls are not slowed by many timers
_MAX_TRIES = 10
_TRY_AGAIN = timedelta(seconds=2)  # where storage or the broker is away
_LONGEST_PAUSE = timedelta(minutes=2)  # between tries of a timer whose handling fails
_WRITTEN_WITHIN = timedelta(minutes=10)  # after this it is certain that a call did not come to its write


class Resolver:
    """Any number of threads may ``run`` it."""

    def __init__(self, timers: Timers, advance: Advance, groups: Groups, clock: Clock) -> None:
        self._timers, self._advance, self._groups, self._clock = timers, advance, groups, clock

    def run(self, stop: threading.Event, gate: Gate) -> None:
        """Handle timers until ``stop`` is set; ``wake`` then. A closed gate holds them up."""
        while not stop.is_set():
            with gate.pass_through():
                due = self._timers.take(timeout=1)
                if due:
                    self._handle(due)

    def wake(self) -> None:
        """End the waits of all threads."""
        for _ in range(RESOLVERS):
            self._timers.wake()

    def handle_all(self) -> int:
        """Handle what has fired by now; how many timers that were."""
        count = 0
        while due := self._timers.take(timeout=None):
            self._handle(due)
            count += 1
            time.sleep(0)  # other greenlets have their turn
        return count

    def _handle(self, due: Due) -> None:
        try:
            self._advance_task(due)
        except ServiceUnavailable:
            self._try_again(due, _TRY_AGAIN, due.tries)
        except Corrupt:
            self._timers.complete(due.task_id, None)  # it is logged, and no retry cures it
        except Exception:
            log.exception("timer-failed", task_id=due.task_id, tries=due.tries)
            if due.tries >= _MAX_TRIES:
                log.error("timer-abandoned", task_id=due.task_id)  # the sweeper looks at the task
                self._timers.complete(due.task_id, None)
            else:
                pause = min(_LONGEST_PAUSE, timedelta(seconds=2**due.tries))
                self._try_again(due, pause, due.tries + 1)

    def _advance_task(self, due: Due) -> None:
        try:
            result = self._advance(
                due.task_id,
                due.since,
                due.artifacts,
                due.task_group_id,
                is_published=due.is_published,
                recalls=due.is_published and due.since is not None,  # this process has just written it
            )
            next_due, now = result.due, self._clock.now()
            age = now - due.since if due.since else None
            if age is not None and age < _WRITTEN_WITHIN and not result.is_there:
                self._try_again(due, max(LEASE, age), due.tries)  # it may be created yet
                return
            if due.task_group_id and not result.is_there:
                self._groups.leave(due.task_id, due.task_group_id)
        except BrokerAway:
            self._go_on_without_broker(due)
            return
        if age is not None and due.is_foreign and age < _WRITTEN_WITHIN:
            last_look = now + _WRITTEN_WITHIN
            next_due = min(next_due, last_look) if next_due else last_look
        self._timers.complete(due.task_id, next_due)

    def _go_on_without_broker(self, due: Due) -> None:
        """Publish later. What needs no broker is done now, once, and when the task is due."""
        next_due = due.due
        if not due.is_published and (not due.tries or (next_due and self._clock.now() >= next_due)):
            next_due = self._advance(due.task_id).due
            if next_due is None:  # it has ended
                with suppress(BrokerAway):  # its group is resolved
                    self._advance(due.task_id, due.since, is_published=True)
        self._try_again(replace(due, due=next_due), _TRY_AGAIN, max(due.tries, 1))

    def _try_again(self, due: Due, after: timedelta, tries: int) -> None:
        self._timers.fall_behind(
            due.task_id, due.due, is_published=due.is_published, again=after, tries=tries
        )
