"""Finding work by claimWork (seed 000): the queue itself hands out claims, in a long poll."""

from collections.abc import Iterator

from legacy_queue.worker.http import Unavailable
from legacy_queue.worker.queue_client import Claim, QueueClient
from legacy_queue.worker.settings import Context
from legacy_queue.worker.steps import Step


class ClaimWork:
    """Asks for as many tasks as there is room for."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.client = QueueClient(context, give_up=context.stopping)

    def claims(self, room: int) -> Iterator[Claim]:
        """Wait for work, up to ``room`` tasks, for as long as the queue holds the request back.

        The queue waits where there is none, except for a worker that it keeps from working: then this waits
        for the rest of the poll interval. Raises QueueRefused.
        """
        settings, clock, stopping = self._context.settings, self._context.clock, self._context.stopping
        asked_at, pause = clock.monotonic(), settings.poll_interval.total_seconds()
        body = {**settings.name_to_wire(), "tasks": room}
        try:
            claims = self.client.claim_work(body)
        except Unavailable as failure:
            if not stopping.is_set():
                self._context.notify(Step.CLAIM_WORK_FAILED, detail=str(failure))
            clock.wait(stopping, pause)
            return
        self._context.notify(Step.CLAIM_WORK, tasks=room, claims=len(claims))
        for claim in claims:
            self._context.notify(Step.CLAIM, **claim.run, taken_until=claim.taken_until, sent=sorted(body))
            yield claim
        left = pause - (clock.monotonic() - asked_at)
        if not claims and left > 0:
            clock.wait(stopping, left)
