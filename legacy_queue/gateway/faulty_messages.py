"""Applies faults to messages that are received and deleted by signed URLs."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import MAXYEAR, datetime, timedelta

from flask import request

from legacy_queue.domain.ids import RunKey
from legacy_queue.domain.messages import DELETE, RECEIVE
from legacy_queue.gateway.azure_protocol import Faults, RecordOf
from legacy_queue.ports import Clock
from legacy_queue.ports.queue import LeaseLost, Queue, QueuedMessage
from legacy_queue.services.control.fault import Effect
from legacy_queue.services.inspection.peeking import run_of
from legacy_queue.stores.lru_cache import SharedLruCache

_MAX_CACHED = 10_000  # messages
_NO_DELAY = timedelta(0)
_MIN_TIME_TO_LIVE = timedelta(seconds=1)


class FaultyMessages:
    """Applies faults to messages, but never to the copy that the fault ``double`` made.

    It remembers the runs of messages that this process delivered, because a delete only names the message,
    and a fault may be about one task.
    """

    def __init__(self, faults: Faults, record_of: RecordOf, clock: Clock) -> None:
        self._faults = faults
        self._record_of = record_of
        self._clock = clock
        self._runs: SharedLruCache[str, RunKey] = SharedLruCache(_MAX_CACHED)
        self._copies: SharedLruCache[str, bool] = SharedLruCache(_MAX_CACHED)

    def receive(self, source: Queue, count: int, hidden_for: timedelta) -> Sequence[QueuedMessage]:
        """Does the same as ``Queue.receive``, without the messages that a fault loses."""
        self._faults.cause_fault(request.environ, RECEIVE)
        received = source.receive(count, hidden_for)
        delivered = [
            message for message in received if self._apply_fault(source, message, hidden_for) != "lose"
        ]
        self._record_of(request.environ).messages = delivered
        return delivered

    def delete(self, message_id: str) -> None:
        """Applies faults before a delete. Raises InjectedError."""
        run = self._runs.get(message_id)
        self._record_of(request.environ).runs = [run] if run else ()
        self._faults.cause_fault(request.environ, DELETE, run[0] if run else "")

    def _apply_fault(self, source: Queue, message: QueuedMessage, hidden_for: timedelta) -> Effect | None:
        """Applies a fault to the message. Returns its effect, if there is one."""
        run = run_of(message)
        if run:
            self._runs.put(message.lease.message_id, run)
            record = self._record_of(request.environ)
            record.runs = (*record.runs, run)
        if self._copies.get(message.lease.message_id):
            return None
        task_id = run[0] if run else ""
        fault = self._faults.cause_fault(request.environ, RECEIVE, task_id, has_message=True)
        effect = fault.effect if fault else None
        with suppress(LeaseLost):  # the message may have expired since
            match effect:
                case "lose":
                    source.delete(message.lease)
                case "stale":
                    source.update(message.lease, message.text, hidden_for)
                case "double":
                    copy = source.put(message.text, _NO_DELAY, _time_left(message, self._clock.now()))
                    self._copies.put(copy.message_id, True)
        return effect


def _time_left(message: QueuedMessage, now: datetime) -> timedelta | None:
    """Returns None if the message never expires."""
    return None if message.expires.year == MAXYEAR else max(_MIN_TIME_TO_LIVE, message.expires - now)
