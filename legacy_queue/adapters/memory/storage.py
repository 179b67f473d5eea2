"""All of it behind the one port."""

import base64
import secrets

from legacy_queue.adapters.memory.event_log import MemoryEventLog
from legacy_queue.adapters.memory.queues import MemoryOwnQueues, MemoryWorkQueues
from legacy_queue.adapters.memory.table import MemoryTable
from legacy_queue.adapters.memory.tables import (
    MemoryDependencyStore,
    MemoryGroupStore,
    MemoryTaskStore,
    MemoryTurns,
)
from legacy_queue.ports import Clock, Storage


class MemoryStorage(Storage):
    """A storage account of its own, whose queues answer at ``<queue_url>/<account>``.

    The key that signs URLs is made for this process unless one is given.
    """

    tasks: MemoryTaskStore
    groups: MemoryGroupStore
    dependencies: MemoryDependencyStore
    work_queues: MemoryWorkQueues
    own_queues: MemoryOwnQueues

    def __init__(
        self,
        clock: Clock,
        queue_url: str,
        queue_prefix: str,
        account: str = "memorystore1",
        key: bytes | None = None,
    ) -> None:
        self.account = account
        self.key = secrets.token_bytes(64) if key is None else key
        queue_url = queue_url.rstrip("/")
        self.endpoints = {"queue": f"{queue_url}/{account}", "table": None, "blob": None}
        self.tasks = MemoryTaskStore()
        self.groups = MemoryGroupStore(clock)
        self.dependencies = MemoryDependencyStore()
        self.work_queues = MemoryWorkQueues(
            clock, queue_url, queue_prefix, account, base64.b64encode(self.key).decode()
        )
        self.own_queues = MemoryOwnQueues(clock)
        self.turns = MemoryTurns(clock)
        self.event_log = MemoryEventLog(clock)
        self.expiring = {
            "artifacts": MemoryTable[None](),
            "tasks": self.tasks,
            "groups": self.groups,
            "dependencies": self.dependencies,
            "workers": MemoryTable[None](),
            "work-queues": self.work_queues,
        }

    def check(self) -> None:
        """Memory always answers."""
