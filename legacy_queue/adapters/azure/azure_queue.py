"""A queue of Azure Queue Storage."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from azure.storage.queue import QueueClient

from legacy_queue.adapters.azure.errors import Refusals, call, find, present
from legacy_queue.adapters.url_signer import UrlSigner
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.times import whole_seconds
from legacy_queue.ports import AlreadyExists
from legacy_queue.ports.queue import (
    LeaseLost,
    Queue,
    QueuedMessage,
    QueueNotFound,
    SignedUrls,
    check_text,
)

_MAX_PEEKED = 32
_NEVER = -1  # the time to live of a message that never expires
_EXISTS = dict.fromkeys((409, "204"), AlreadyExists)  # the queue exists, with other or with the same metadata
_NOT_FOUND = dict.fromkeys((404, "404"), QueueNotFound)
_LEASE_LOST: Refusals = {
    "QueueNotFound": QueueNotFound,
    **dict.fromkeys((400, 404, "400", "404"), LeaseLost),  # some of Azurite's errors have no name
}
_MESSAGE_ID = re.compile(r"[0-9A-Za-z-]{1,64}")


class AzureQueue(Queue):
    """A queue. Each operation is one request, but ``create`` of a new queue is two. Cheap to make."""

    def __init__(self, client: QueueClient, signer: UrlSigner) -> None:
        self._client: Any = client
        self._signer = signer
        self.name = client.queue_name

    def create(self, metadata: Mapping[str, str]) -> None:
        while find(lambda: self._client.set_queue_metadata(dict(metadata))) is None:
            with suppress(AlreadyExists):  # another process created it meanwhile
                call(lambda: self._client.create_queue(metadata=dict(metadata)), _EXISTS)
                return

    def metadata(self) -> Mapping[str, str]:
        return call(lambda: dict(self._client.get_queue_properties().metadata), _NOT_FOUND)

    def put(self, text: str, hidden_for: timedelta, time_to_live: timedelta | None = None) -> MessageLease:
        check_text(text)
        lives = _NEVER if time_to_live is None else max(1, time_to_live // timedelta(seconds=1))
        times = {"visibility_timeout": whole_seconds(hidden_for), "time_to_live": lives}
        return call(lambda: _lease(self._client.send_message(text, **times)), _NOT_FOUND)

    def receive(self, count: int, hidden_for: timedelta) -> Sequence[QueuedMessage]:
        messages = self._client.receive_messages(
            messages_per_page=count, visibility_timeout=whole_seconds(hidden_for), is_sent_once=True
        )
        return call(lambda: [_message(one, _lease(one)) for one in next(messages.by_page(), ())], _NOT_FOUND)

    def peek(self) -> Sequence[QueuedMessage]:
        peek = self._client.peek_messages
        return call(
            lambda: [_message(one, MessageLease(one.id, "")) for one in peek(_MAX_PEEKED)], _NOT_FOUND
        )

    def update(self, lease: MessageLease, text: str, hidden_for: timedelta) -> MessageLease:
        check_text(text)
        message_id, receipt = _checked(lease)
        seconds = whole_seconds(hidden_for)
        update = self._client.update_message
        return call(
            lambda: _lease(update(message_id, receipt, text, visibility_timeout=seconds)), _LEASE_LOST
        )

    def delete(self, lease: MessageLease) -> None:
        message_id, receipt = _checked(lease)
        call(lambda: self._client.delete_message(message_id, receipt), _LEASE_LOST)

    def count(self) -> int:
        return call(lambda: int(self._client.get_queue_properties().approximate_message_count), _NOT_FOUND)

    def remove(self) -> None:
        find(self._client.delete_queue)

    def signed_urls(
        self, start: datetime, expiry: datetime, hidden_for: timedelta, caller: str = ""
    ) -> SignedUrls:
        return self._signer.queue_urls(self.name, start, expiry, hidden_for, caller)


def _checked(lease: MessageLease) -> tuple[str, str]:
    """Return id and receipt. Raises LeaseLost if they cannot be part of a URL.

    Workers send them, and an id such as ".." would name another resource.
    """
    if not (_MESSAGE_ID.fullmatch(lease.message_id) and lease.receipt.isascii()):
        raise LeaseLost
    return lease.message_id, lease.receipt


def _lease(message: Any) -> MessageLease:
    return MessageLease(present(message.id), present(message.pop_receipt))


def _message(message: Any, lease: MessageLease) -> QueuedMessage:
    return QueuedMessage(
        lease,
        message.content or "",
        message.inserted_on,
        message.expires_on,
        message.next_visible_on,
        message.dequeue_count,
    )
