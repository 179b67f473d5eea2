"""A storage account in the memory of this process: needs no Node.js, and ends with the process.

It makes the same promises as Azure to stores, and through the gateway to workers. Locks are held only while
values change, never during a wait, so it works the same on threads and greenlets.
"""

import base64
import secrets
from collections.abc import Iterator, Mapping
from threading import Lock

from legacy_queue.adapters.memory.memory_blob import MemoryBlobContainer
from legacy_queue.adapters.memory.memory_queue import MemoryQueue, Messages
from legacy_queue.adapters.memory.memory_table import MemoryTable
from legacy_queue.ports import Clock
from legacy_queue.ports.account import SigningEndpoint, StorageAccount

_NAME = "memorystore1"


class MemoryAccount(StorageAccount):
    """Queues answer at ``<queue_url>/memorystore1``, blobs at ``<blob_url>/memorystore1/<prefix>-artifacts``.

    ``blob_url`` is ``queue_url`` by default. The key that signs URLs is made for this process by default.
    ``messages`` are those of each queue, by its name.
    """

    def __init__(
        self,
        clock: Clock,
        queue_url: str,
        prefix: str,
        key: bytes | None = None,
        blob_url: str | None = None,
    ) -> None:
        signing_key = base64.b64encode(key or secrets.token_bytes(64)).decode()
        self.public_queues, self.public_blobs = (
            SigningEndpoint(f"{url.rstrip('/')}/{_NAME}", _NAME, signing_key)
            for url in (queue_url, blob_url or queue_url)
        )
        self.endpoints = {"queue": self.public_queues.url, "table": None, "blob": self.public_blobs.url}
        self.container = MemoryBlobContainer(f"{prefix}-artifacts", clock)
        self._clock = clock
        self._tables: dict[str, MemoryTable] = {}
        self.messages: dict[str, Messages] = {}
        self._lock = Lock()

    def table(self, name: str) -> MemoryTable:
        return self._tables.setdefault(name, MemoryTable())

    def queue(self, name: str) -> MemoryQueue:
        return MemoryQueue(name, self.messages, self._lock, self._clock)

    def queues(self, prefix: str) -> Iterator[tuple[str, Mapping[str, str]]]:
        with self._lock:
            queues = [
                (name, queue.metadata) for name, queue in self.messages.items() if name.startswith(prefix)
            ]
        return iter(sorted(queues))

    def check(self) -> None:
        """Returns: memory always answers."""
