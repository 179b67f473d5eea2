"""A queue of messages, as Azure Queue Storage has it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from legacy_queue.domain.messages import MessageLease

_MAX_TEXT = 48 * 1024


class LeaseLost(Exception):
    """The receipt is stale or the message is gone."""


class QueueNotFound(LeaseLost):
    """There is no queue of that name, and so no lease in it."""


class MessageNotFound(LeaseLost):
    """The message was deleted, has expired or never was."""


class PopReceiptMismatch(LeaseLost):
    """The message was received or changed since."""


@dataclass(frozen=True)
class QueuedMessage:
    """As it was received; peeked at, it has no receipt, and ``next_visible`` only if it is invisible."""

    lease: MessageLease
    text: str
    inserted: datetime
    expires: datetime
    next_visible: datetime | None
    dequeue_count: int


class Queue(Protocol):
    """Messages are ASCII text of up to 48 KiB. Durations are counted in whole seconds: invisibility is
    rounded up, the time to live down. Visible messages come in the order in which they became visible, about.

    Every method but ``create`` and ``remove`` may raise QueueNotFound.
    """

    name: str

    def create(self, metadata: Mapping[str, str]) -> None:
        """The queue is there, and has this metadata. Safe to repeat."""

    def metadata(self) -> Mapping[str, str]: ...

    def put(self, text: str, hidden_for: timedelta, time_to_live: timedelta | None = None) -> MessageLease:
        """A fresh message, invisible for so long, gone after ``time_to_live``, which is longer; None: never.

        The lease is good until the message is received.
        """

    def receive(self, count: int, hidden_for: timedelta) -> Sequence[QueuedMessage]:
        """Up to ``count`` (1..32) visible messages, invisible for so long, at least a second.

        It is sent once only: each request that arrives hides messages.
        """

    def peek(self) -> Sequence[QueuedMessage]:
        """The messages that can be seen without receiving any, left as they are, in the order of visibility.

        In memory these are all; Azure shows the first 32 that are visible.
        """

    def update(self, lease: MessageLease, text: str, hidden_for: timedelta) -> MessageLease:
        """Give the leased message this text and make it invisible for so long; raises LeaseLost.

        0 makes it visible at once. The old lease is good for nothing afterwards.
        """

    def delete(self, lease: MessageLease) -> None:
        """Delete the leased message; raises LeaseLost."""

    def count(self) -> int:
        """How many messages there are, visible or not."""

    def remove(self) -> None:
        """The queue is not there any more, nor its messages. Safe to repeat."""


def check_text(text: str) -> None:
    """Raise ValueError for what is no text of a message."""
    if len(text.encode("ascii")) > _MAX_TEXT:
        raise ValueError("a message has up to 48 KiB")
