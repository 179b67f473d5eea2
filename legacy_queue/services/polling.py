"""The signed URLs with which a worker polls."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from legacy_queue.domain.priority import work_queues
from legacy_queue.domain.times import format_time
from legacy_queue.domain.usage_key import POLL_TASK_URLS
from legacy_queue.ports import Clock
from legacy_queue.services.usage import Usage
from legacy_queue.services.workers import Workers
from legacy_queue.stores import WorkQueues

_CLOCK_DRIFT = timedelta(minutes=15)


class Polling:
    """Signs URLs that are good for ``sas_life``; a polled message is hidden for ``poll_visibility``."""

    def __init__(
        self,
        queues: WorkQueues,
        clock: Clock,
        sas_life: timedelta,
        poll_visibility: timedelta,
        usage: Usage,
        workers: Workers,
    ) -> None:
        self._queues, self._clock, self._usage, self._workers = queues, clock, usage, workers
        self._sas_life, self._poll_visibility = sas_life, poll_visibility

    def expired(self) -> "Polling":
        """A copy that signs URLs that have expired already."""
        past = -_CLOCK_DRIFT / 2
        return Polling(self._queues, self._clock, past, self._poll_visibility, self._usage, self._workers)

    def poll_urls(self, provisioner_id: str, worker_type: str, client_id: str) -> Mapping[str, Any]:
        """The body that pollTaskUrls answers: signed URLs, highest priority first."""
        self._usage.record(provisioner_id, worker_type, POLL_TASK_URLS, client_id)
        self._workers.record_activity(provisioner_id, worker_type)
        now = self._clock.wall_time()
        expires, queues = now + self._sas_life, work_queues(provisioner_id, worker_type)
        urls = self._queues.signed_urls(queues, now - _CLOCK_DRIFT, expires, self._poll_visibility)
        return {
            "queues": [{"signedPollUrl": url.poll, "signedDeleteUrl": url.delete} for url in urls],
            "expires": format_time(expires),
        }
