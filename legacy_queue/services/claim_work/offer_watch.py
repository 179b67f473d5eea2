"""Notices when other processes offer work.

Embedded storage has a version, which changes when another process writes. On other storages the processes
announce their offers to each other: see ``process.offers``. A single process has nothing to notice.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports import Clock
from legacy_queue.services.claim_work.work_poller import WorkPoller
from legacy_queue.services.process.offers import Offers

_VERSION_INTERVAL = timedelta(seconds=0.025)
_EXCHANGE_INTERVAL = timedelta(seconds=0.7)  # an offer of another process is found after at most two
_POOL_INTERVAL = timedelta(milliseconds=2)  # in addition, for each pool that is polled


class OfferWatch:
    """Makes the poller poll for the work that other processes offer."""

    def __init__(
        self, poller: WorkPoller, clock: Clock, version: Callable[[], int] | None, offers: Offers | None
    ) -> None:
        """``offers`` is None if processes do not announce offers. ``version``: see StorageAccount."""
        self._poller = poller
        self._clock = clock
        self._version = version
        self._offers = offers
        self._last_version = 0
        self._checked = clock.monotonic()

    @property
    def interval(self) -> timedelta | None:
        """How often to call ``check``. None means never."""
        if self._offers:
            return _EXCHANGE_INTERVAL
        return _VERSION_INTERVAL if self._version else None

    def check(self) -> None:
        """Poll at once if another process has offered work, or has written since the last call.

        Also announces to other processes what this one has offered. The more pools are polled, the longer it
        waits in between, so that busy other processes cost little. Raises ServiceUnavailable.
        """
        pools = self._poller.pools
        if self._offers:
            self._offers.exchange(self._poller.offered, self._poller.poll_now, waits=bool(pools))
        now = self._clock.monotonic()
        if not pools or not self._version or now - self._checked < pools * _POOL_INTERVAL:
            return
        self._checked = now
        last = self._last_version
        with suppress(ServiceUnavailable):
            self._last_version = self._version()
        if last != self._last_version:
            self._poller.poll_now()
