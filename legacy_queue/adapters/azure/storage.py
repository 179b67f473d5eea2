"""One storage account: its tables and queues, and whether they answer."""

import base64
from collections import Counter

from azure.core.utils import parse_connection_string

from legacy_queue.adapters.azure.client import queue_service, table_service, unavailable_when_down
from legacy_queue.adapters.azure.dependencies import AzureDependencyStore
from legacy_queue.adapters.azure.event_log import AzureEventLog
from legacy_queue.adapters.azure.groups import AzureGroupStore
from legacy_queue.adapters.azure.own_queues import AzureOwnQueues
from legacy_queue.adapters.azure.rows import ExpiringRows
from legacy_queue.adapters.azure.tasks import AzureTaskStore
from legacy_queue.adapters.azure.turns import AzureTurns
from legacy_queue.adapters.azure.work_queues import AzureWorkQueues
from legacy_queue.ports import Clock, Storage

_TABLES = ("tasks", "groups", "dependencies", "artifacts", "workers", "turns", "events")


class AzureStorage(Storage):
    """Tables ``<prefix>tasks``, ``<prefix>groups``, ..., queues ``<prefix>-...``.

    ``operations`` counts the requests sent, by service and HTTP method.
    """

    def __init__(
        self, connection_string: str, prefix: str, clock: Clock, public_queue_url: str | None = None
    ) -> None:
        """Clients for the account; nothing is sent yet.

        ``public_queue_url`` is what workers are told, where that is not the queue endpoint itself.
        Raises ValueError for a connection string that is none, or that has no account key.
        """
        self.operations: Counter[tuple[str, str]] = Counter()
        self._queues = queue_service(connection_string, self.operations)
        self._tables = table_service(connection_string, self.operations)
        self._table_names = [f"{prefix}{name}" for name in _TABLES]
        key = getattr(self._queues.credential, "account_key", None)
        if not key:
            raise ValueError("it has no AccountKey, with which poll URLs are signed")
        try:
            base64.b64decode(key, validate=True)
        except ValueError:
            raise ValueError("its AccountKey is not base64") from None
        parts = parse_connection_string(connection_string)
        suffix = parts.get("endpointsuffix", "core.windows.net")
        blob = parts.get("blobendpoint") or f"https://{parts['accountname']}.blob.{suffix}"
        queue = str(self._queues.url).rstrip("/")
        self.endpoints = {"queue": queue, "table": self._tables.url.rstrip("/"), "blob": blob.rstrip("/")}
        tables = {name: self._tables.get_table_client(f"{prefix}{name}") for name in _TABLES}
        self.tasks = AzureTaskStore(tables["tasks"])
        self.groups = AzureGroupStore(tables["groups"], clock)
        self.dependencies = AzureDependencyStore(tables["dependencies"])
        self.work_queues = AzureWorkQueues(self._queues, prefix, public_queue_url or queue, key, clock)
        self.own_queues = AzureOwnQueues(self._queues, prefix)
        self.turns = AzureTurns(tables["turns"], clock)
        self.event_log = AzureEventLog(tables["events"], clock)
        self.expiring = {
            "artifacts": ExpiringRows(tables["artifacts"]),
            "tasks": self.tasks,
            "groups": self.groups,
            "dependencies": self.dependencies,
            "workers": ExpiringRows(tables["workers"]),
            "work-queues": self.work_queues,
        }

    def check(self) -> None:
        """As promised; makes the tables where they are missing."""
        with unavailable_when_down():
            self._queues.get_service_properties()
            if {table.name for table in self._tables.list_tables()} >= set(self._table_names):
                return
            for name in self._table_names:
                self._tables.create_table_if_not_exists(name)
