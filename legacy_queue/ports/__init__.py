"""What the stores and the services need of the outside, each as a promise. ``adapters`` keeps them.

Storage is Table, Queue and BlobContainer of a StorageAccount, in modules of their own. Every method may raise
ServiceUnavailable: then the caller does not know whether it happened.
"""

from legacy_queue.ports.common import AlreadyExists, Changed, Clock, Corrupt
from legacy_queue.ports.object_store import ObjectStore
from legacy_queue.ports.queue import LeaseLost
from legacy_queue.ports.telling import Broker, BrokerAway

__all__ = [
    "AlreadyExists",
    "Broker",
    "BrokerAway",
    "Changed",
    "Clock",
    "Corrupt",
    "LeaseLost",
    "ObjectStore",
]
