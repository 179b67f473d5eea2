"""A worker of all three generations, as short as the protocols' descriptions of it. Read it in this order.

``worker`` is the loop: it finds work (``finding``) and starts a ``task_run`` for each claim. That keeps the
claim (``held_claim``) while the task's command runs (``command``), uploads the log and the declared artifacts
(``uploads``) and reports the result. ``queue_client`` and ``azure_queue`` are the requests. A sample: it runs
commands with its own rights, without any isolation. It knows its credentials and the queue's URL and shares
no code with the server but the signing of requests.

    Worker(settings, on_step=print).run()

Sources: docs/explanation/protocols.md; for logs and artifacts docker-worker of 2017.
"""

from legacy_queue.worker.queue_client import QueueRefused
from legacy_queue.worker.sample_worker import SampleWorker
from legacy_queue.worker.worker_settings import Credentials, Protocol, Step, WorkerSettings

__all__ = ["Credentials", "Protocol", "QueueRefused", "SampleWorker", "Step", "WorkerSettings"]
