"""A queue of messages, as Azure Queue Storage has it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from legacy_queue.domain.messages import MessageLease

MAX_COUNT = 5_000  # messages
_MAX_TEXT = 48 * 1024


class LeaseLost(Exception):
    """The receipt is outdated or the message does not exist."""


class QueueNotFound(LeaseLost):
    """The queue does not exist, and so no lease in it."""


@dataclass(frozen=True)
class QueuedMessage:
    """A received or peeked message. Peeked, it has no receipt, and ``next_visible`` only while invisible."""

    lease: MessageLease
    text: str
    inserted: datetime
    expires: datetime
    next_visible: datetime | None
    dequeue_count: int


@dataclass(frozen=True)
class SignedUrls:
    """A poll and a delete URL for a queue, as pollTaskUrls answers them."""

    poll: str
    delete: str


class ShownMessages(Protocol):
    """All messages of an account, visible or not, without receiving them. Azure cannot show them."""

    def text(self, queue: str, message_id: str) -> str | None:
        """The text of the message in the queue of that name, None if it has no such message."""

    def page(self, after: str, limit: int) -> tuple[Sequence[tuple[str, str]], str | None]:
        """Up to ``limit`` messages, each the name of its queue and its text, and the next ``after``.

        ``after`` is "" for the first page, None at the end. A message that is put meanwhile may be missing.
        """


class Queue(Protocol):
    """Messages are ASCII text of up to 48 KiB. Durations are whole seconds: invisibility is rounded up, the
    time to live down. Visible messages are received about in the order in which they became visible.

    Every method but ``create``, ``remove`` and ``signed_urls`` may raise QueueNotFound.
    """

    name: str

    def create(self, metadata: Mapping[str, str]) -> None:
        """Create the queue where it is missing, and set its metadata. Safe to repeat."""

    def metadata(self) -> Mapping[str, str]: ...

    def put(self, text: str, hidden_for: timedelta, time_to_live: timedelta | None = None) -> MessageLease:
        """Put a message, hidden for ``hidden_for``, deleted after the longer ``time_to_live``; None: never.

        The lease is valid until the message is received.
        """

    def receive(self, count: int, hidden_for: timedelta) -> Sequence[QueuedMessage]:
        """Up to ``count`` (1..32) visible messages, then invisible for ``hidden_for``, at least a second.

        Not retried: each request that arrives hides messages.
        """

    def peek(self) -> Sequence[QueuedMessage]:
        """Messages, unchanged, in the order of visibility: in memory all, of Azure the first 32 visible."""

    def update(self, lease: MessageLease, text: str, hidden_for: timedelta) -> MessageLease:
        """Give the leased message this text and hide it for ``hidden_for``, 0 to show it; raises LeaseLost.

        The old lease is lost.
        """

    def delete(self, lease: MessageLease) -> None:
        """Delete the leased message; raises LeaseLost."""

    def count(self) -> int:
        """How many messages there are, visible or not; a storage may count no further than MAX_COUNT."""

    def remove(self) -> None:
        """Delete the queue and its messages. Safe to repeat."""

    def signed_urls(
        self, start: datetime, expiry: datetime, hidden_for: timedelta, caller: str = ""
    ) -> SignedUrls:
        """URLs, valid between the two times, at which clients receive and delete messages.

        Those that this server answers name the ``caller``.

        ``poll`` hides what it receives for that long and takes an appended ``&numofmessages=N``; ``delete``
        has the placeholders ``{{messageId}}`` and ``{{popReceipt}}``, and no other brace.
        Source: docs/explanation/protocols.md#signed-urls.
        """


def check_text(text: str) -> None:
    """Raise ValueError for a text that no message can have."""
    if len(text.encode("ascii")) > _MAX_TEXT:
        raise ValueError("a message has up to 48 KiB")
