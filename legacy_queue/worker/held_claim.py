"""Reclaims a claim in time, in a thread of its own, whatever else the worker does for the run."""

import threading
from collections.abc import Callable
from datetime import timedelta

from legacy_queue.worker.http_client import Refused
from legacy_queue.worker.queue_client import Claim, QueueClient
from legacy_queue.worker.worker_settings import Context, Step

RECLAIM_MARGIN = timedelta(minutes=3)
MIN_DELAY = timedelta(seconds=1)


class HeldClaim:
    """Reclaims from ``keep`` on, with the newest credentials each time, until it is released or lost.

    ``claim`` is the newest form of the claim. If the claim is lost, another thread calls ``on_lost`` once.
    """

    def __init__(
        self, context: Context, client: QueueClient, claim: Claim, on_lost: Callable[[], None]
    ) -> None:
        self.claim = claim
        self.is_lost = False
        self._client = client
        self._clock = context.clock
        self._notify = context.notify
        self._on_lost = on_lost
        self._released = threading.Event()

    def keep(self) -> None:
        """Begin to reclaim; raises RuntimeError if there can be no further thread."""
        threading.Thread(target=self._keep, daemon=True).start()

    def release(self) -> bool:
        """Stop reclaiming; returns whether the claim was held until now, and is to be reported.

        Does not wait for a reclaim under way: the credentials of before it can report too.
        """
        was_held = not self.is_lost and not self._released.is_set()
        self._released.set()
        return was_held

    def _keep(self) -> None:
        """Reclaim in time, and again if that fails, until the claim is lost.

        It is lost if the queue refuses (409: resolved, canceled or too late), or if it expires before the
        queue answers.
        """
        while not self._clock.wait(self._released, reclaim_delay(self.claim.taken_until - self._clock.now())):
            try:
                self.claim = self._client.reclaim_task(self.claim)
                self._notify(Step.RECLAIM, taken_until=self.claim.taken_until)
            except Exception as failure:  # noqa: BLE001  no task may run on without its claim
                if self._released.is_set():  # the run was reported meanwhile
                    return
                if isinstance(failure, Refused) or self._clock.now() >= self.claim.taken_until:
                    self.is_lost = True
                    self._notify(Step.CLAIM_LOST, detail=str(failure))
                    self._on_lost()
                    return
                self._notify(Step.FAILURE, detail=f"{type(failure).__name__}: {failure}")


def reclaim_delay(left: timedelta) -> timedelta:
    """How long to wait before the next reclaim of a claim that ends in ``left``.

    Until three minutes before its end, or two thirds of ``left`` if that is less than nine minutes. At least
    a second, so that a worker whose clock is ahead of the queue's does not spin.
    Source: "a few minutes prior to expiration, to allow for clock drift" ("Queue - Worker Interaction").
    """
    return max(left - min(RECLAIM_MARGIN, left / 3), MIN_DELAY)
