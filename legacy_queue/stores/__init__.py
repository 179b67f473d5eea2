"""What is stored, written once over the ports: tasks, groups, dependencies, artifacts, workers, queues.

Every method may raise ServiceUnavailable: then the caller does not know whether it happened, and repeating
it is safe. One that reads a certain row may raise Corrupt; lists and pages leave such rows out. A message
is a hint: it may be lost, late or doubled, and the tables decide what it means.
"""

from legacy_queue.stores.artifacts import ArtifactPage, ArtifactStore, StoredArtifact
from legacy_queue.stores.blobs import Blobs
from legacy_queue.stores.dependencies import DependencyStore, Dependent
from legacy_queue.stores.groups import ActivePage, ActiveTask, Group, GroupStore
from legacy_queue.stores.signed_urls import SignedUrls
from legacy_queue.stores.storage import Expiring, Storage, open_stores
from legacy_queue.stores.tasks import StoredTask, TaskPage, TaskStore
from legacy_queue.stores.timers import TimerMessage, TimerStore
from legacy_queue.stores.turns import Turn, Turns
from legacy_queue.stores.usage import UsageStore
from legacy_queue.stores.work_queues import ReceivedMessage, WorkQueues
from legacy_queue.stores.workers import StoredKnown, WorkerStore

__all__ = [
    "ActivePage",
    "ActiveTask",
    "ArtifactPage",
    "ArtifactStore",
    "Blobs",
    "DependencyStore",
    "Dependent",
    "Expiring",
    "Group",
    "GroupStore",
    "ReceivedMessage",
    "SignedUrls",
    "Storage",
    "StoredArtifact",
    "StoredKnown",
    "StoredTask",
    "TaskPage",
    "TaskStore",
    "TimerMessage",
    "TimerStore",
    "Turn",
    "Turns",
    "UsageStore",
    "WorkQueues",
    "WorkerStore",
    "open_stores",
]
