"""One queue of messages with Azure's semantics, in this process's memory.

It is told the time and never locks: whoever has the queue does both. Source: "Queue" in design/azurite.md;
receipts as in design/clients.md 19.
"""

import base64
import hmac
import itertools
import secrets
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from heapq import heappop, heappush

from legacy_queue.domain.messages import Lease
from legacy_queue.ports import LeaseLost

FOREVER = datetime.max.replace(tzinfo=UTC)  # the expiry of a message that has none
_PLUS_AND_SLASH = b"\xfb\xff\xbf"  # "+/+/" in base64, where it begins at a multiple of three bytes


class QueueNotFound(LeaseLost):
    """There is no queue of that name, and so no lease in it."""


class MessageNotFound(LeaseLost):
    """The message was deleted, has expired or never was."""


class PopReceiptMismatch(LeaseLost):
    """Somebody has received or changed the message since."""


@dataclass(frozen=True)
class QueuedMessage:
    """A message, and what its last receiver was told of it."""

    lease: Lease
    text: str
    inserted: datetime
    expires: datetime
    next_visible: datetime
    dequeue_count: int = 0


_Entry = tuple[datetime, int, QueuedMessage]


class MemoryQueue:
    """Messages in the order in which they become visible, and of those the order in which they came."""

    def __init__(self) -> None:
        self._messages: dict[str, QueuedMessage] = {}
        # both hold what is out of date too, until its turn comes
        self._by_visibility: list[_Entry] = []
        self._by_expiry: list[tuple[datetime, str]] = []
        self._order = itertools.count()

    def put(self, text: str, expires: datetime, next_visible: datetime, now: datetime) -> QueuedMessage:
        """A fresh message; its receipt is good at once."""
        lease = Lease(str(uuid.uuid4()), _receipt())
        if expires != FOREVER:
            heappush(self._by_expiry, (expires, lease.message_id))
        return self._store(QueuedMessage(lease, text, now, expires, next_visible))

    def receive(self, count: int, next_visible: datetime, now: datetime) -> list[QueuedMessage]:
        """Up to so many visible messages, invisible until ``next_visible`` and each with a new receipt."""
        received = [
            replace(_renewed(message, next_visible), dequeue_count=message.dequeue_count + 1)
            for _, _, message in self._take_visible(count, now)
        ]
        for message in received:
            self._store(message)
        return received

    def peek(self, count: int, now: datetime) -> list[QueuedMessage]:
        """The messages that ``receive`` would give, as they are."""
        visible = self._take_visible(count, now)
        for entry in visible:
            heappush(self._by_visibility, entry)
        return [message for _, _, message in visible]

    def update(self, lease: Lease, text: str, next_visible: datetime, now: datetime) -> QueuedMessage:
        """Change the leased message and give it a new receipt; its dequeue count stays.

        Azure refuses to hide a message for longer than it lives: that is a lease that cannot be used.
        Raises MessageNotFound, PopReceiptMismatch, LeaseLost.
        """
        message = self._leased(lease, now)
        if next_visible >= message.expires:
            raise LeaseLost
        return self._store(replace(_renewed(message, next_visible), text=text))

    def delete(self, lease: Lease, now: datetime) -> None:
        """Forget the leased message; raises MessageNotFound or PopReceiptMismatch."""
        del self._messages[self._leased(lease, now).lease.message_id]

    def count(self, now: datetime) -> int:
        """How many messages there are, visible or not."""
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

    def _store(self, message: QueuedMessage) -> QueuedMessage:
        self._messages[message.lease.message_id] = message
        heappush(self._by_visibility, (message.next_visible, next(self._order), message))
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


def _renewed(message: QueuedMessage, next_visible: datetime) -> QueuedMessage:
    lease = replace(message.lease, receipt=_receipt())
    return replace(message, lease=lease, next_visible=next_visible)


def _receipt() -> str:
    """Unguessable base64 with ``+``, ``/`` and ``=`` in it, as Azure's may have; never the same twice."""
    return base64.b64encode(secrets.token_bytes(6) + _PLUS_AND_SLASH + secrets.token_bytes(14)).decode()
