"""Finding work by claimWork, as seed 000 describes it: the queue itself hands out claims, in a long poll."""

import threading
from collections.abc import Callable
from datetime import timedelta

from legacy_queue.worker.clock import Clock
from legacy_queue.worker.http import Http, Unavailable
from legacy_queue.worker.queue_client import Claim, QueueClient
from legacy_queue.worker.settings import WorkerSettings
from legacy_queue.worker.steps import Step, Tell

AT_ONCE = timedelta(0)


class ClaimWork:
    """Asks for as many tasks as there is room for. ``start`` is given each claim."""

    def __init__(
        self,
        settings: WorkerSettings,
        clock: Clock,
        stopping: threading.Event,
        tell: Tell,
        start: Callable[[Claim], None],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._stopping = stopping
        self._tell = tell
        self._start = start
        self._queue = QueueClient(settings.base_url, Http(clock, give_up=stopping), clock)

    def poll(self, room: int) -> timedelta:
        """Wait for work, up to ``room`` tasks, for as long as the queue lets us; how long to wait then.

        Where there was none, the queue has waited; it only did not for a worker that it keeps from working.
        Raises QueueRefused.
        """
        settings, asked_at = self._settings, self._clock.monotonic()
        worker = {"workerGroup": settings.worker_group, "workerId": settings.worker_id}
        asked = {**worker, "tasks": room}
        try:
            claims = self._queue.claim_work(
                settings.credentials, settings.provisioner_id, settings.worker_type, asked
            )
        except Unavailable as failure:
            if not self._stopping.is_set():
                self._tell(Step.CLAIM_WORK_FAILED, detail=str(failure))
            return settings.poll_interval
        self._tell(Step.CLAIM_WORK, tasks=room, claims=len(claims))
        for claim in claims:
            run = {"task_id": claim.task_id, "run_id": claim.run_id}
            self._tell(Step.CLAIM, **run, taken_until=claim.taken_until, sent=sorted(asked))
            self._start(claim)
        if claims:
            return AT_ONCE
        waited = timedelta(seconds=self._clock.monotonic() - asked_at)
        return max(settings.poll_interval - waited, AT_ONCE)

    def hang_up(self) -> None:
        """End the poll under way, by any thread. It costs no claim: the queue sees that nobody waits."""
        self._queue.hang_up()

    def close(self) -> None:
        self._queue.close()
