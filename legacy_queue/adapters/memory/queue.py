"""A queue of messages in this process's memory.

Source: "Queue" in design/azurite.md; receipts as in design/clients.md 19.
"""

import base64
import hmac
import itertools
import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from threading import Lock

from legacy_queue.domain.messages import Lease
from legacy_queue.domain.times import whole_seconds
from legacy_queue.ports import Clock
from legacy_queue.ports.queue import (
    LeaseLost,
    MessageNotFound,
    PopReceiptMismatch,
    Queue,
    QueuedMessage,
    QueueNotFound,
)

_FOREVER = datetime.max.replace(tzinfo=UTC)  # the expiry of a message that has none
_PLUS_AND_SLASH = b"\xfb\xff\xbf"  # "+/+/" in base64, where it begins at a multiple of three bytes
_MAX_TEXT = 48 * 1024

_Entry = tuple[datetime, int, QueuedMessage]


class MemoryQueue(Queue):
    """The queue of that name among ``queues``, if it is there. ``lock`` is held while messages change."""

    def __init__(self, name: str, queues: "dict[str, Messages]", lock: Lock, clock: Clock) -> None:
        self.name = name
        self._queues, self._lock, self._clock = queues, lock, clock

    def create(self, metadata: Mapping[str, str]) -> None:
        with self._lock:
            self._queues.setdefault(self.name, Messages()).metadata = dict(metadata)

    def metadata(self) -> Mapping[str, str]:
        return dict(self._messages().metadata)

    def put(self, text: str, hidden_for: timedelta, time_to_live: timedelta | None = None) -> Lease:
        if len(text.encode("ascii")) > _MAX_TEXT:
            raise ValueError("a message has up to 48 KiB")
        with self._lock:
            now = self._clock.now()
            lives = None if time_to_live is None else timedelta(seconds=time_to_live // timedelta(seconds=1))
            expires = _FOREVER if lives is None else now + lives
            return self._messages().put(text, expires, now + _rounded_up(hidden_for), now).lease

    def receive(self, count: int, hidden_for: timedelta) -> Sequence[QueuedMessage]:
        with self._lock:
            now = self._clock.now()
            return self._messages().receive(count, now + _rounded_up(hidden_for), now)

    def peek(self, count: int) -> Sequence[QueuedMessage]:
        with self._lock:
            return self._messages().peek(count, self._clock.now())

    def update(self, lease: Lease, text: str, hidden_for: timedelta) -> Lease:
        with self._lock:
            now = self._clock.now()
            return self._messages().update(lease, text, now + _rounded_up(hidden_for), now)

    def delete(self, lease: Lease) -> None:
        with self._lock:
            self._messages().delete(lease, self._clock.now())

    def count(self) -> int:
        with self._lock:
            return self._messages().count(self._clock.now())

    def remove(self) -> None:
        self._queues.pop(self.name, None)

    def _messages(self) -> "Messages":
        try:
            return self._queues[self.name]
        except KeyError:
            raise QueueNotFound from None


class Messages:
    """Messages in the order in which they become visible, and of those the order in which they came.

    They are given the time and never lock: ``MemoryQueue`` does both.
    """

    def __init__(self) -> None:
        self.metadata: Mapping[str, str] = {}
        self._messages: dict[str, QueuedMessage] = {}
        # both hold what is out of date too, until its turn comes
        self._by_visibility: list[_Entry] = []
        self._by_expiry: list[tuple[datetime, str]] = []
        self._order = itertools.count()

    def put(self, text: str, expires: datetime, next_visible: datetime, now: datetime) -> QueuedMessage:
        """A fresh message; its receipt is good at once."""
        lease = Lease(str(uuid.uuid4()), _receipt())
        if expires != _FOREVER:
            heappush(self._by_expiry, (expires, lease.message_id))
        return self._store(QueuedMessage(lease, text, now, expires, next_visible, 0), next_visible)

    def receive(self, count: int, next_visible: datetime, now: datetime) -> list[QueuedMessage]:
        """Up to so many visible messages, invisible until ``next_visible`` and each with a new receipt."""
        received = [
            replace(
                message,
                lease=Lease(message.lease.message_id, _receipt()),
                next_visible=next_visible,
                dequeue_count=message.dequeue_count + 1,
            )
            for _, _, message in self._take_visible(count, now)
        ]
        return [self._store(message, next_visible) for message in received]

    def peek(self, count: int, now: datetime) -> list[QueuedMessage]:
        """The messages that ``receive`` would give, as they are."""
        visible = self._take_visible(count, now)
        for entry in visible:
            heappush(self._by_visibility, entry)
        return [
            replace(message, lease=Lease(message.lease.message_id, ""), next_visible=None)
            for _, _, message in visible
        ]

    def update(self, lease: Lease, text: str, next_visible: datetime, now: datetime) -> Lease:
        """Change the leased message and give it a new receipt; its dequeue count stays.

        Azure refuses to hide a message for longer than it lives: that is a lease that cannot be used.
        """
        message = self._leased(lease, now)
        if next_visible >= message.expires:
            raise LeaseLost
        renewed = Lease(lease.message_id, _receipt())
        return self._store(
            replace(message, lease=renewed, text=text, next_visible=next_visible), next_visible
        ).lease

    def delete(self, lease: Lease, now: datetime) -> None:
        del self._messages[self._leased(lease, now).lease.message_id]

    def count(self, now: datetime) -> int:
        self._expire(now)
        return len(self._messages)

    def _take_visible(self, count: int, now: datetime) -> list[_Entry]:
        self._expire(now)
        taken: list[_Entry] = []
        while len(taken) < count and self._by_visibility and self._by_visibility[0][0] <= now:
            entry = heappop(self._by_visibility)
            if self._messages.get(entry[2].lease.message_id) is entry[2]:
                taken.append(entry)
        return taken

    def _store(self, message: QueuedMessage, next_visible: datetime) -> QueuedMessage:
        self._messages[message.lease.message_id] = message
        heappush(self._by_visibility, (next_visible, next(self._order), message))
        return message

    def _leased(self, lease: Lease, now: datetime) -> QueuedMessage:
        self._expire(now)
        message = self._messages.get(lease.message_id)
        if message is None:
            raise MessageNotFound
        receipts = (
            # a receipt that came as JSON may hold what UTF-8 cannot
            receipt.encode(errors="surrogatepass")
            for receipt in (message.lease.receipt, lease.receipt)
        )
        if not hmac.compare_digest(*receipts):
            raise PopReceiptMismatch
        return message

    def _expire(self, now: datetime) -> None:
        while self._by_expiry and self._by_expiry[0][0] <= now:
            _, message_id = heappop(self._by_expiry)
            self._messages.pop(message_id, None)


def _rounded_up(duration: timedelta) -> timedelta:
    return timedelta(seconds=whole_seconds(duration))


def _receipt() -> str:
    """Unguessable base64 with ``+``, ``/`` and ``=`` in it, as Azure's may have; never the same twice."""
    return base64.b64encode(secrets.token_bytes(6) + _PLUS_AND_SLASH + secrets.token_bytes(14)).decode()
