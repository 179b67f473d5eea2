"""One storage account: its tables and queues, and whether they answer."""

import base64
from collections import Counter
from contextlib import suppress

from azure.core.exceptions import ResourceExistsError

from legacy_queue.adapters.azure.artifacts import AzureArtifactStore
from legacy_queue.adapters.azure.blobs import AzureBlobs
from legacy_queue.adapters.azure.client import (
    blob_service,
    queue_service,
    table_service,
    unavailable_when_down,
)
from legacy_queue.adapters.azure.dependencies import AzureDependencyStore
from legacy_queue.adapters.azure.event_log import AzureEventLog
from legacy_queue.adapters.azure.groups import AzureGroupStore
from legacy_queue.adapters.azure.own_queues import AzureOwnQueues
from legacy_queue.adapters.azure.tasks import AzureTaskStore
from legacy_queue.adapters.azure.turns import AzureTurns
from legacy_queue.adapters.azure.usage import AzureUsageStore
from legacy_queue.adapters.azure.work_queues import AzureWorkQueues
from legacy_queue.adapters.azure.workers import AzureWorkerStore
from legacy_queue.adapters.sas import BlobSigner
from legacy_queue.ports import Clock, Storage

_TABLES = ("tasks", "groups", "dependencies", "artifacts", "workers", "turns", "events", "usage")


class AzureStorage(Storage):
    """Tables ``<prefix>tasks``, ..., queues ``<prefix>-...``, and the container ``<prefix>-artifacts``.

    ``operations`` counts the requests sent, by service and HTTP method.
    """

    def __init__(
        self,
        connection_string: str,
        prefix: str,
        clock: Clock,
        public_queue_url: str | None = None,
        public_blob_url: str | None = None,
    ) -> None:
        """Clients for the account; nothing is sent yet.

        ``public_queue_url`` and ``public_blob_url`` are what workers are told, where that is not the
        endpoint itself.
        Raises ValueError for a connection string that is none, or that has no account key.
        """
        self.operations: Counter[tuple[str, str]] = Counter()
        self._queues = queue_service(connection_string, self.operations)
        self._tables = table_service(connection_string, self.operations)
        self._blobs = blob_service(connection_string, self.operations)
        self._table_names = [f"{prefix}{name}" for name in _TABLES]
        key = getattr(self._queues.credential, "account_key", None)
        if not key:
            raise ValueError("it has no AccountKey, with which poll URLs are signed")
        try:
            base64.b64decode(key, validate=True)
        except ValueError:
            raise ValueError("its AccountKey is not base64") from None
        queue, blob = str(self._queues.url).rstrip("/"), str(self._blobs.url).rstrip("/")
        self.endpoints = {"queue": queue, "table": self._tables.url.rstrip("/"), "blob": blob}
        tables = {name: self._tables.get_table_client(f"{prefix}{name}") for name in _TABLES}
        self.tasks = AzureTaskStore(tables["tasks"])
        self.groups = AzureGroupStore(tables["groups"], clock)
        self.dependencies = AzureDependencyStore(tables["dependencies"])
        self.artifacts = AzureArtifactStore(tables["artifacts"])
        self._container = self._blobs.get_container_client(f"{prefix}-artifacts")
        account = str(self._blobs.account_name)
        signer = BlobSigner(public_blob_url or blob, account, key, self._container.container_name)
        self.blobs = AzureBlobs(self._container, signer, clock)
        self.work_queues = AzureWorkQueues(self._queues, prefix, public_queue_url or queue, key, clock)
        self.own_queues = AzureOwnQueues(self._queues, prefix)
        self.turns = AzureTurns(tables["turns"], clock)
        self.event_log = AzureEventLog(tables["events"], clock)
        self.usage = AzureUsageStore(tables["usage"])
        self.workers = AzureWorkerStore(tables["workers"])
        self.expiring = {
            "tasks": self.tasks,
            "groups": self.groups,
            "dependencies": self.dependencies,
            "workers": self.workers,
            "work-queues": self.work_queues,
            "usage": self.usage,
        }

    def check(self) -> None:
        """As promised; makes the tables and the container where they are missing."""
        with unavailable_when_down():
            self._queues.get_service_properties()
            if not self._container.exists():
                with suppress(ResourceExistsError):  # another process was faster
                    self._container.create_container()
            if {table.name for table in self._tables.list_tables()} >= set(self._table_names):
                return
            for name in self._table_names:
                self._tables.create_table_if_not_exists(name)
