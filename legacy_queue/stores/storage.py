"""All stores of a storage account."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from legacy_queue.ports import Clock
from legacy_queue.ports.account import StorageAccount
from legacy_queue.stores.artifacts import ArtifactStore
from legacy_queue.stores.blobs import Blobs
from legacy_queue.stores.dependencies import DependencyStore
from legacy_queue.stores.groups import GroupStore
from legacy_queue.stores.tasks import TaskStore
from legacy_queue.stores.timers import TimerStore
from legacy_queue.stores.turns import Turns
from legacy_queue.stores.usage import UsageStore
from legacy_queue.stores.work_queues import WorkQueues
from legacy_queue.stores.workers import WorkerStore


class Expiring(Protocol):
    """What is kept until a time of its own; see ``ExpiringRows``."""

    def remove_expired(self, now: datetime, after: str, limit: int) -> str | None: ...


@dataclass(frozen=True)
class Storage:
    """``expiring`` by name, in the order in which they are looked through."""

    account: StorageAccount
    tasks: TaskStore
    groups: GroupStore
    dependencies: DependencyStore
    artifacts: ArtifactStore
    blobs: Blobs
    work_queues: WorkQueues
    timers: TimerStore
    turns: Turns
    usage: UsageStore
    workers: WorkerStore
    expiring: Mapping[str, Expiring]


def open_stores(
    account: StorageAccount, prefix: str, clock: Clock, *, is_only_process: bool = False
) -> Storage:
    """Tables ``<prefix>tasks``, ..., queues ``<prefix>-...``; nothing is sent yet.

    ``is_only_process``: no other process uses the account, and nothing is stored in it yet. What a process
    remembers is in its stores: two that are opened on one account are as two processes.
    """
    tasks = TaskStore(account.table(f"{prefix}tasks"), is_only_writer=is_only_process)
    groups = GroupStore(account.table(f"{prefix}groups"), clock)
    dependencies = DependencyStore(account.table(f"{prefix}dependencies"), clock)
    work_queues = WorkQueues(account, prefix, clock)
    usage = UsageStore(account.table(f"{prefix}usage"))
    workers = WorkerStore(account.table(f"{prefix}workers"))
    return Storage(
        account,
        tasks,
        groups,
        dependencies,
        ArtifactStore(account.table(f"{prefix}artifacts")),
        Blobs(account, clock),
        work_queues,
        TimerStore(account, prefix),
        Turns(account.table(f"{prefix}turns"), clock),
        usage,
        workers,
        expiring={
            "tasks": tasks,
            "groups": groups,
            "dependencies": dependencies,
            "workers": workers,
            "work-queues": work_queues,
            "usage": usage,
        },
    )
