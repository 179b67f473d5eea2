"""A queue of messages in the memory of this process.

Source: docs/explanation/azurite.md#queue.
"""

import base64
import hmac
import itertools
import secrets
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from threading import Lock

from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.times import whole_seconds
from legacy_queue.ports import Clock
from legacy_queue.ports.queue import (
    LeaseLost,
    MessageNotFound,
    PopReceiptMismatch,
    Queue,
    QueuedMessage,
    QueueNotFound,
    check_text,
)

_FOREVER = datetime.max.replace(tzinfo=UTC)  # for a message that never expires
_PLUS_AND_SLASH = b"\xfb\xff\xbf"  # "+/+/" in base64, where it begins at a multiple of three bytes

_order = itertools.count()


@dataclass
class Messages:
    """The messages of a queue. The heaps may hold outdated entries."""

    metadata: Mapping[str, str] = field(default_factory=dict)
    by_id: dict[str, QueuedMessage] = field(default_factory=dict)
    by_visibility: list[tuple[datetime, int, QueuedMessage]] = field(default_factory=list)
    by_expiry: list[tuple[datetime, str]] = field(default_factory=list)

    def store(self, message: QueuedMessage) -> MessageLease:
        """Add or replace the message. Messages are ordered by visibility, then by the order of this call."""
        self.by_id[message.lease.message_id] = message
        heappush(self.by_visibility, (message.next_visible or _FOREVER, next(_order), message))
        return message.lease

    def expire(self, now: datetime) -> None:
        while self.by_expiry and self.by_expiry[0][0] <= now:
            self.by_id.pop(heappop(self.by_expiry)[1], None)

    def pop_visible(self, count: int, now: datetime) -> list[QueuedMessage]:
        """Remove up to ``count`` visible messages from the order; the caller stores them again."""
        popped: list[QueuedMessage] = []
        while len(popped) < count and self.by_visibility and self.by_visibility[0][0] <= now:
            message = heappop(self.by_visibility)[2]
            if self.by_id.get(message.lease.message_id) is message:
                popped.append(message)
        return popped

    def in_order(self) -> list[QueuedMessage]:
        """All messages, in the order of visibility."""
        stored = (message for _, _, message in sorted(self.by_visibility))
        return [message for message in stored if self.by_id.get(message.lease.message_id) is message]

    def leased(self, lease: MessageLease) -> QueuedMessage:
        message = self.by_id.get(lease.message_id)
        if message is None:
            raise MessageNotFound
        # a receipt from JSON may have lone surrogates
        receipts = (text.encode(errors="surrogatepass") for text in (message.lease.receipt, lease.receipt))
        if not hmac.compare_digest(*receipts):
            raise PopReceiptMismatch
        return message


class MemoryQueue(Queue):
    """The queue ``name`` of ``queues``, which may be missing. ``lock`` is held while messages change."""

    def __init__(self, name: str, queues: dict[str, Messages], lock: Lock, clock: Clock) -> None:
        self.name = name
        self._queues, self._lock, self._clock = queues, lock, clock

    def create(self, metadata: Mapping[str, str]) -> None:
        with self._lock:
            self._queues.setdefault(self.name, Messages()).metadata = dict(metadata)

    def metadata(self) -> Mapping[str, str]:
        with self._open() as (messages, _):
            return messages.metadata

    def put(self, text: str, hidden_for: timedelta, time_to_live: timedelta | None = None) -> MessageLease:
        check_text(text)
        with self._open() as (messages, now):
            lease, expires = MessageLease(str(uuid.uuid4()), _receipt()), _FOREVER
            if time_to_live is not None:
                expires = now + timedelta(seconds=time_to_live // timedelta(seconds=1))
                heappush(messages.by_expiry, (expires, lease.message_id))
            next_visible = now + _rounded_up(hidden_for)
            message = QueuedMessage(lease, text, now, expires, next_visible, 0)
            return messages.store(message)

    def receive(self, count: int, hidden_for: timedelta) -> Sequence[QueuedMessage]:
        with self._open() as (messages, now):
            next_visible = now + _rounded_up(hidden_for)
            received = [
                replace(
                    message,
                    lease=MessageLease(message.lease.message_id, _receipt()),
                    next_visible=next_visible,
                    dequeue_count=message.dequeue_count + 1,
                )
                for message in messages.pop_visible(count, now)
            ]
            for message in received:
                messages.store(message)
            return received

    def peek(self) -> Sequence[QueuedMessage]:
        with self._open() as (messages, now):
            return [_peeked(message, now) for message in messages.in_order()]

    def update(self, lease: MessageLease, text: str, hidden_for: timedelta) -> MessageLease:
        with self._open() as (messages, now):
            message, next_visible = messages.leased(lease), now + _rounded_up(hidden_for)
            if next_visible >= message.expires:  # as Azure
                raise LeaseLost
            renewed = MessageLease(lease.message_id, _receipt())
            return messages.store(replace(message, lease=renewed, text=text, next_visible=next_visible))

    def delete(self, lease: MessageLease) -> None:
        with self._open() as (messages, _):
            del messages.by_id[messages.leased(lease).lease.message_id]

    def count(self) -> int:
        with self._open() as (messages, _):
            return len(messages.by_id)

    def remove(self) -> None:
        self._queues.pop(self.name, None)

    @contextmanager
    def _open(self) -> Iterator[tuple[Messages, datetime]]:
        """The messages and the time, under the lock; raises QueueNotFound."""
        with self._lock:
            now = self._clock.now()
            if self.name not in self._queues:
                raise QueueNotFound
            messages = self._queues[self.name]
            messages.expire(now)
            yield messages, now


def _rounded_up(duration: timedelta) -> timedelta:
    return timedelta(seconds=whole_seconds(duration))


def _peeked(message: QueuedMessage, now: datetime) -> QueuedMessage:
    next_visible = message.next_visible if message.next_visible and message.next_visible > now else None
    return replace(message, lease=MessageLease(message.lease.message_id, ""), next_visible=next_visible)


def _receipt() -> str:
    """Unique, unguessable base64 with ``+``, ``/`` and ``=``, which receipts of Azure may have."""
    return base64.b64encode(secrets.token_bytes(6) + _PLUS_AND_SLASH + secrets.token_bytes(14)).decode()
