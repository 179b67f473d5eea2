"""Azure Storage or Azurite, behind the ports.

Import this only after gevent has patched: the SDK creates locks when it is imported.
"""

import base64
import ssl
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from azure.data.tables import TableServiceClient
from azure.storage.blob import BlobServiceClient
from azure.storage.queue import QueueServiceClient

from legacy_queue.adapters.azure.azure_blob import AzureBlobContainer
from legacy_queue.adapters.azure.azure_queue import AzureQueue, listed_queues
from legacy_queue.adapters.azure.azure_table import AzureTable, existing_tables
from legacy_queue.adapters.azure.connection import Connections
from legacy_queue.adapters.azure.entra import DelegationKey, EntraAccess, EntraToken
from legacy_queue.adapters.azure.rest import (
    BLOB,
    QUEUE,
    TABLE,
    RestClient,
    Service,
    SharedKey,
    StorageRefused,
)
from legacy_queue.adapters.signing import UrlSigner
from legacy_queue.ports import AlreadyExists, Observe, ignore
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
        observe: Observe = ignore,
    ) -> None:
        """The account, whose container is ``<prefix>-artifacts``. Sends nothing.

        ``access`` is a connection string, or that of an identity. ``public_queue_url`` and
        ``public_blob_url`` are for workers, by default ``gateway``, whose key is another: that of an Azurite
        may be public; or else the endpoints. ``proxy`` and ``context`` are as those of Connections. Raises
        ValueError for an invalid connection string or URL, or without an account key.
        """
        self.operations: Counter[tuple[str, str]] = Counter()
        urls: Sequence[str]
        signer: SharedKey | EntraToken
        if isinstance(access, str):
            account, key, urls = _parsed(access)
            signer = SharedKey(account, key)
        else:
            account, urls, credential = access
            key = ""
            signer = EntraToken(credential)
        queue_url, self._table_url, blob_url = (url.rstrip("/") for url in urls)
        endpoints = {"queue": queue_url, "table": self._table_url, "blob": blob_url}
        self.endpoints = endpoints
        self._connections = {
            name: Connections(url, context=context, proxy=proxy) for name, url in endpoints.items()
        }

        def client(service: Service) -> RestClient:
            connections = self._connections[service.name]
            return RestClient(service, connections, signer, self.operations, observe=observe)

        self._queue_requests = client(QUEUE)
        self._table_requests = client(TABLE)
        self.public_queues, self.public_blobs = (
            gateway if gateway and not public else SigningEndpoint(public or own, account, key)
            for public, own in ((public_queue_url, queue_url), (public_blob_url, blob_url))
        )
        self._delegation_keys: Mapping[str, DelegationKey] = {}
        if isinstance(signer, EntraToken):
            publics = (QUEUE, self.public_queues), (BLOB, self.public_blobs)
            self._delegation_keys = {
                service.name: DelegationKey(service, client)
                for service, public in publics
                if public is not gateway
            }
        self._prefix = prefix
        self._tables_by_name: dict[str, AzureTable] = {}
        self.container = AzureBlobContainer(
            client(BLOB), f"{prefix}-artifacts", self._signer("blob", self.public_blobs)
        )

    def table(self, name: str) -> AzureTable:
        return self._tables_by_name.setdefault(name, AzureTable(self._table_requests, self._table_url, name))

    def queue(self, name: str) -> AzureQueue:
        return AzureQueue(self._queue_requests, name, self._signer("queue", self.public_queues))

    def queues(self, prefix: str) -> Iterator[tuple[str, Mapping[str, str]]]:
        """As the port promises; read page by page."""
        return listed_queues(self._queue_requests, prefix)

    def check(self) -> None:
        # not the properties of the service: roles for data do not allow that
        next(self.queues(f"{self._prefix}-timers"), None)
        self.container.create()
        wanted = sorted(self._tables_by_name) or [""]
        for name in self._tables_by_name.keys() - existing_tables(
            self._table_requests, wanted[0], wanted[-1]
        ):
            with suppress(AlreadyExists):  # another process was faster
                self._tables_by_name[name].create()

    def check_access(self) -> None:
        """As ``check``, and return if URLs can be signed.

        Raises UnusableStorage.
        """
        try:
            for key in self._delegation_keys.values():
                key.until(datetime.now(UTC))
            self.check()
        except StorageRefused as error:
            needed = f": {_NEEDED}" if self._delegation_keys else ""
            raise UnusableStorage(
                f"{self.endpoints['queue']} refuses this server ({error}){needed}"
            ) from error

    def empty(self) -> None:
        """Delete everything of the prefix: queues, the tables of ``table``, and the container.

        ``check`` creates tables and container again. For Azurite: Azure reserves a deleted name for 30 s.
        """
        for name, _ in list(self.queues(f"{self._prefix}-")):
            self.queue(name).remove()
        for table in self._tables_by_name.values():
            table.remove()
        self.container.remove()

    def close(self) -> None:
        """From now on every operation on rows, messages and written blobs raises ServiceUnavailable."""
        for connections in self._connections.values():
            connections.close()

    def _signer(self, service: str, endpoint: SigningEndpoint) -> UrlSigner:
        key = self._delegation_keys.get(service)
        return UrlSigner(endpoint, key.until if key else None)


def _parsed(connection_string: str) -> tuple[str, str, Sequence[str]]:
    """The account's name, its key, and the URLs of queues, tables and blobs; raises ValueError."""
    kinds: list[Any] = [QueueServiceClient, TableServiceClient, BlobServiceClient]
    queues, *others = (kind.from_connection_string(connection_string) for kind in kinds)
    key = getattr(queues.credential, "account_key", None)
    if not key:
        raise ValueError("it has no AccountKey, with which poll URLs are signed")
    try:
        base64.b64decode(key, validate=True)
    except ValueError:
        raise ValueError("its AccountKey is not base64") from None
    return queues.account_name, key, [client.url for client in (queues, *others)]
