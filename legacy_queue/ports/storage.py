"""All of it, as one backend keeps it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from legacy_queue.ports.artifacts import ArtifactStore, Blobs
from legacy_queue.ports.common import Expiring
from legacy_queue.ports.queues import OwnQueues, WorkQueues
from legacy_queue.ports.tables import DependencyStore, GroupStore, TaskStore, Turns
from legacy_queue.ports.telling import EventLog
from legacy_queue.ports.usage import UsageStore
from legacy_queue.ports.workers import WorkerStore


class Storage(ABC):
    """All of it, as one backend keeps it. ``endpoints`` are the URLs of queue, table and blob, or None."""

    endpoints: Mapping[str, str | None]

    tasks: TaskStore
    groups: GroupStore
    dependencies: DependencyStore
    artifacts: ArtifactStore
    blobs: Blobs
    work_queues: WorkQueues
    own_queues: OwnQueues
    turns: Turns
    event_log: EventLog
    usage: UsageStore
    workers: WorkerStore
    expiring: Mapping[str, Expiring]  # by name, in the order in which they are looked through

    @abstractmethod
    def check(self) -> None:
        """Return when queues, tables and blobs answer; raises ServiceUnavailable."""
