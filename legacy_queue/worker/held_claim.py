"""A claim that lasts for as long as its run needs it: reclaimed in time, by a thread of its own.

So it is kept whatever else the worker does for the run: executing the task, uploading what it made.
"""

import threading
from collections.abc import Callable

from legacy_queue.worker.clock import Clock, reclaim_delay
from legacy_queue.worker.http import Unavailable
from legacy_queue.worker.queue_client import Claim, Connect, QueueRefused
from legacy_queue.worker.steps import Step, Tell


class HeldClaim:
    """The newest form of one claim. ``on_lost`` is called once if the queue gives it to nobody or another."""

    def __init__(
        self, claim: Claim, connect: Connect, clock: Clock, tell: Tell, on_lost: Callable[[], None]
    ) -> None:
        self.claim = claim
        self.is_lost = False
        self._clock = clock
        self._tell = tell
        self._on_lost = on_lost
        self._released = threading.Event()
        self._client = connect(self._released)
        self._reclaim_at = self._next_reclaim()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def keep(self) -> None:
        """Reclaim it from now on, with the newest credentials each time, until it is released or lost."""
        self._thread.start()

    def release(self) -> None:
        """Reclaim it no more; ``claim`` is its newest form for good. Waits for a reclaim under way."""
        self._released.set()
        self._thread.join()
        self._client.close()

    def _keep(self) -> None:
        while not self._clock.wait(self._released, max(self._reclaim_at - self._clock.monotonic(), 0)):
            if self._clock.monotonic() >= self._reclaim_at and not self._reclaim():
                self.is_lost = True
                self._on_lost()
                return

    def _next_reclaim(self) -> float:
        """When to reclaim, as the monotonic clock counts: a time of day that jumps changes nothing."""
        left = self.claim.taken_until - self._clock.now()
        return self._clock.monotonic() + reclaim_delay(left).total_seconds()

    def _reclaim(self) -> bool:
        """Extend the claim. False when it is lost: refused (409: resolved, canceled or too late), or
        out of time with no answer from the queue. Until then a reclaim that failed is tried again.
        """
        try:
            self.claim = self._client.reclaim_task(self.claim)
        except QueueRefused as refused:
            self._tell(Step.CLAIM_LOST, detail=str(refused))
            return False
        except Unavailable as failure:
            if self._clock.now() >= self.claim.taken_until:
                self._tell(Step.CLAIM_LOST, detail=f"takenUntil is over; {failure}")
                return False
            self._reclaim_at = self._next_reclaim()
            if not self._released.is_set():
                self._tell(Step.RECLAIM_FAILED, detail=str(failure))
        else:
            self._reclaim_at = self._next_reclaim()
            self._tell(Step.RECLAIM, taken_until=self.claim.taken_until)
        return True
