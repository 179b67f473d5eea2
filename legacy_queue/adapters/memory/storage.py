"""All of it behind the one port."""

import base64
import secrets

from legacy_queue.adapters.memory.artifacts import MemoryArtifactStore
from legacy_queue.adapters.memory.blobs import MemoryBlobs
from legacy_queue.adapters.memory.event_log import MemoryEventLog
from legacy_queue.adapters.memory.queues import MemoryOwnQueues, MemoryWorkQueues
from legacy_queue.adapters.memory.tables import (
    MemoryDependencyStore,
    MemoryGroupStore,
    MemoryTaskStore,
    MemoryTurns,
)
from legacy_queue.adapters.memory.usage import MemoryUsageStore
from legacy_queue.adapters.memory.workers import MemoryWorkerStore
from legacy_queue.adapters.sas import BlobSigner
from legacy_queue.ports import Clock, Storage


class MemoryStorage(Storage):
    """A storage account of its own: queues answer at ``<queue_url>/<account>``, blobs at ``<blob_url>/...``.

    ``blob_url`` is ``queue_url`` unless another one is given, and the key that signs URLs is made for this
    process.
    """

    tasks: MemoryTaskStore
    groups: MemoryGroupStore
    dependencies: MemoryDependencyStore
    blobs: MemoryBlobs
    work_queues: MemoryWorkQueues
    own_queues: MemoryOwnQueues

    def __init__(
        self,
        clock: Clock,
        queue_url: str,
        queue_prefix: str,
        account: str = "memorystore1",
        key: bytes | None = None,
        blob_url: str | None = None,
    ) -> None:
        self.account = account
        self.key = secrets.token_bytes(64) if key is None else key
        queue_url = queue_url.rstrip("/")
        signer = BlobSigner(
            f"{(blob_url or queue_url).rstrip('/')}/{account}",
            account,
            base64.b64encode(self.key).decode(),
            f"{queue_prefix}-artifacts",
        )
        self.endpoints = {"queue": f"{queue_url}/{account}", "table": None, "blob": signer.blob_url}
        self.tasks = MemoryTaskStore()
        self.groups = MemoryGroupStore(clock)
        self.dependencies = MemoryDependencyStore()
        self.artifacts = MemoryArtifactStore()
        self.blobs = MemoryBlobs(clock, signer)
        self.work_queues = MemoryWorkQueues(
            clock, queue_url, queue_prefix, account, base64.b64encode(self.key).decode()
        )
        self.own_queues = MemoryOwnQueues(clock)
        self.turns = MemoryTurns(clock)
        self.event_log = MemoryEventLog(clock)
        self.usage = MemoryUsageStore()
        self.workers = MemoryWorkerStore()
        self.expiring = {
            "tasks": self.tasks,
            "groups": self.groups,
            "dependencies": self.dependencies,
            "workers": self.workers,
            "work-queues": self.work_queues,
            "usage": self.usage,
        }

    def check(self) -> None:
        """Memory always answers."""
