"""What a worker is given."""

from dataclasses import dataclass
from typing import Literal

from legacy_queue.credentials import Credentials

# A worker of the draft claims with the message's id, receipt and signature, and the queue holds the message.
# A deployed one claims with its name alone, and deletes the message. The last asks for claims alone.
Protocol = Literal["draft", "deployed", "claimwork"]


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """A worker of the ``pool``, provisionerId/workerType; the queue's routes are below ``base_url``.

    (worker_group, worker_id) must be unique: two workers of the same name would get the same claim.
    """

    base_url: str
    credentials: Credentials
    pool: str
    worker_group: str
    worker_id: str
    protocol: Protocol = "draft"
    capacity: int = 1  # tasks at the same time
    max_tasks: int | None = None  # after which the worker ends
