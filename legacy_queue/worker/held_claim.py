"""A claim that is reclaimed in time, by a thread of its own, whatever else the worker does for the run."""

import threading
from collections.abc import Callable
from datetime import timedelta

from legacy_queue.worker.http_client import Unavailable
from legacy_queue.worker.queue_client import Claim, QueueClient, QueueRefused
from legacy_queue.worker.worker_settings import Context, Step

RECLAIM_MARGIN = timedelta(minutes=3)
MIN_DELAY = timedelta(seconds=1)


class HeldClaim:
    """Reclaims with the newest credentials each time, until it is released or lost.

    ``claim`` is the newest form of the claim. ``on_lost`` is called once if it is lost, by another thread.
    """

    def __init__(self, context: Context, claim: Claim, on_lost: Callable[[], None]) -> None:
        self.claim, self.is_lost, self._on_lost = claim, False, on_lost
        self._clock, self._notify = context.clock, context.notify
        self._released = threading.Event()
        self._client = QueueClient(context, give_up=self._released)
        self._schedule_reclaim()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Reclaim it no more; ``claim`` does not change any more. Waits for a reclaim under way."""
        self._released.set()
        self._thread.join()
        self._client.close()

    def _keep(self) -> None:
        while not self._clock.wait(self._released, max(self._reclaim_at - self._clock.monotonic(), 0)):
            if self._clock.monotonic() >= self._reclaim_at and (lost := self._reclaim()):
                self._notify(Step.CLAIM_LOST, detail=lost)
                self.is_lost = True
                self._on_lost()
                return

    def _schedule_reclaim(self) -> None:
        """By the monotonic clock: a time of day that jumps changes nothing."""
        delay = reclaim_delay(self.claim.taken_until - self._clock.now())
        self._reclaim_at = self._clock.monotonic() + delay.total_seconds()

    def _reclaim(self) -> str | None:
        """Extend the claim; why it is lost, where it is: refused (409: resolved, canceled or too late), or
        expired without an answer from the queue. Until then a reclaim that failed is tried again.
        """
        try:
            self.claim = self._client.reclaim_task(self.claim)
        except QueueRefused as refused:
            return str(refused)
        except Unavailable as failure:
            if self._clock.now() >= self.claim.taken_until:
                return f"takenUntil is over; {failure}"
            self._schedule_reclaim()
            if not self._released.is_set():
                self._notify(Step.RECLAIM_FAILED, detail=str(failure))
        else:
            self._schedule_reclaim()
            self._notify(Step.RECLAIM, taken_until=self.claim.taken_until)
        return None


def reclaim_delay(left: timedelta) -> timedelta:
    """How long to wait before reclaiming a claim that ends when ``left`` is over: until three minutes
    before its end, or two thirds of it where it is shorter than nine minutes.

    Never less than a second, so that a clock which is ahead of the queue's cannot make the worker spin.
    Source: "a few minutes prior to expiration, to allow for clock drift" ("Queue - Worker Interaction").
    """
    return max(left - min(RECLAIM_MARGIN, left / 3), MIN_DELAY)
