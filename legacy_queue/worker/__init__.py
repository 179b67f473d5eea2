"""A sample worker that speaks all three protocols, as short as their descriptions.

Read it in this order. ``sample_worker`` finds work by each protocol, claims it, and stops cleanly.
``task_run`` runs a claimed task: it reclaims, executes, uploads and reports. ``queue_client`` sends the
requests. Tasks run with the worker's rights; nothing isolates them. The worker shares only Hawk with the
server. Source: docs/explanation/protocols.md.
"""

from legacy_queue.worker.queue_client import Refused
from legacy_queue.worker.sample_worker import SampleWorker
from legacy_queue.worker.worker_settings import Protocol, WorkerSettings

__all__ = ["Protocol", "Refused", "SampleWorker", "WorkerSettings"]
