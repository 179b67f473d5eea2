"""Looks at the tasks that are due or lack effects, a few at a time, so that calls do not become slow."""

import threading
from datetime import timedelta

import structlog

from legacy_queue.cooperation import let_others_run
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports import BrokerAway, Clock, Corrupt
from legacy_queue.services.background_gate import BackgroundGate
from legacy_queue.services.events.event_publisher import EventPublisher
from legacy_queue.services.process.ledger import Ledger, Look
from legacy_queue.services.process.processes import Processes
from legacy_queue.services.recovery.advance import Advance, LookResult
from legacy_queue.services.recovery.job_definitions import MAX_RETRY_DELAY, MAX_TRIES, RESOLVERS, RETRY_DELAY
from legacy_queue.services.tasks.groups import Groups

log = structlog.get_logger()

# The more tasks wait, the more looks follow each other before other requests go on, up to _MAX_LOOKS.
# Otherwise calls would end tasks faster than the resolver applies the effects, and each write of the row of
# this process names all those tasks.
_FEW = 5  # tasks
_MAX_LOOKS = 10  # about 10 ms
_JOINED_WITHIN = timedelta(seconds=25)  # a createTask that takes longer joins its group again


class Resolver:
    """Advances the tasks that the ledger hands out. Several threads may ``run`` it."""

    def __init__(
        self,
        processes: Processes,
        ledger: Ledger,
        advance: Advance,
        groups: Groups,
        publisher: EventPublisher,
        clock: Clock,
    ) -> None:
        self._processes = processes
        self._ledger = ledger
        self._advance = advance
        self._groups = groups
        self._publisher = publisher
        self._clock = clock

    def run(self, stop: threading.Event, gate: BackgroundGate) -> None:
        """Look at tasks until ``stop`` is set and ``end_waits`` called. Pauses while the gate is closed."""
        looks = 0
        while not stop.is_set():
            with gate.pass_through():
                # ``stop`` may have been set while the gate was closed, and then nothing ends a wait here
                look = None if stop.is_set() else self._ledger.next_look(waits=True)
                if look:
                    self._handle(look)
                    looks += 1
                    if looks > min(_MAX_LOOKS, self._ledger.ready // _FEW):
                        let_others_run()
                        looks = 0

    def end_waits(self) -> None:
        """End the waits of all threads."""
        for _ in range(RESOLVERS):
            self._ledger.end_wait()

    def handle_all(self) -> int:
        """Look at all tasks that need a look by now. Returns their number."""
        count = 0
        while look := self._ledger.next_look(waits=False):
            self._handle(look)
            count += 1
            let_others_run()
        return count

    def _handle(self, look: Look) -> None:
        try:
            if self._publisher.is_away and look.is_marked and not look.is_due:
                # everything except the events was done when it was marked
                self._wait_for_broker(look, LookResult())
            else:
                self._look(look)
        except ServiceUnavailable:
            self._retry(look, RETRY_DELAY, look.tries)
        except BrokerAway:
            self._wait_for_broker(look, LookResult())
        except Corrupt:
            self._ledger.close(look.owed)  # the row is logged, and a retry would read the same row
        except Exception:
            log.exception("look-failed", task_id=look.task_id, tries=look.tries)
            if look.tries >= MAX_TRIES:
                log.error("look-abandoned", task_id=look.task_id)  # the sweeper checks the task
                self._ledger.close(look.owed)
            else:
                self._retry(look, min(MAX_RETRY_DELAY, timedelta(seconds=2**look.tries)), look.tries + 1)

    def _look(self, look: Look) -> None:
        self._processes.name_all(look.owed)
        result = self._advance.look(look)
        if not result.exists and look.since:
            age = self._clock.now() - look.since
            if age < _JOINED_WITHIN:
                self._retry(look, _JOINED_WITHIN - age, look.tries)  # the call may still create it
                return
            if look.task_group_id:
                self._groups.leave(look.task_id, look.task_group_id)
        self._ledger.note_due(look.task_id, result.due)
        if result.is_complete:
            self._ledger.close(look.owed)
        else:
            self._wait_for_broker(look, result)

    def _wait_for_broker(self, look: Look, result: LookResult) -> None:
        """Retry when the broker is back, and until then less and less often."""
        age = self._clock.now() - look.oldest
        delay = max(RETRY_DELAY, min(MAX_RETRY_DELAY, age))
        self._ledger.repeat_later(
            look.owed,
            delay,
            is_published=result.is_published,
            is_marked=result.is_marked,
            tries=max(look.tries, 1),
        )

    def _retry(self, look: Look, delay: timedelta, tries: int) -> None:
        self._ledger.repeat_later(look.owed, delay, tries=tries)
        if look.is_due:
            self._ledger.look_again(look.task_id, delay)
