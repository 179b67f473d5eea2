"""What a worker needs to poll, and how much there is to do."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from legacy_queue.domain.priority import work_queues
from legacy_queue.domain.times import format_time
from legacy_queue.ports import Clock, WorkQueues

_DRIFT = timedelta(minutes=15)


class Polling:
    """Signed URLs for a worker type's queues."""

    def __init__(
        self, queues: WorkQueues, clock: Clock, sas_life: timedelta, poll_visibility: timedelta
    ) -> None:
        self._queues, self._clock = queues, clock
        self._sas_life, self._poll_visibility = sas_life, poll_visibility

    def poll_urls(self, provisioner_id: str, worker_type: str) -> Mapping[str, Any]:
        """The body that pollTaskUrls answers, highest priority first."""
        now = self._clock.now()
        expires = now + self._sas_life
        queues = work_queues(provisioner_id, worker_type)
        urls = self._queues.signed_urls(queues, now - _DRIFT, expires, self._poll_visibility)
        return {
            "queues": [{"signedPollUrl": one.poll, "signedDeleteUrl": one.delete} for one in urls],
            "expires": format_time(expires),
        }

    def pending_tasks(self, provisioner_id: str, worker_type: str) -> int:
        """How many messages there are in the worker type's queues: no fewer than there are pending tasks.

        Held and doubled messages are counted too. Source: design/api.md, an upper bound.
        """
        return sum(self._queues.count(queue) for queue in work_queues(provisioner_id, worker_type))
