"""Implements the storage ports with Azure Storage or Azurite, by Microsoft's SDK.

Import it only if the storage is Azure, because it is slow to import. Let gevent patch first, because the SDK
creates locks.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from threading import Lock
from typing import Any

import structlog
from azure.core.settings import settings
from azure.data.tables import TableServiceClient
from azure.storage.blob import BlobServiceClient
from azure.storage.queue import QueueServiceClient

from legacy_queue.adapters.azure.access import (
    Access,
    AzureUrlSigner,
    StorageToken,
    delegation_key,
    parse_connection_string,
)
from legacy_queue.adapters.azure.azure_blob import DOWNLOADED, AzureBlobContainer
from legacy_queue.adapters.azure.azure_queue import AzureQueue
from legacy_queue.adapters.azure.azure_table import AzureTable
from legacy_queue.adapters.azure.errors import StorageRefused, call
from legacy_queue.adapters.azure.transport import Transport
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.times import format_time
from legacy_queue.ports import AlreadyExists
from legacy_queue.ports.account import SigningEndpoint, StorageAccount, UnusableStorage

log = structlog.get_logger()

_KEY_VERSION = "2026-02-06"  # the first version of the API with user delegation keys for queues
_OPTIONS = {
    "retry_total": 0,  # the transport retries
    "permit_redirects": False,
    "max_single_get_size": DOWNLOADED,
    "max_chunk_get_size": DOWNLOADED,
}
_NEEDED = (
    "with Microsoft Entra ID, the account must support user delegation keys for queues and blobs, and this "
    "server's identity needs the roles in docs/how-to/real-azure.md. A connection string needs neither"
)
# otherwise the SDK would read the environment several times for each request
settings.tracing_enabled = False
# The SDK warns about answers without a body and about errors that it raises anyway. At a lower level it would
# also log requests, which contain signatures.
for _name in ("azure.core", "azure.data", "azure.identity", "azure.storage"):
    logging.getLogger(_name).setLevel(logging.ERROR)


class AzureAccount(StorageAccount):
    """An account of Azure or Azurite. ``operations`` counts its requests by service and HTTP method."""

    version = None
    shown_messages = None

    def __init__(
        self,
        access: str | Access,
        prefix: str,
        public_queue_url: str | None = None,
        public_blob_url: str | None = None,
        gateway: SigningEndpoint | None = None,
        transport: Callable[..., Transport] = Transport,
    ) -> None:
        """Make the account, without a request. Its container is ``<prefix>-artifacts``.

        ``access`` is a connection string, or the Access of an identity. ``public_queue_url`` and
        ``public_blob_url`` are the URLs for workers. By default these are the ``gateway``, or the account's
        endpoints if there is no gateway. The gateway has its own key, because the key of an Azurite may be
        public. ``transport`` makes the Transport of a service. Raises ValueError if the connection string or
        a URL is invalid, or if there is no account key.
        """
        self.operations: Counter[tuple[str, str]] = Counter()
        account, urls, credential, key = (
            parse_connection_string(access) if isinstance(access, str) else access
        )
        names = ("queue", "table", "blob")
        self.endpoints: dict[str, str] = {name: at.rstrip("/") for name, at in zip(names, urls, strict=True)}
        self._transports = {name: transport(name, at, self.operations) for name, at in self.endpoints.items()}
        authorizer = credential if key else StorageToken(credential)

        def client(kind: Any, name: str, version: str) -> Any:
            options = {**_OPTIONS, "transport": self._transports[name], "api_version": version}
            return kind(self.endpoints[name], credential=authorizer, **options)

        # versions of the API that Azurite knows; for tables, the first that accepts tokens
        self._queues: QueueServiceClient = client(QueueServiceClient, "queue", "2021-12-02")
        self._queue_client = lru_cache(1024)(self._queues.get_queue_client)
        self._tables: TableServiceClient = client(TableServiceClient, "table", "2020-12-06")
        blobs: BlobServiceClient = client(BlobServiceClient, "blob", "2021-12-02")
        keyed: QueueServiceClient = client(QueueServiceClient, "queue", _KEY_VERSION)
        fetches: Mapping[str, Callable[[datetime, datetime], Any]] = {
            "queue": lambda start, end: keyed.get_user_delegation_key(start=start, expiry=end),
            "blob": blobs.get_user_delegation_key,
        }

        def signer(name: str, public: str | None) -> AzureUrlSigner:
            if gateway and not public:
                return AzureUrlSigner(gateway)
            endpoint = SigningEndpoint(public or self.endpoints[name], account, key)
            return AzureUrlSigner(endpoint, None if key else delegation_key(name, fetches[name]))

        self._signer = signer("queue", public_queue_url)
        blob_signer = signer("blob", public_blob_url)
        self.public_queues = self._signer.endpoint
        self.public_blobs = blob_signer.endpoint
        self._keys = [one.delegation_key for one in (self._signer, blob_signer) if one.delegation_key]
        self._prefix = prefix
        self._tables_by_name: dict[str, AzureTable] = {}
        container = blobs.get_container_client(f"{prefix}-artifacts")
        self.container = AzureBlobContainer(container, blob_signer, self._emptied)
        self._has_all = False  # whether the container and all tables existed at the last check
        self._emptied_at = ""
        self._refill = Lock()

    def table(self, name: str) -> AzureTable:
        if name not in self._tables_by_name:
            client = self._tables.get_table_client(name)
            self._tables_by_name.setdefault(name, AzureTable(client, self._emptied))
        return self._tables_by_name[name]

    def queue(self, name: str) -> AzureQueue:
        return AzureQueue(self._queue_client(name), self._signer)

    def queues(self, prefix: str) -> Iterator[tuple[str, Mapping[str, str]]]:
        queues = self._queues.list_queues(prefix, include_metadata=True)
        while (queue := call(lambda: next(queues, None))) is not None:
            yield queue.name, queue.metadata or {}

    def check(self) -> None:
        # does not ask for the service's properties, because roles for data do not allow that
        next(self.queues(f"{self._prefix}-none"), None)
        missing = [self.container.name] if self.container.create() else []
        # ask for a range, because an account may have thousands of other tables
        wanted = sorted(self._tables_by_name) or [""]
        between = {"first": wanted[0], "last": wanted[-1]}
        tables = self._tables.query_tables("TableName ge @first and TableName le @last", parameters=between)
        missing += sorted(self._tables_by_name.keys() - call(lambda: {table.name for table in tables}))
        if missing and self._has_all:
            self._emptied_at = format_time(datetime.now(UTC))
            log.error(
                "storage-emptied", missing=missing, why="they are created again, but what was in them is lost"
            )
        for name in self._tables_by_name.keys() & missing:
            with suppress(AlreadyExists):  # another process was faster
                self._tables_by_name[name].create()
        self._has_all = True

    def warning(self) -> str:
        lost = f"The storage was emptied before {self._emptied_at}: all earlier tasks are lost."
        return lost if self._emptied_at else ""

    def _emptied(self) -> Exception:
        """Return the error for a call that found no table or no container.

        It also creates them again, one call at a time, because perhaps nobody calls ``check``.
        """
        if not self._has_all:
            log.error("storage-refused", status=404, error="the tables or the container do not exist yet")
        elif self._refill.acquire(blocking=False):
            try:
                with suppress(ServiceUnavailable):
                    self.check()
            finally:
                self._refill.release()
        return ServiceUnavailable("the storage has lost a table or the container, try again")

    def check_access(self) -> None:
        """Do what ``check`` does, and return if URLs can be signed. Raises UnusableStorage."""
        try:
            for key in self._keys:
                key.until(datetime.now(UTC))
            self.check()
        except StorageRefused as error:
            at = self.endpoints["queue"]
            needed = f": {_NEEDED}" if self._keys else ""
            raise UnusableStorage(f"{at} refuses this server ({error.refusal}){needed}") from error

    def empty(self) -> None:
        """Delete everything with the prefix: the queues, the tables that ``table`` returned, and the
        container.

        ``check`` creates tables and container again. Use this with Azurite only: Azure blocks a deleted name
        for 30 s.
        """
        for name, _ in list(self.queues(f"{self._prefix}-")):
            self.queue(name).remove()
        for table in self._tables_by_name.values():
            table.remove()
        self.container.remove()

    def close(self) -> None:
        for transport in self._transports.values():
            transport.close()
