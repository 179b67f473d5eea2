"""What a worker is told about itself before it starts."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from legacy_queue.worker.queue_client import Credentials

ROOT_URL_PREFIX = "/api/queue/v1"


class Protocol(StrEnum):
    """Which of the three ways of finding work the worker follows."""

    DRAFT = "draft"
    """Seed 004: claims with the message's id, receipt and signature; the queue holds the message."""

    DEPLOYED = "deployed"
    """Seed 003: claims with its own name alone, and deletes the message itself."""

    CLAIMWORK = "claimwork"
    """Seed 000: asks the queue for claims, in a long poll, and never sees an Azure queue."""


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """One worker of the pool (provisioner_id, worker_type).

    ``base_url`` is what the queue's routes are appended to (``https://queue.example.net/v1``).
    (worker_group, worker_id) names this worker and no other one: two workers of one name would be
    given one claim. ``max_tasks`` tasks end the worker; None means no end. ``live_log`` says whether the
    log of a running task can be read, by this machine alone.
    """

    base_url: str
    credentials: Credentials
    provisioner_id: str
    worker_type: str
    worker_group: str
    worker_id: str
    protocol: Protocol = Protocol.DRAFT
    capacity: int = 1
    max_tasks: int | None = None
    poll_interval: timedelta = timedelta(seconds=1)
    live_log: bool = True


def base_url_of(root_url: str) -> str:
    """The queue's base URL under a root URL: ``http://localhost:8080`` -> ``.../api/queue/v1``."""
    return root_url.rstrip("/") + ROOT_URL_PREFIX
