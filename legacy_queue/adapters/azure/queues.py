"""Work messages in Azure Queue Storage."""

import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TypeVar

from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.storage.queue import QueueClient, QueueServiceClient

from legacy_queue.adapters.azure.client import error_code, unavailable_when_down
from legacy_queue.adapters.recent import Recent
from legacy_queue.adapters.sas import signed_urls
from legacy_queue.domain.messages import Lease
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.times import whole_seconds
from legacy_queue.ports import Clock, LeaseLost, SignedUrls, WorkQueues

Answer = TypeVar("Answer")

_LEASE_LOST = {"PopReceiptMismatch", "MessageNotFound", "QueueNotFound", "InvalidQueryParameterValue"}
_MESSAGE_ID = re.compile(r"[0-9A-Za-z-]{1,64}")
_REMEMBERED = 10_000  # queues


class AzureWorkQueues(WorkQueues):
    """A queue is made when it is first used; its metadata tells whose it is and the day of its last use.

    Source: design/protocol.md, "Storage is the truth".
    """

    def __init__(
        self, service: QueueServiceClient, prefix: str, public_url: str, key: str, clock: Clock
    ) -> None:
        self._service, self._prefix, self._clock = service, prefix, clock
        self._public_url, self._key = public_url, key
        self._used: Recent[str, str] = Recent(_REMEMBERED)

    def put(self, queue: WorkQueue, text: str, expires_in: timedelta, hidden_for: timedelta) -> Lease:
        time_to_live = max(1, math.floor(expires_in / timedelta(seconds=1)))
        message = self._on(
            queue,
            lambda client: client.send_message(
                text, time_to_live=time_to_live, visibility_timeout=whole_seconds(hidden_for)
            ),
        )
        return Lease(str(message.id), str(message.pop_receipt))

    def hide(self, queue: WorkQueue, lease: Lease, text: str, hidden_for: timedelta) -> Lease:
        message = self._with_lease(
            queue,
            lease,
            lambda client: client.update_message(
                lease.message_id,
                pop_receipt=lease.receipt,
                content=text,
                visibility_timeout=whole_seconds(hidden_for),
            ),
        )
        return Lease(lease.message_id, str(message.pop_receipt))

    def remove(self, queue: WorkQueue, lease: Lease) -> None:
        self._with_lease(queue, lease, lambda client: client.delete_message(lease.message_id, lease.receipt))

    def count(self, queue: WorkQueue) -> int:
        try:
            with unavailable_when_down():
                return self._client(queue).get_queue_properties().approximate_message_count or 0
        except ResourceNotFoundError:
            return 0

    def signed_urls(
        self, queues: Sequence[WorkQueue], start: datetime, expiry: datetime, visibility: timedelta
    ) -> list[SignedUrls]:
        for queue in queues:
            self._use(queue)
        account = str(self._service.account_name)
        return [
            signed_urls(
                self._public_url, account, self._key, queue.name(self._prefix), start, expiry, visibility
            )
            for queue in queues
        ]

    def _client(self, queue: WorkQueue) -> QueueClient:
        return self._service.get_queue_client(queue.name(self._prefix))

    def _use(self, queue: WorkQueue) -> None:
        """Make sure, once a day for each process, that the queue is there and says that it was used today."""
        today = self._clock.now().date().isoformat()
        name = queue.name(self._prefix)
        if self._used.get(name) == today:
            return
        metadata = {
            "provisioner_id": queue.provisioner_id,
            "worker_type": queue.worker_type,
            "last_used": today,
        }
        with unavailable_when_down():
            try:
                self._client(queue).set_queue_metadata(metadata)
            except ResourceNotFoundError:
                with suppress(ResourceExistsError):  # somebody else made it in this moment
                    self._client(queue).create_queue(metadata=metadata)
        self._used.put(name, today)

    def _on(self, queue: WorkQueue, act: Callable[[QueueClient], Answer]) -> Answer:
        """Act on the queue; where it was removed behind our back, make it again first."""
        self._use(queue)
        try:
            with unavailable_when_down():
                return act(self._client(queue))
        except ResourceNotFoundError:
            self._used.forget(queue.name(self._prefix))
            self._use(queue)
            with unavailable_when_down():
                return act(self._client(queue))

    def _with_lease(self, queue: WorkQueue, lease: Lease, act: Callable[[QueueClient], Answer]) -> Answer:
        # a worker wrote these: a messageId such as ".." would be another resource by the time it is sent
        if not (_MESSAGE_ID.fullmatch(lease.message_id) and lease.receipt.isascii()):
            raise LeaseLost
        try:
            with unavailable_when_down():
                return act(self._client(queue))
        except HttpResponseError as error:
            # some of Azurite's refusals have no body and so no code: 400 and 404 here are about the lease
            if error_code(error) in _LEASE_LOST or error.status_code in (400, 404):
                raise LeaseLost from None
            raise
