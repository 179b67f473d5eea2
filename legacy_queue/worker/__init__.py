"""A worker of all three generations, as short as the protocols' descriptions of it. Read it in this order.

``sample_worker`` finds work by each protocol, claims it and stops in order. ``task_run`` runs a claimed task:
it reclaims, executes, uploads and reports. ``queue_client`` sends the requests. Commands have the worker's
rights: nothing is isolated. Only Hawk is shared with the server. Source: docs/explanation/protocols.md.
"""

from legacy_queue.worker.queue_client import Refused
from legacy_queue.worker.sample_worker import SampleWorker
from legacy_queue.worker.worker_settings import Protocol, WorkerSettings

__all__ = ["Protocol", "Refused", "SampleWorker", "WorkerSettings"]
