"""Azure Storage or Azurite, behind the ports.

Import this only after gevent has patched: the SDK creates locks when it is imported.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from azure.core.exceptions import ResourceExistsError
from azure.data.tables import TableServiceClient
from azure.storage.blob import BlobServiceClient
from azure.storage.queue import QueueServiceClient

from legacy_queue.adapters.azure.azure_blob import AzureBlobContainer
from legacy_queue.adapters.azure.azure_queue import AzureQueue
from legacy_queue.adapters.azure.azure_table import AzureTable
from legacy_queue.adapters.azure.connection import Connections
from legacy_queue.adapters.azure.rest import BLOB, QUEUE, TABLE, RestClient, SharedKey
from legacy_queue.adapters.azure.sdk import ask, connect, find
from legacy_queue.ports.account import SigningEndpoint, StorageAccount

_CLIENTS = ((QUEUE, QueueServiceClient), (TABLE, TableServiceClient), (BLOB, BlobServiceClient))


class AzureAccount(StorageAccount):
    """``operations`` counts the requests sent, by service and HTTP method."""

    version = None

    def __init__(
        self,
        connection_string: str,
        prefix: str,
        public_queue_url: str | None = None,
        public_blob_url: str | None = None,
        gateway_url: str | None = None,
    ) -> None:
        """Clients for the account, whose container is ``<prefix>-artifacts``. Sends nothing.

        ``public_queue_url`` and ``public_blob_url`` are for workers, by default ``<gateway_url>/<account>``,
        or else the endpoints. Raises ValueError for an invalid connection string, or without an account key.
        """
        self.operations: Counter[tuple[str, str]] = Counter()
        clients: list[Any] = [
            connect(kind, service.name, connection_string, self.operations) for service, kind in _CLIENTS
        ]
        self._queues, self._tables, self._blobs = clients
        key = getattr(self._queues.credential, "account_key", None)
        if not key:
            raise ValueError("it has no AccountKey, with which poll URLs are signed")
        account = str(self._queues.account_name)
        try:
            signer = SharedKey(account, key)
        except ValueError:
            raise ValueError("its AccountKey is not base64") from None
        urls = queue_url, self._table_url, blob_url = [str(client.url).rstrip("/") for client in clients]
        self.endpoints = {"queue": queue_url, "table": self._table_url, "blob": blob_url}
        gateway = f"{gateway_url}/{account}" if gateway_url else None
        self.public_queues = SigningEndpoint(public_queue_url or gateway or queue_url, account, key)
        self.public_blobs = SigningEndpoint(public_blob_url or gateway or blob_url, account, key)
        self._connections = [Connections(url) for url in urls]
        self._queue_requests, self._table_requests, blob_requests = (
            RestClient(service, connections, signer, self.operations)
            for (service, _), connections in zip(_CLIENTS, self._connections, strict=True)
        )
        self._prefix = prefix
        self._tables_by_name: dict[str, AzureTable] = {}
        self._container = self._blobs.get_container_client(f"{prefix}-artifacts")
        self.container = AzureBlobContainer(blob_requests, self._container)

    def table(self, name: str) -> AzureTable:
        return self._tables_by_name.setdefault(name, AzureTable(self._table_requests, self._table_url, name))

    def queue(self, name: str) -> AzureQueue:
        return AzureQueue(self._queue_requests, self._queues, name)

    def queues(self, prefix: str) -> Iterator[tuple[str, Mapping[str, str]]]:
        """As the port promises; read page by page."""
        listed = self._queues.list_queues(prefix, include_metadata=True)
        while queue := ask(next, listed, None):
            yield queue.name, queue.metadata or {}

    def check(self) -> None:
        ask(self._queues.get_service_properties)
        if not ask(self._container.exists):
            with suppress(ResourceExistsError):  # another process was faster
                ask(self._container.create_container)
        wanted = sorted(self._tables_by_name) or [""]
        tables = self._tables.query_tables(  # an account may have thousands of other tables
            "TableName ge @first and TableName le @last", parameters={"first": wanted[0], "last": wanted[-1]}
        )
        existing = {table.name for table in ask(list, tables)}
        for name in self._tables_by_name.keys() - existing:
            ask(self._tables.create_table_if_not_exists, name)

    def empty(self) -> None:
        """Delete everything of the prefix: queues, the tables of ``table``, and the container.

        ``check`` creates tables and container again. For Azurite: Azure reserves a deleted name for 30 s.
        """
        for name, _ in list(self.queues(f"{self._prefix}-")):
            self.queue(name).remove()
        for name in self._tables_by_name:
            ask(self._tables.delete_table, name)
        find(self._container.delete_container)

    def close(self) -> None:
        """From now on every operation on rows, messages and written blobs raises ServiceUnavailable."""
        for connections in self._connections:
            connections.close()
