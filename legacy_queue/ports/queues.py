"""Work queues, which workers poll, and the queue's own."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from legacy_queue.domain.messages import Lease
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.ports.common import Expiring


class LeaseLost(Exception):
    """The receipt is stale or the message is gone."""


@dataclass(frozen=True)
class ReceivedMessage:
    """A message in a queue; one that was peeked at has no receipt."""

    lease: Lease
    text: str
    dequeue_count: int


@dataclass(frozen=True)
class SignedUrls:
    """A poll and a delete URL for one queue, as pollTaskUrls answers them."""

    poll: str
    delete: str


class WorkQueues(Expiring):
    """The messages of pending runs, a queue for each priority of a worker type.

    Queues come into being when they are first needed. Durations are counted in whole seconds, rounded up
    for invisibility and down for the time to live. Those that are empty and unused for 10 days have expired.
    """

    @abstractmethod
    def put(self, queue: WorkQueue, text: str, expires_in: timedelta, hidden_for: timedelta) -> Lease:
        """A fresh message, invisible for ``hidden_for``, gone after ``expires_in``, which is longer."""

    @abstractmethod
    def hide(self, queue: WorkQueue, lease: Lease, text: str, hidden_for: timedelta) -> Lease:
        """Give the leased message this text and make it invisible for so long; raises LeaseLost.

        0 makes it visible at once. The old lease is good for nothing afterwards.
        """

    @abstractmethod
    def remove(self, queue: WorkQueue, lease: Lease) -> None:
        """Delete the leased message; raises LeaseLost."""

    @abstractmethod
    def receive(self, queue: WorkQueue, count: int, hidden_for: timedelta) -> Sequence[ReceivedMessage]:
        """Up to ``count`` (1..32) visible messages, invisible for so long; none of a queue never used."""

    @abstractmethod
    def count(self, queue: WorkQueue) -> int:
        """How many messages there are, visible or not: 0 for a queue that was never used."""

    @abstractmethod
    def signed_urls(
        self, queues: Sequence[WorkQueue], start: datetime, expiry: datetime, visibility: timedelta
    ) -> list[SignedUrls]:
        """URLs good between the two times for receiving and deleting messages of that one queue.

        ``poll`` carries the visibility timeout and takes an appended ``&numofmessages=N``; ``delete`` holds
        ``{{messageId}}`` and ``{{popReceipt}}`` literally, and no other brace. Source: design/clients.md 14.
        """


class OwnQueues(ABC):
    """The queue's own queues, ``<prefix>-<name>``: claims, deadlines, resolved, events, poison.

    Messages are ASCII text of up to 48 KiB and stay until they are removed. Those that are visible come in
    the order in which they were put. Durations are counted in whole seconds, rounded up.
    """

    @abstractmethod
    def put(self, name: str, text: str, hidden_for: timedelta) -> Lease:
        """A fresh message, invisible for so long."""

    @abstractmethod
    def receive(self, name: str, count: int, hidden_for: timedelta) -> Sequence[ReceivedMessage]:
        """Up to ``count`` (1..32) visible messages, invisible for so long from now."""

    @abstractmethod
    def peek(self, name: str, count: int) -> Sequence[ReceivedMessage]:
        """Up to ``count`` (1..32) visible messages, left as they are."""

    @abstractmethod
    def hide(self, name: str, lease: Lease, text: str, hidden_for: timedelta) -> Lease:
        """Give the leased message this text and make it invisible for so long; raises LeaseLost."""

    @abstractmethod
    def remove(self, name: str, lease: Lease) -> None:
        """Delete the leased message; raises LeaseLost."""
