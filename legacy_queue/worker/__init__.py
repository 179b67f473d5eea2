"""A worker of all three generations, as short as the protocols' descriptions of it. Read it in this order.

``sample_worker`` is the loop: it finds work (``finding``) and runs it (``task_run``). A task run reclaims its
claim (``held_claim``) while the task's command runs (``command``), uploads the log and the declared files and
reports the result. ``queue_client`` and ``polled_queue`` send the requests. It is a sample: it runs commands
with its own rights, without any isolation. It knows its credentials and the queue's URL. The only code that
it shares with the server signs requests.

    SampleWorker(settings, on_step=print).run()

Sources: docs/explanation/protocols.md; for the payload and its log docker-worker of 2017.
"""

from legacy_queue.worker.http_client import Refused
from legacy_queue.worker.sample_worker import SampleWorker
from legacy_queue.worker.worker_settings import Credentials, Protocol, Step, WorkerSettings

__all__ = ["Credentials", "Protocol", "Refused", "SampleWorker", "Step", "WorkerSettings"]
