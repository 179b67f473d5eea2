"""A queue for a test suite: a server in a process of its own, and what a test does with it.

    with LegacyQueue(claim_timeout="30s") as queue:
        task_id = queue.create_task(worker_type="builds")

The fixtures of ``legacy_queue.pytest_plugin`` are made of it. It talks HTTP to the server, shares the
sample worker's signing of requests and reading of messages, and never imports gevent.
Reference: docs/reference/testing.md.
"""

from legacy_queue.testing.active_fault import ActiveFault, FaultNeverFired
from legacy_queue.testing.claimed_run import ClaimedRun
from legacy_queue.testing.legacy_queue import LegacyQueue
from legacy_queue.testing.queue_http import RequestFailed
from legacy_queue.testing.server_process import ServerFailed

__all__ = ["ActiveFault", "ClaimedRun", "FaultNeverFired", "LegacyQueue", "RequestFailed", "ServerFailed"]
