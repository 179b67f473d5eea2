"""An account of Azure Storage, or Azurite's."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress

from azure.core.exceptions import ResourceExistsError

from legacy_queue.adapters.azure.blob import AzureBlobContainer
from legacy_queue.adapters.azure.client import (
    blob_service,
    queue_service,
    table_service,
    unavailable_when_down,
)
from legacy_queue.adapters.azure.connection import Connections
from legacy_queue.adapters.azure.queue import AzureQueue
from legacy_queue.adapters.azure.rest import BLOB, QUEUE, TABLE, RestClient, Service
from legacy_queue.adapters.azure.signing import SharedKey
from legacy_queue.adapters.azure.table import AzureTable
from legacy_queue.ports.account import Endpoint, StorageAccount


class AzureAccount(StorageAccount):
    """``operations`` counts the requests sent, by service and HTTP method."""

    def __init__(
        self,
        connection_string: str,
        prefix: str,
        public_queue_url: str | None = None,
        public_blob_url: str | None = None,
    ) -> None:
        """Clients for the account, whose container is ``<prefix>-artifacts``; nothing is sent yet.

        ``public_queue_url`` and ``public_blob_url`` are what workers are told, where that is not the
        endpoint itself.
        Raises ValueError for a connection string that is none, or that has no account key.
        """
        self.operations: Counter[tuple[str, str]] = Counter()
        self._queues = queue_service(connection_string, self.operations)
        self._tables = table_service(connection_string, self.operations)
        self._blobs = blob_service(connection_string, self.operations)
        key = getattr(self._queues.credential, "account_key", None)
        if not key:
            raise ValueError("it has no AccountKey, with which poll URLs are signed")
        account = str(self._queues.account_name)
        try:
            signer = SharedKey(account, key)
        except ValueError:
            raise ValueError("its AccountKey is not base64") from None
        urls: dict[str, str] = {
            service.name: str(client.url).rstrip("/")
            for service, client in ((QUEUE, self._queues), (TABLE, self._tables), (BLOB, self._blobs))
        }
        self.endpoints = {**urls}
        self.public_queues = Endpoint(public_queue_url or urls["queue"], account, key)
        self.public_blobs = Endpoint(public_blob_url or urls["blob"], account, key)
        self._queue_requests, self._table_requests, blob_requests = (
            self._requests(service, urls[service.name], signer) for service in (QUEUE, TABLE, BLOB)
        )
        self._table_url = urls["table"]
        self._of_name: dict[str, AzureTable] = {}
        self._container = self._blobs.get_container_client(f"{prefix}-artifacts")
        self.container = AzureBlobContainer(blob_requests, self._container)

    def table(self, name: str) -> AzureTable:
        return self._of_name.setdefault(name, AzureTable(self._table_requests, self._table_url, name))

    def queue(self, name: str) -> AzureQueue:
        return AzureQueue(self._queue_requests, self._queues, name)

    def queues(self, prefix: str) -> Iterator[tuple[str, Mapping[str, str]]]:
        """As promised; in pages, as they are asked for."""
        with unavailable_when_down():
            for queue in self._queues.list_queues(prefix, include_metadata=True):
                yield str(queue.name), dict(queue.metadata or {})

    def check(self) -> None:
        with unavailable_when_down():
            self._queues.get_service_properties()
            if not self._container.exists():
                with suppress(ResourceExistsError):  # another process was faster
                    self._container.create_container()
            wanted = sorted(self._of_name) or [""]
            there = self._tables.query_tables(  # an account may have thousands of other tables
                "TableName ge @first and TableName le @last",
                parameters={"first": wanted[0], "last": wanted[-1]},
            )
            for name in self._of_name.keys() - {table.name for table in there}:
                self._tables.create_table_if_not_exists(name)

    def _requests(self, service: Service, url: str, signer: SharedKey) -> RestClient:
        return RestClient(service, Connections(url), signer, self.operations)
