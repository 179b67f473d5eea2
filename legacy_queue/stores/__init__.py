"""What is stored, written once over the ports: tasks, groups, dependencies, artifacts, workers, queues.

Every method may raise ServiceUnavailable: then the caller does not know whether it happened, and repeating
it is safe. One that reads a certain row may raise Corrupt; lists and pages leave such rows out. A message
is a hint: it may be lost, late or doubled, and the tables decide what it means.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from legacy_queue.ports import Clock
from legacy_queue.ports.account import StorageAccount
from legacy_queue.stores.artifacts import ArtifactStore, StoredArtifact
from legacy_queue.stores.blobs import Blobs
from legacy_queue.stores.dependencies import DependencyStore, Dependent
from legacy_queue.stores.groups import ActiveTask, Group, GroupStore
from legacy_queue.stores.signed_urls import SignedUrls
from legacy_queue.stores.tasks import StoredTask, TaskStore
from legacy_queue.stores.timers import TimerMessage, TimerStore
from legacy_queue.stores.turns import Turn, Turns
from legacy_queue.stores.usage import UsageStore
from legacy_queue.stores.work_queues import ReceivedMessage, WorkQueues
from legacy_queue.stores.workers import StoredKnown, WorkerStore


class Expiring(Protocol):
    """What is kept until a time of its own; see ``ExpiringRows``."""

    def remove_expired(self, now: datetime, after: str, limit: int) -> str | None: ...


@dataclass(frozen=True)
class Storage:
    """All stores of an account."""

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

    @property
    def expiring(self) -> dict[str, Expiring]:
        """What expires by itself, in the order in which it is looked through."""
        return {
            "tasks": self.tasks,
            "groups": self.groups,
            "dependencies": self.dependencies,
            "workers": self.workers,
            "work-queues": self.work_queues,
            "usage": self.usage,
        }


def open_stores(
    account: StorageAccount, prefix: str, clock: Clock, *, is_only_process: bool = False
) -> Storage:
    """Tables ``<prefix>tasks``, ..., queues ``<prefix>-...``; nothing is sent yet.

    ``is_only_process``: no other process uses the account, and nothing is stored in it yet. What a process
    remembers is in its stores: two that are opened on one account are as two processes.
    """
    return Storage(
        account,
        TaskStore(account.table(f"{prefix}tasks"), is_only_writer=is_only_process),
        GroupStore(account.table(f"{prefix}groups"), clock),
        DependencyStore(account.table(f"{prefix}dependencies"), clock),
        ArtifactStore(account.table(f"{prefix}artifacts")),
        Blobs(account, clock),
        WorkQueues(account, prefix, clock),
        TimerStore(account, prefix),
        Turns(account.table(f"{prefix}turns"), clock),
        UsageStore(account.table(f"{prefix}usage")),
        WorkerStore(account.table(f"{prefix}workers")),
    )
