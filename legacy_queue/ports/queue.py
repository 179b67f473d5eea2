"""A queue of messages, as in Azure Queue Storage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from legacy_queue.domain.messages import MessageLease

MAX_COUNT = 5_000  # messages
_MAX_TEXT = 48 * 1024


class LeaseLost(Exception):
    """The pop receipt is stale, or the message does not exist."""


class QueueNotFound(LeaseLost):
    """The queue does not exist, so no lease in it is valid."""


@dataclass(frozen=True)
class QueuedMessage:
    """A received or peeked message. If it was peeked, it has no pop receipt.

    A peeked message has ``next_visible`` only while it is hidden.
    """

    lease: MessageLease
    text: str
    inserted: datetime
    expires: datetime
    next_visible: datetime | None
    dequeue_count: int


@dataclass(frozen=True)
class SignedUrls:
    """The poll URL and the delete URL of a queue, as pollTaskUrls returns them."""

    poll: str
    delete: str


class ShownMessages(Protocol):
    """Shows all messages of an account, visible or hidden, without receiving them. Azure cannot do this."""

    def text(self, queue: str, message_id: str) -> str | None:
        """Returns the text of the message in the queue of that name, or None if there is no such message."""

    def page(self, after: str, limit: int) -> tuple[Sequence[tuple[str, str]], str | None]:
        """Returns up to ``limit`` messages, each as queue name and text, and the ``after`` of the next page.

        Pass "" as ``after`` for the first page. The last page returns None. A message that is put meanwhile
        may be missing.
        """


class Queue(Protocol):
    """A queue. Its messages are ASCII text of up to 48 KiB.

    Durations are in whole seconds: a visibility timeout is rounded up, a time to live down. Messages are
    received roughly in the order in which they became visible.

    Every method except ``create``, ``remove`` and ``signed_urls`` may raise QueueNotFound.
    """

    name: str

    def create(self, metadata: Mapping[str, str]) -> None:
        """Create the queue unless it exists, and set its metadata. Safe to repeat."""

    def metadata(self) -> Mapping[str, str]: ...

    def put(self, text: str, hidden_for: timedelta, time_to_live: timedelta | None = None) -> MessageLease:
        """Put a message that is hidden for ``hidden_for`` and deleted after ``time_to_live``, which must be
        longer.

        With None it is never deleted. The lease is valid until somebody receives the message.
        """

    def receive(self, count: int, hidden_for: timedelta) -> Sequence[QueuedMessage]:
        """Receive up to ``count`` (1..32) visible messages and hide them for ``hidden_for``, at least one
        second.

        Adapters do not retry this, because each request that arrives hides messages.
        """

    def peek(self) -> Sequence[QueuedMessage]:
        """Return messages without changing them, in the order of visibility.

        Embedded storage returns all of them, Azure the first 32 visible ones.
        """

    def update(self, lease: MessageLease, text: str, hidden_for: timedelta) -> MessageLease:
        """Give the leased message this text and hide it for ``hidden_for`` (0: show it). Raises LeaseLost.

        Use the returned lease from now on: the old one is stale.
        """

    def delete(self, lease: MessageLease) -> None:
        """Delete the leased message. Raises LeaseLost."""

    def count(self) -> int:
        """Returns the number of messages, visible or hidden. A storage may stop counting at MAX_COUNT."""

    def remove(self) -> None:
        """Delete the queue and its messages. Safe to repeat."""

    def signed_urls(
        self, start: datetime, expiry: datetime, hidden_for: timedelta, caller: str = ""
    ) -> SignedUrls:
        """Returns URLs, valid between these times, at which clients receive and delete messages.

        If this server itself answers there, the URLs name the ``caller``.

        ``poll`` hides received messages for ``hidden_for``, and a client may append ``&numofmessages=N``.
        ``delete`` has the placeholders ``{{messageId}}`` and ``{{popReceipt}}``, and no other braces.
        Source: docs/explanation/protocols.md#signed-urls.
        """


def check_text(text: str) -> None:
    """Raises ValueError if a message cannot have this text."""
    if len(text.encode("ascii")) > _MAX_TEXT:
        raise ValueError("the message is longer than 48 KiB")
