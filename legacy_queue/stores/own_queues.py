"""The queue's own queues: claims, deadlines, resolved, events, poison."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from legacy_queue.domain.messages import Lease
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.queue import Queue, QueuedMessage, QueueNotFound


@dataclass(frozen=True)
class ReceivedMessage:
    """A message in a queue; one that was peeked at has no receipt."""

    lease: Lease
    text: str
    dequeue_count: int


def received(message: QueuedMessage) -> ReceivedMessage:
    return ReceivedMessage(message.lease, message.text, message.dequeue_count)


class OwnQueues:
    """The queues ``<prefix>-<name>``.

    Messages are ASCII text of up to 48 KiB and stay until they are removed. Those that are visible come in
    the order in which they were put. Durations are counted in whole seconds, rounded up. A queue is made when
    a message cannot be put for want of it: no other call costs more than itself.
    """

    def __init__(self, account: StorageAccount, prefix: str) -> None:
        self._account, self._prefix = account, prefix
        self._queues: dict[str, Queue] = {}

    def put(self, name: str, text: str, hidden_for: timedelta) -> Lease:
        """A fresh message, invisible for so long."""
        queue = self._queue(name)
        try:
            return queue.put(text, hidden_for)
        except QueueNotFound:
            queue.create({})
            return queue.put(text, hidden_for)

    def receive(self, name: str, count: int, hidden_for: timedelta) -> Sequence[ReceivedMessage]:
        """Up to ``count`` (1..32) visible messages, invisible for so long from now."""
        try:
            return [received(one) for one in self._queue(name).receive(count, hidden_for)]
        except QueueNotFound:
            return []

    def peek(self, name: str, count: int) -> Sequence[ReceivedMessage]:
        """Up to ``count`` (1..32) visible messages, left as they are."""
        try:
            return [received(one) for one in self._queue(name).peek(count)]
        except QueueNotFound:
            return []

    def hide(self, name: str, lease: Lease, text: str, hidden_for: timedelta) -> Lease:
        """Give the leased message this text and make it invisible for so long; raises LeaseLost."""
        return self._queue(name).update(lease, text, hidden_for)

    def remove(self, name: str, lease: Lease) -> None:
        """Delete the leased message; raises LeaseLost."""
        self._queue(name).delete(lease)

    def _queue(self, name: str) -> Queue:
        if name not in self._queues:
            self._queues[name] = self._account.queue(f"{self._prefix}-{name}")
        return self._queues[name]
