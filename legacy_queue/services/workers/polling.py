"""Gives out the signed URLs with which workers poll."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from legacy_queue.domain.call_statistics import POLL_TASK_URLS, CallingClient, caller_name
from legacy_queue.domain.priority import work_queues
from legacy_queue.domain.times import format_time
from legacy_queue.ports import Clock
from legacy_queue.services.workers.recorded_calls import RecordedCalls
from legacy_queue.stores import WorkQueues

_CLOCK_DRIFT = timedelta(minutes=15)


class Polling:
    """Makes poll URLs. They are valid for ``sas_life``, and hide a polled message for ``poll_visibility``."""

    def __init__(
        self,
        queues: WorkQueues,
        clock: Clock,
        sas_life: timedelta,
        poll_visibility: timedelta,
        calls: RecordedCalls,
    ) -> None:
        self._queues = queues
        self._clock = clock
        self._sas_life = sas_life
        self._poll_visibility = poll_visibility
        self._calls = calls

    def poll_urls(
        self, provisioner_id: str, worker_type: str, client_id: str, life: timedelta | None = None
    ) -> Mapping[str, Any]:
        """Returns the body for the answer of pollTaskUrls: signed URLs, highest priority first.

        If ``life`` is given, they are valid for that time. If it is negative, they have already expired.
        """
        caller = caller_name(client_id)
        self._calls.record_call(CallingClient(provisioner_id, worker_type, caller), (POLL_TASK_URLS, ()))
        now = self._clock.wall_time()
        expires = now + (self._sas_life if life is None else life)
        queues = work_queues(provisioner_id, worker_type)
        urls = self._queues.signed_urls(queues, now - _CLOCK_DRIFT, expires, self._poll_visibility, caller)
        return {
            "queues": [{"signedPollUrl": url.poll, "signedDeleteUrl": url.delete} for url in urls],
            "expires": format_time(expires),
        }
