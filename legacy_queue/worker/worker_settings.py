"""The settings of the sample worker."""

from dataclasses import dataclass
from typing import Literal

from legacy_queue.credentials import Credentials

# In the draft protocol, a worker claims with the message's id, pop receipt and signature, and the queue holds
# the message. In the deployed protocol, it claims with its name alone, and deletes the message. With
# claimWork, it asks the queue for claims and polls no message.
Protocol = Literal["draft", "deployed", "claimwork"]


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """The settings of a worker. ``base_url`` ends in ``/v1``, and ``pool`` is provisionerId/workerType.

    No other worker may have the same worker_group and worker_id: both would get the same claim.
    """

    base_url: str
    credentials: Credentials
    pool: str
    worker_group: str
    worker_id: str
    protocol: Protocol = "draft"
    capacity: int = 1  # how many tasks run concurrently
    max_tasks: int | None = None  # the worker ends after this many tasks
