"""Timers, stored in messages of the internal queue ``<prefix>-timers``."""

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

_MAX_MESSAGES = 8  # in a receive; each holds many timers
_MAX_DEAD_TEXT = 8 * 1024  # characters; in JSON and XML each may take six bytes


@dataclass(frozen=True)
class TimerMessage:
    """A message as it was put or received, and its timers."""

    lease: MessageLease
    timers: Sequence[Timer]


class TimerStore:
    """Messages stay until they are removed. Unreadable messages go to the queue ``<prefix>-dead-letters``.

    A queue is created when a put finds it missing.
    """

    def __init__(self, account: StorageAccount, prefix: str) -> None:
        self._queue = account.queue(f"{prefix}-timers")
        self._dead_letters = account.queue(f"{prefix}-dead-letters")

    def put(self, timers: Iterable[Timer], hidden_for: timedelta) -> Iterator[TimerMessage]:
        """Put the timers in as few messages as possible, hidden for ``hidden_for``; yields each."""
        for text, written in texts(timers):
            yield TimerMessage(_put(self._queue, text, hidden_for), written)

    def receive(self, hidden_for: timedelta) -> Sequence[TimerMessage]:
        """Some of the visible messages, if there are any; they become hidden for ``hidden_for``."""
        received = []
        with suppress(QueueNotFound):
            for message in self._queue.receive(_MAX_MESSAGES, hidden_for):
                try:
                    received.append(TimerMessage(message.lease, timers_of(message.text)))
                except ValueError as error:
                    self._dead_letter(message, str(error))
        return received

    def remove(self, lease: MessageLease) -> None:
        """Delete the message, if that is possible. A message that stays fires again, which is harmless."""
        with suppress(LeaseLost, ServiceUnavailable):
            self._queue.delete(lease)

    def _dead_letter(self, message: QueuedMessage, why: str) -> None:
        """Move it to the dead-letter queue: JSON ``{queue, text, why}``, a long text cut."""
        text = json.dumps({"queue": self._queue.name, "text": message.text[:_MAX_DEAD_TEXT], "why": why})
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
