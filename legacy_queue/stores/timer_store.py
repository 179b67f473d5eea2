"""Messages that hold timers, in the internal queue ``<prefix>-timers``."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.timer import Timer, texts, timers_of
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.queue import LeaseLost, Queue, QueuedMessage, QueueNotFound

log = structlog.get_logger()

_BATCH = 8  # messages, of many timers each
_MAX_KEPT = 8 * 1024  # characters of what cannot be read: in JSON and XML each may take six bytes


@dataclass(frozen=True)
class TimerMessage:
    """A message as it was put or received, and its timers."""

    lease: MessageLease
    timers: Sequence[Timer]


class TimerStore:
    """Messages stay until they are removed. What cannot be read goes to the queue ``<prefix>-dead-letters``.

    A queue is made when a message cannot be put for want of it: no other call costs more than itself.
    """

    def __init__(self, account: StorageAccount, prefix: str) -> None:
        self._queue = account.queue(f"{prefix}-timers")
        self._dead_letters = account.queue(f"{prefix}-dead-letters")

    def put(self, timers: Iterable[Timer], hidden_for: timedelta) -> Iterator[TimerMessage]:
        """As few messages as hold all of the timers, each as it is put, invisible for so long."""
        for text, some in texts(timers):
            yield TimerMessage(_put(self._queue, text, hidden_for), some)

    def receive(self, hidden_for: timedelta) -> Sequence[TimerMessage]:
        """Some of the visible messages, if there are any, invisible for so long from now."""
        found = []
        with suppress(QueueNotFound):
            for message in self._queue.receive(_BATCH, hidden_for):
                try:
                    found.append(TimerMessage(message.lease, timers_of(message.text)))
                except ValueError as error:
                    self._set_aside(message, str(error))
        return found

    def remove(self, lease: MessageLease) -> None:
        """Delete the message, if that can be done: one that stays fires, and harms nothing."""
        with suppress(LeaseLost, ServiceUnavailable):
            self._queue.delete(lease)

    def _set_aside(self, message: QueuedMessage, why: str) -> None:
        """Move it to the dead letters: as JSON ``{queue, text, why}``, of a long text the beginning."""
        text = json.dumps({"queue": self._queue.name, "text": message.text[:_MAX_KEPT], "why": why})
        _put(self._dead_letters, text, timedelta(0))
        log.error(
            "message-dead-lettered", queue=self._queue.name, message_id=message.lease.message_id, why=why
        )
        self.remove(message.lease)


def _put(queue: Queue, text: str, hidden_for: timedelta) -> MessageLease:
    with suppress(QueueNotFound):
        return queue.put(text, hidden_for)
    queue.create({})
    return queue.put(text, hidden_for)
