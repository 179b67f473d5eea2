"""Reclaims a claim in time, in a thread of its own, whatever else the worker does for the run."""

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

    ``claim`` is the newest form of the claim. If the claim is lost, another thread calls ``on_lost`` once.
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
        """Stop reclaiming; ``claim`` does not change any more. Waits for a reclaim under way."""
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
        """Use the monotonic clock: it does not jump with the time of day."""
        delay = reclaim_delay(self.claim.taken_until - self._clock.now())
        self._reclaim_at = self._clock.monotonic() + delay.total_seconds()

    def _reclaim(self) -> str | None:
        """Extend the claim; returns why the claim is lost, None if it is not.

        It is lost if the queue refuses (409: resolved, canceled or too late), or if it expires before the
        queue answers. Until then a failed reclaim is repeated.
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
    """How long to wait before the next reclaim of a claim that ends in ``left``.

    Until three minutes before its end, or two thirds of ``left`` if that is less than nine minutes. At least
    a second, so that a worker whose clock is ahead of the queue's does not spin.
    Source: "a few minutes prior to expiration, to allow for clock drift" ("Queue - Worker Interaction").
    """
    return max(left - min(RECLAIM_MARGIN, left / 3), MIN_DELAY)
