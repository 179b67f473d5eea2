"""Handles fired timers, a few at a time, so that they do not slow calls."""

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

RESOLVERS = 2  # threads: few, so that many timers do not slow calls
_MAX_TRIES = 10
_RETRY_DELAY = timedelta(seconds=2)  # while storage or the broker is away
_MAX_DELAY = timedelta(minutes=2)  # between tries after an error
_WRITTEN_WITHIN = timedelta(minutes=10)  # a call that has not written by then never will


class Resolver:
    """Advances the tasks of fired timers. Any number of threads may ``run`` it."""

    def __init__(self, timers: Timers, advance: Advance, groups: Groups, clock: Clock) -> None:
        self._timers, self._advance, self._groups, self._clock = timers, advance, groups, clock

    def run(self, stop: threading.Event, gate: Gate) -> None:
        """Handle timers until ``stop`` is set and ``wake`` is called. A closed gate holds this up."""
        while not stop.is_set():
            with gate.pass_through():
                due = self._timers.next_fired(timeout=1)
                if due:
                    self._handle(due)

    def wake(self) -> None:
        """End the waits of all threads."""
        for _ in range(RESOLVERS):
            self._timers.wake()

    def handle_all(self) -> int:
        """Handle the timers that have fired by now. Returns their number."""
        count = 0
        while due := self._timers.next_fired(timeout=None):
            self._handle(due)
            count += 1
            time.sleep(0)  # let other greenlets run
        return count

    def _handle(self, due: Due) -> None:
        try:
            self._advance_task(due)
        except ServiceUnavailable:
            self._retry(due, _RETRY_DELAY, due.tries)
        except Corrupt:
            self._timers.complete(due.task_id, None)  # it is logged; a retry reads the same row
        except Exception:
            log.exception("timer-failed", task_id=due.task_id, tries=due.tries)
            if due.tries >= _MAX_TRIES:
                log.error("timer-abandoned", task_id=due.task_id)  # the sweeper checks the task
                self._timers.complete(due.task_id, None)
            else:
                delay = min(_MAX_DELAY, timedelta(seconds=2**due.tries))
                self._retry(due, delay, due.tries + 1)

    def _advance_task(self, due: Due) -> None:
        try:
            result = self._advance(
                due.task_id,
                due.since,
                due.artifacts,
                due.task_group_id,
                is_published=due.is_published,
                recalls=due.is_published and due.since is not None,  # this process wrote it just now
            )
            next_due, now = result.due, self._clock.now()
            age = now - due.since if due.since else None
            if age is not None and age < _WRITTEN_WITHIN and not result.is_there:
                self._retry(due, max(LEASE, age), due.tries)  # the call may still create it
                return
            if due.task_group_id and not result.is_there:
                self._groups.leave(due.task_id, due.task_group_id)
        except BrokerAway:
            self._advance_without_broker(due)
            return
        if age is not None and due.is_foreign and age < _WRITTEN_WITHIN:
            last_check = now + _WRITTEN_WITHIN
            next_due = min(next_due, last_check) if next_due else last_check
        self._timers.complete(due.task_id, next_due)

    def _advance_without_broker(self, due: Due) -> None:
        """Retry later. The effects without the broker are applied now, once, and when the task is due."""
        next_due = due.due
        if not due.is_published and (not due.tries or (next_due and self._clock.now() >= next_due)):
            next_due = self._advance(due.task_id).due
            if next_due is None:  # it has ended
                with suppress(BrokerAway):  # its group is resolved
                    self._advance(due.task_id, due.since, is_published=True)
        self._retry(replace(due, due=next_due), _RETRY_DELAY, max(due.tries, 1))

    def _retry(self, due: Due, delay: timedelta, tries: int) -> None:
        self._timers.retry_later(
            due.task_id, due.due, is_published=due.is_published, delay=delay, tries=tries
        )
