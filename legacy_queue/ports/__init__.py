"""What the services need of the outside, each as a promise. ``adapters`` keeps them.

Every method may raise ServiceUnavailable: then the caller does not know whether it happened, and repeating
it is safe. One that reads a certain row may raise Corrupt; lists and pages leave such rows out. A message
is a hint: it may be lost, late or doubled, and the tables decide what it means.
"""

from legacy_queue.ports.artifacts import (
    ArtifactPage,
    ArtifactStore,
    BlobProperties,
    Blobs,
    ObjectStore,
    StoredArtifact,
)
from legacy_queue.ports.common import AlreadyExists, Changed, Clock, Corrupt, Expiring
from legacy_queue.ports.queues import LeaseLost, OwnQueues, ReceivedMessage, SignedUrls, WorkQueues
from legacy_queue.ports.storage import Storage
from legacy_queue.ports.tables import (
    ActivePage,
    ActiveTask,
    DependencyStore,
    Dependent,
    Group,
    GroupStore,
    StoredTask,
    TaskPage,
    TaskStore,
    Turn,
    Turns,
)
from legacy_queue.ports.telling import Broker, BrokerAway, EventLog
from legacy_queue.ports.usage import UsagePage, UsageStore
from legacy_queue.ports.workers import StoredKnown, WorkerStore

__all__ = [
    "ActivePage",
    "ActiveTask",
    "AlreadyExists",
    "ArtifactPage",
    "ArtifactStore",
    "BlobProperties",
    "Blobs",
    "Broker",
    "BrokerAway",
    "Changed",
    "Clock",
    "Corrupt",
    "DependencyStore",
    "Dependent",
    "EventLog",
    "Expiring",
    "Group",
    "GroupStore",
    "LeaseLost",
    "ObjectStore",
    "OwnQueues",
    "ReceivedMessage",
    "SignedUrls",
    "Storage",
    "StoredArtifact",
    "StoredKnown",
    "StoredTask",
    "TaskPage",
    "TaskStore",
    "Turn",
    "Turns",
    "UsagePage",
    "UsageStore",
    "WorkQueues",
    "WorkerStore",
]
