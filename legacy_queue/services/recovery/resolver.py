"""Handles fired timers, a few at a time, so that they do not slow calls."""

import threading
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports import BrokerAway, Clock, Corrupt
from legacy_queue.services.gate import Gate
from legacy_queue.services.recovery.advance import Advance
from legacy_queue.services.recovery.jobs import MAX_RETRY_DELAY, MAX_TRIES, RESOLVERS, RETRY_DELAY
from legacy_queue.services.recovery.timers import FiredTimer, Timers
from legacy_queue.services.tasks.groups import Groups
from legacy_queue.stores.rows import let_others_run

log = structlog.get_logger()

_JOINED_WITHIN = timedelta(seconds=25)  # a createTask that has not written by then joins its group again


class Resolver:
    """Advances the tasks of fired timers. Any number of threads may ``run`` it."""

    def __init__(self, timers: Timers, advance: Advance, groups: Groups, clock: Clock) -> None:
        self._timers = timers
        self._advance = advance
        self._groups = groups
        self._clock = clock

    def run(self, stop: threading.Event, gate: Gate) -> None:
        """Handle timers until ``stop`` is set and ``wake`` is called. A closed gate holds this up."""
        while not stop.is_set():
            with gate.pass_through():
                # the gate may have been closed while it was set, and all wakes be used up
                fired = None if stop.is_set() else self._timers.next_fired(waits=True)
                if fired:
                    self._handle(fired)
                    let_others_run()

    def wake(self) -> None:
        """End the waits of all threads."""
        for _ in range(RESOLVERS):
            self._timers.wake()

    def handle_all(self) -> int:
        """Handle the timers that have fired by now. Returns their number."""
        count = 0
        while fired := self._timers.next_fired(waits=False):
            self._handle(fired)
            count += 1
            let_others_run()
        return count

    def _handle(self, fired: FiredTimer) -> None:
        try:
            self._advance_task(fired)
        except ServiceUnavailable:
            self._retry(fired, RETRY_DELAY, fired.tries)
        except Corrupt:
            self._timers.complete(fired.task_id, None)  # it is logged; a retry reads the same row
        except Exception:
            log.exception("timer-failed", task_id=fired.task_id, tries=fired.tries)
            if fired.tries >= MAX_TRIES:
                log.error("timer-abandoned", task_id=fired.task_id)  # the sweeper checks the task
                self._timers.complete(fired.task_id, None)
            else:
                delay = min(MAX_RETRY_DELAY, timedelta(seconds=2**fired.tries))
                self._retry(fired, delay, fired.tries + 1)

    def _advance_task(self, fired: FiredTimer) -> None:
        try:
            result = self._advance.repeat_effects(fired)
            if fired.since and not result.exists:
                age = self._clock.now() - fired.since
                if age < _JOINED_WITHIN:
                    self._retry(fired, _JOINED_WITHIN - age, fired.tries)  # the call may still create it
                    return
                if fired.task_group_id:
                    self._groups.leave(fired.task_id, fired.task_group_id)
        except BrokerAway:
            self._advance_without_broker(fired)
        else:
            self._timers.complete(fired.task_id, result.due)

    def _advance_without_broker(self, fired: FiredTimer) -> None:
        """Retry when the broker is back, or later and later. What needs no broker is done now, once, and when
        the task is due.
        """
        next_due = fired.due
        if not fired.is_published and (not fired.tries or (next_due and self._clock.now() >= next_due)):
            next_due = self._advance.end_if_due(fired.task_id, is_published=False).due
            if next_due is None:  # it has ended
                with suppress(BrokerAway):  # its group is resolved
                    self._advance.repeat_effects(replace(fired, is_published=True))
        now = self._clock.now()
        delay = max(RETRY_DELAY, min(MAX_RETRY_DELAY, now - (fired.since or now)))
        if next_due:
            delay = min(delay, max(RETRY_DELAY, next_due - now))
        self._retry(replace(fired, due=next_due), delay, max(fired.tries, 1))

    def _retry(self, fired: FiredTimer, delay: timedelta, tries: int) -> None:
        self._timers.retry_later(
            fired.task_id, fired.due, is_published=fired.is_published, delay=delay, tries=tries
        )
