"""Work messages in Azure Queue Storage."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from itertools import islice

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.storage.queue import QueueClient, QueueServiceClient

from legacy_queue.adapters.azure import messages
from legacy_queue.adapters.azure.client import unavailable_when_down
from legacy_queue.adapters.recent import Recent
from legacy_queue.adapters.sas import signed_urls
from legacy_queue.domain.messages import Lease
from legacy_queue.domain.priority import WorkQueue, work_queues
from legacy_queue.ports import Clock, ReceivedMessage, SignedUrls, WorkQueues

_REMEMBERED = 10_000  # queues
_UNUSED = timedelta(days=10)


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
        """As promised; where the queue was removed behind our back, it is made again first."""
        time_to_live = max(1, math.floor(expires_in / timedelta(seconds=1)))
        self._use(queue)
        try:
            return messages.put(self._client(queue), text, time_to_live, hidden_for)
        except ResourceNotFoundError:
            self._used.forget(queue.name(self._prefix))
            self._use(queue)
            return messages.put(self._client(queue), text, time_to_live, hidden_for)

    def hide(self, queue: WorkQueue, lease: Lease, text: str, hidden_for: timedelta) -> Lease:
        return messages.hide(self._client(queue), lease, text, hidden_for)

    def remove(self, queue: WorkQueue, lease: Lease) -> None:
        messages.remove(self._client(queue), lease)

    def receive(self, queue: WorkQueue, count: int, hidden_for: timedelta) -> Sequence[ReceivedMessage]:
        return messages.receive(self._client(queue), count, hidden_for)

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

    def remove_expired(self, now: datetime, after: str, limit: int) -> str | None:
        """As promised; the queues are listed anew each time, since Azurite's markers skip some."""
        with unavailable_when_down():
            queues = self._service.list_queues(f"{self._prefix}-", include_metadata=True)
            unused = (
                queue.name
                for queue in queues
                if queue.name > after and self._is_unused(queue.name, queue.metadata or {}, now)
            )
            names = list(islice(unused, limit))
        for name in names:
            self._remove_queue(name, now)
        return names[-1] if len(names) == limit else None

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
        try:
            with unavailable_when_down():
                self._client(queue).set_queue_metadata(metadata)
        except ResourceNotFoundError:
            with suppress(ResourceExistsError), unavailable_when_down():
                self._client(queue).create_queue(metadata=metadata)  # unless somebody else did in this moment
        self._used.put(name, today)

    def _is_unused(self, name: str, metadata: Mapping[str, str], now: datetime) -> bool:
        """Whether it is a work queue of ours, last used on a day that ended 10 days ago."""
        try:
            queues = work_queues(metadata["provisioner_id"], metadata["worker_type"])
            last_used = date.fromisoformat(metadata["last_used"])
        except (KeyError, ValueError):
            return False
        return now.date() - last_used > _UNUSED and any(queue.name(self._prefix) == name for queue in queues)

    def _remove_queue(self, name: str, now: datetime) -> None:
        """Remove it if it is empty and still unused; a message put in this moment goes with it."""
        client = self._service.get_queue_client(name)
        with unavailable_when_down(), suppress(ResourceNotFoundError):
            properties = client.get_queue_properties()
            if properties.approximate_message_count or not self._is_unused(
                name, properties.metadata or {}, now
            ):
                return
            client.delete_queue()
        self._used.forget(name)
