"""What a worker needs to poll, and how much there is to do."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from legacy_queue.domain.priority import work_queues
from legacy_queue.domain.times import format_time
from legacy_queue.ports import Clock
from legacy_queue.services.pending import PendingCounts
from legacy_queue.services.usage import Usage
from legacy_queue.services.workers import Workers
from legacy_queue.stores import WorkQueues

_DRIFT = timedelta(minutes=15)


class Polling:
    """Signed URLs for a worker type's queues."""

    def __init__(
        self,
        queues: WorkQueues,
        clock: Clock,
        sas_life: timedelta,
        poll_visibility: timedelta,
        usage: Usage,
        workers: Workers,
        counts: PendingCounts,
    ) -> None:
        self._queues, self._clock, self._usage, self._workers = queues, clock, usage, workers
        self._counts = counts
        self._sas_life, self._poll_visibility = sas_life, poll_visibility

    def poll_urls(self, provisioner_id: str, worker_type: str, client_id: str) -> Mapping[str, Any]:
        """The body that pollTaskUrls answers to that client, highest priority first."""
        self._usage.saw_poll(provisioner_id, worker_type, client_id)
        self._workers.seen(provisioner_id, worker_type)
        now = self._clock.now()
        expires = now + self._sas_life
        queues = work_queues(provisioner_id, worker_type)
        urls = self._queues.signed_urls(queues, now - _DRIFT, expires, self._poll_visibility)
        return {
            "queues": [{"signedPollUrl": one.poll, "signedDeleteUrl": one.delete} for one in urls],
            "expires": format_time(expires),
        }

    def pending_tasks(self, provisioner_id: str, worker_type: str) -> int:
        """How many tasks of the worker type are pending, at most.

        Exact where the task store knows it. Elsewhere the messages in the worker type's queues within the
        last 2 s, with what this process did since: held and doubled messages are counted too. Source:
        design/api.md, an upper bound.
        """
        return self._counts.count(provisioner_id, worker_type)
