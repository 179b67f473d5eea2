"""Stores tasks, groups, dependencies, artifacts, workers and queues through the ports.

Every method may raise ServiceUnavailable. Then the caller does not know whether the change happened, and may
repeat the call. A method that reads one row may raise Corrupt. Lists and pages leave corrupt rows out. A
message is only a hint: it may be lost, late or doubled, and the tables decide what it means.
"""

from legacy_queue.ports import Clock
from legacy_queue.ports.account import StorageAccount
from legacy_queue.stores.artifact_store import ArtifactStore, StoredArtifact
from legacy_queue.stores.blobs import Blobs
from legacy_queue.stores.dependency_store import DependencyStore, Dependent
from legacy_queue.stores.group_store import ActiveTask, Group, GroupStore, Sealed
from legacy_queue.stores.open_tasks import OpenTasks
from legacy_queue.stores.process_store import NamedTask, ProcessRow, ProcessStore
from legacy_queue.stores.table_rows import ExpiringRows
from legacy_queue.stores.task_store import StoredTask, TaskStore
from legacy_queue.stores.work_queues import WorkQueues
from legacy_queue.stores.worker_store import AnyRow, ClientRow, WorkerRow, WorkerStore

Expiring = ExpiringRows | WorkQueues


class Storage:
    """All stores of an account: the tables ``<prefix>tasks`` and so on, and the queues ``<prefix>-...``.

    The stores have all caches of a process. So two Storages on one account behave like two processes.
    """

    def __init__(self, account: StorageAccount, prefix: str, clock: Clock) -> None:
        """Make the stores. Nothing is sent yet."""
        self.account = account
        self.tasks = TaskStore(account.table(f"{prefix}tasks"))
        self.groups = GroupStore(account.table(f"{prefix}groups"), clock)
        self.dependencies = DependencyStore(account.table(f"{prefix}dependencies"), clock)
        self.artifacts = ArtifactStore(account.table(f"{prefix}artifacts"))
        self.blobs = Blobs(account.container, clock)
        self.work_queues = WorkQueues(account, prefix, clock)
        self.processes = ProcessStore(account.table(f"{prefix}processes"), clock)
        self.workers = WorkerStore(account.table(f"{prefix}workers"))

    @property
    def expiring(self) -> dict[str, Expiring]:
        """The stores that remove expired rows or queues, in the order in which they must do it."""
        return {
            "tasks": self.tasks,
            "groups": self.groups,
            "dependencies": self.dependencies,
            "workers": self.workers,
            "work-queues": self.work_queues,
        }
