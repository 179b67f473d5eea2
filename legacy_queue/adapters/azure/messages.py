"""What is done to the messages of one queue."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.queue import QueueClient, QueueMessage

from legacy_queue.adapters.azure.client import error_code, unavailable_when_down
from legacy_queue.domain.messages import Lease
from legacy_queue.domain.times import whole_seconds
from legacy_queue.ports import LeaseLost, ReceivedMessage

Answer = TypeVar("Answer")

FOREVER = -1  # a time to live
_LEASE_LOST = {"PopReceiptMismatch", "MessageNotFound", "QueueNotFound", "InvalidQueryParameterValue"}
_MESSAGE_ID = re.compile(r"[0-9A-Za-z-]{1,64}")


def put(client: QueueClient, text: str, time_to_live: int, hidden_for: timedelta) -> Lease:
    """A fresh message; ``time_to_live`` in seconds. Raises ResourceNotFoundError where there is no queue."""
    with unavailable_when_down():
        message = client.send_message(
            text, time_to_live=time_to_live, visibility_timeout=whole_seconds(hidden_for)
        )
    return Lease(str(message.id), str(message.pop_receipt))


def receive(client: QueueClient, count: int, hidden_for: timedelta) -> Sequence[ReceivedMessage]:
    """Up to ``count`` (1..32) visible messages, invisible for so long; none where there is no queue.

    A request that was not answered is not sent again: each one that arrives hides messages, those of a
    storage that hangs too, and what was hidden from everybody would be overtaken by later messages.
    """
    with unavailable_when_down(), suppress(ResourceNotFoundError):
        pages = client.receive_messages(
            messages_per_page=count, visibility_timeout=whole_seconds(hidden_for), retry_read=0
        )
        return [received(message) for message in next(pages.by_page(), ())]  # more pages are more receives
    return []


def received(message: QueueMessage) -> ReceivedMessage:
    """Azure's message as the ports have it."""
    lease = Lease(str(message.id), message.pop_receipt or "")
    return ReceivedMessage(lease, str(message.content), message.dequeue_count or 0)


def hide(client: QueueClient, lease: Lease, text: str, hidden_for: timedelta) -> Lease:
    """The leased message with this text, invisible for so long; raises LeaseLost."""
    message = _with_lease(
        lease,
        lambda: client.update_message(
            lease.message_id,
            pop_receipt=lease.receipt,
            content=text,
            visibility_timeout=whole_seconds(hidden_for),
        ),
    )
    return Lease(lease.message_id, str(message.pop_receipt))


def remove(client: QueueClient, lease: Lease) -> None:
    """Delete the leased message; raises LeaseLost."""
    _with_lease(lease, lambda: client.delete_message(lease.message_id, lease.receipt))


def _with_lease(lease: Lease, act: Callable[[], Answer]) -> Answer:
    # a worker wrote these: a messageId such as ".." would be another resource by the time it is sent
    if not (_MESSAGE_ID.fullmatch(lease.message_id) and lease.receipt.isascii()):
        raise LeaseLost
    try:
        with unavailable_when_down():
            return act()
    except HttpResponseError as error:
        # some of Azurite's refusals have no body and so no code: 400 and 404 here are about the lease
        if error_code(error) in _LEASE_LOST or error.status_code in (400, 404):
            raise LeaseLost from None
        raise
