"""The queue's own queues in Azure Queue Storage."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.storage.queue import QueueClient, QueueServiceClient

from legacy_queue.adapters.azure import messages
from legacy_queue.adapters.azure.client import unavailable_when_down
from legacy_queue.domain.messages import Lease
from legacy_queue.ports import OwnQueues, ReceivedMessage


class AzureOwnQueues(OwnQueues):
    """A queue is made when a message cannot be put for want of it: no other call costs more than itself."""

    def __init__(self, service: QueueServiceClient, prefix: str) -> None:
        self._service, self._prefix = service, prefix
        self._clients: dict[str, QueueClient] = {}

    def put(self, name: str, text: str, hidden_for: timedelta) -> Lease:
        client = self._client(name)
        try:
            return messages.put(client, text, messages.FOREVER, hidden_for)
        except ResourceNotFoundError:
            with suppress(ResourceExistsError), unavailable_when_down():
                client.create_queue()  # unless somebody else made it in this moment
            return messages.put(client, text, messages.FOREVER, hidden_for)

    def receive(self, name: str, count: int, hidden_for: timedelta) -> Sequence[ReceivedMessage]:
        return messages.receive(self._client(name), count, hidden_for)

    def peek(self, name: str, count: int) -> Sequence[ReceivedMessage]:
        with unavailable_when_down(), suppress(ResourceNotFoundError):
            return [messages.received(one) for one in self._client(name).peek_messages(max_messages=count)]
        return []

    def hide(self, name: str, lease: Lease, text: str, hidden_for: timedelta) -> Lease:
        return messages.hide(self._client(name), lease, text, hidden_for)

    def remove(self, name: str, lease: Lease) -> None:
        messages.remove(self._client(name), lease)

    def _client(self, name: str) -> QueueClient:
        if name not in self._clients:
            self._clients[name] = self._service.get_queue_client(f"{self._prefix}-{name}")
        return self._clients[name]
