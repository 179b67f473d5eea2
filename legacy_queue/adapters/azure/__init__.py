"""Azure Storage or Azurite, behind the ports.

Import this only after gevent has patched: the SDK creates locks when it is imported.
"""

import base64
import ssl
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from azure.core.exceptions import HttpResponseError, ResourceExistsError
from azure.storage.queue import QueueServiceClient

from legacy_queue.adapters.azure.azure_blob import AzureBlobContainer
from legacy_queue.adapters.azure.azure_queue import AzureQueue
from legacy_queue.adapters.azure.azure_table import AzureTable
from legacy_queue.adapters.azure.connection import Connections
from legacy_queue.adapters.azure.entra import (
    DelegationKey,
    EntraAccess,
    EntraToken,
    key_service,
)
from legacy_queue.adapters.azure.rest import BLOB, QUEUE, TABLE, RestClient, Sender, SharedKey, StorageRefused
from legacy_queue.adapters.azure.sdk import CLIENTS, ask, endpoints, find, sdk_client
from legacy_queue.adapters.signing import UrlSigner
from legacy_queue.ports.account import SigningEndpoint, StorageAccount, UnusableStorage

_NEEDED = (
    "with Microsoft Entra ID the account must have user delegation keys for queues and blobs, and this "
    "server's identity the roles that docs/how-to/real-azure.md names; a connection string needs neither"
)


class AzureAccount(StorageAccount):
    """``operations`` counts the requests sent, by service and HTTP method."""

    version = None

    def __init__(
        self,
        access: str | EntraAccess,
        prefix: str,
        public_queue_url: str | None = None,
        public_blob_url: str | None = None,
        gateway: SigningEndpoint | None = None,
        proxy: str | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """Clients for the account, whose container is ``<prefix>-artifacts``. Sends nothing.

        ``access`` is a connection string, or that of an identity. ``public_queue_url`` and
        ``public_blob_url`` are for workers, by default ``gateway``, whose key is another: that of an Azurite
        may be public; or else the endpoints. ``proxy`` and ``context`` are as those of Connections. Raises
        ValueError for an invalid connection string or URL, or without an account key.
        """
        self.operations: Counter[tuple[str, str]] = Counter()
        token = EntraToken(access.credential) if isinstance(access, EntraAccess) else None
        found = access.urls if isinstance(access, EntraAccess) else endpoints(access)
        urls = [url.rstrip("/") for url in found]
        queue_url, self._table_url, blob_url = urls
        self.endpoints = {"queue": queue_url, "table": self._table_url, "blob": blob_url}
        self._connections = [Connections(url, context=context, proxy=proxy) for url in urls]
        services = (QUEUE, TABLE, BLOB)
        senders = [
            Sender(service, connections, self.operations)
            for service, connections in zip(services, self._connections, strict=True)
        ]
        sdk_access: list[Any] = [access] * 3 if isinstance(access, str) else [(url, token) for url in urls]
        clients: list[Any] = [
            sdk_client(kind, sender, at)
            for kind, sender, at in zip(CLIENTS, senders, sdk_access, strict=True)
        ]
        self._queues, self._tables, self._blobs = clients
        account, key = _account_key(self._queues) if isinstance(access, str) else (access.account, "")
        signer = token or SharedKey(account, key)
        self._queue_requests, self._table_requests, blob_requests = (
            RestClient(sender, signer) for sender in senders
        )
        self.public_queues, self.public_blobs = (
            gateway if gateway and not public else SigningEndpoint(public or own, account, key)
            for public, own in ((public_queue_url, queue_url), (public_blob_url, blob_url))
        )
        publics = self.public_queues, None, self.public_blobs
        self._delegation_keys: Mapping[str, DelegationKey] = {}
        if token:
            self._delegation_keys = {
                service.name: DelegationKey(
                    service.name,
                    RestClient(Sender(key_service(service), connections, self.operations), token),
                )
                for service, public, connections in zip(services, publics, self._connections, strict=True)
                if public not in (None, gateway)
            }
        self._prefix = prefix
        self._tables_by_name: dict[str, AzureTable] = {}
        self._container = self._blobs.get_container_client(f"{prefix}-artifacts")
        self.container = AzureBlobContainer(
            blob_requests, self._container, self._signer("blob", self.public_blobs)
        )

    def table(self, name: str) -> AzureTable:
        return self._tables_by_name.setdefault(name, AzureTable(self._table_requests, self._table_url, name))

    def queue(self, name: str) -> AzureQueue:
        return AzureQueue(self._queue_requests, self._queues, name, self._signer("queue", self.public_queues))

    def queues(self, prefix: str) -> Iterator[tuple[str, Mapping[str, str]]]:
        """As the port promises; read page by page."""
        listed = self._queues.list_queues(prefix, include_metadata=True)
        while queue := ask(next, listed, None):
            yield queue.name, queue.metadata or {}

    def check(self) -> None:
        # not the properties of the service: roles for data do not allow that
        next(self.queues(f"{self._prefix}-timers"), None)
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

    def check_access(self) -> None:
        """As ``check``, and return if URLs can be signed.

        Raises UnusableStorage.
        """
        try:
            for key in self._delegation_keys.values():
                key.until(datetime.now(UTC))
            self.check()
        except (StorageRefused, HttpResponseError) as error:
            reason = str(error).partition("\n")[0]
            needed = f": {_NEEDED}" if self._delegation_keys else ""
            raise UnusableStorage(
                f"{self.endpoints['queue']} refuses this server ({reason}){needed}"
            ) from error

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

    def _signer(self, service: str, endpoint: SigningEndpoint) -> UrlSigner:
        key = self._delegation_keys.get(service)
        return UrlSigner(endpoint, key.until if key else None)


def _account_key(queues: QueueServiceClient) -> tuple[str, str]:
    """The account's name and key; raises ValueError."""
    key = getattr(queues.credential, "account_key", None)
    if not key:
        raise ValueError("it has no AccountKey, with which poll URLs are signed")
    try:
        base64.b64decode(key, validate=True)
    except ValueError:
        raise ValueError("its AccountKey is not base64") from None
    return str(queues.account_name), key
