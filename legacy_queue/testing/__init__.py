"""A queue for test suites: a server in a process of its own, and the methods that a test calls.

    with LegacyQueue(claim_timeout="30s") as queue:
        task_id = queue.create_task(worker_type="builds")

The fixtures of ``legacy_queue.pytest_plugin`` use it. It calls the server over HTTP, and reads messages with
the code of the sample worker. It never imports gevent. Reference: docs/reference/testing.md.
"""

from legacy_queue.queue_client import RequestFailed
from legacy_queue.testing.active_fault import ActiveFault, FaultNeverFired
from legacy_queue.testing.claimed_run import ClaimedRun
from legacy_queue.testing.legacy_queue import LegacyQueue
from legacy_queue.testing.server_process import ServerFailed

__all__ = ["ActiveFault", "ClaimedRun", "FaultNeverFired", "LegacyQueue", "RequestFailed", "ServerFailed"]
