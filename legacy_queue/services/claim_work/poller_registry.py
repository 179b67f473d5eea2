"""The pollers of this process, by pool."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.priority import WorkQueue, work_queues
from legacy_queue.ports import Clock, Waiter
from legacy_queue.ports.queue import QueuedMessage
from legacy_queue.services.claim_work.wakes import Wakes
from legacy_queue.services.claim_work.work_poller import (
    QueueAndMessage,
    SharedPolling,
    WaitingRequest,
    WorkPoller,
)
from legacy_queue.services.gate import Gate
from legacy_queue.stores import WorkQueues

_LOOK_INTERVAL = timedelta(seconds=0.025)
_EXCHANGE_INTERVAL = timedelta(seconds=0.7)  # another process's offer is polled within two of them
_WATCH_INTERVAL = timedelta(milliseconds=2)  # for each pool that is polled
_MAX_IDLE = 1000  # pollers
_NO_DELAY = timedelta(0)


class PollerRegistry:
    """Makes one poller for each pool that requests wait for."""

    def __init__(
        self,
        queues: WorkQueues,
        clock: Clock,
        waiter: Waiter,
        stopping: threading.Event,
        gate: Gate,
        version: Callable[[], int] | None = None,
        max_polls: int = 4,
        wakes: Wakes | None = None,
    ) -> None:
        """``version`` is that of StorageAccount. ``max_polls`` pools are polled at a time. ``wakes``
        is None where processes do not tell each other what they offer.
        """
        polls = threading.BoundedSemaphore(max_polls)
        self._shared = SharedPolling(queues, clock, waiter, stopping, gate, polls, wakes)
        self._clock = clock
        self._version = version
        self._last_version = 0
        self._watched = clock.monotonic()
        self._pollers: dict[tuple[str, str], WorkPoller] = {}
        self._lock = threading.Lock()

    def wait(
        self, provisioner_id: str, worker_type: str, request: WaitingRequest, timeout: timedelta
    ) -> Sequence[QueueAndMessage]:
        """As ``WorkPoller.wait``, of the poller of that pool."""
        pool = provisioner_id, worker_type
        with self._lock:
            if len(self._pollers) - len(self._shared.running) >= _MAX_IDLE:
                self._pollers = {pool: poller for pool, poller in self._pollers.items() if not poller.is_idle}
            if pool not in self._pollers:
                poller = WorkPoller(work_queues(*pool), self._shared)
                self._pollers = {**self._pollers, pool: poller}  # a new dict: other threads iterate over it
            poller = self._pollers[pool]
            # under the lock: no other thread may forget it as idle in between, since it would miss offers
            starts = poller.add(request)
        return poller.wait(request, timeout, starts=starts)

    def on_offer(self, queue: WorkQueue, delay: timedelta = _NO_DELAY) -> None:
        """The queue has a message that is visible after ``delay``: poll it then if a request waits for it,
        in any process.
        """
        if self._shared.wakes:
            self._shared.wakes.on_offer(queue, delay)
        if delay <= _NO_DELAY:
            self._poll(queue)

    def release(self, queue: WorkQueue, message: QueuedMessage, delay: timedelta = _NO_DELAY) -> None:
        """Make a polled message visible again after ``delay``, or at the end of its lease if that fails."""
        self._shared.release(queue, message, delay)
        if delay <= _NO_DELAY:
            self._poll(queue)

    def count(self) -> int:
        """How many pools have a poller, idle or not."""
        return len(self._pollers)

    def waiting(self) -> int:
        """How many requests wait for work now."""
        return sum(poller.waiting for poller in self._pollers.values())

    @property
    def watch_interval(self) -> timedelta | None:
        """How often to ``watch``, None for never."""
        if self._shared.wakes:
            return _EXCHANGE_INTERVAL
        return _LOOK_INTERVAL if self._version else None

    def watch(self) -> None:
        """Poll at once what another process has offered, or where it has written since the last call, maybe
        work for a request. Tell other processes what this one has offered. Raises ServiceUnavailable.

        The more pools are polled, the longer it waits in between, so that busy neighbours cost little.
        """
        if self._shared.wakes:
            self._shared.wakes.exchange(self._poll, self.poll_now, waits=bool(self._shared.running))
        polled = len(self._shared.running)
        now = self._clock.monotonic()
        if not polled or not self._version or now - self._watched < polled * _WATCH_INTERVAL:
            return
        self._watched = now
        last = self._last_version
        with suppress(ServiceUnavailable):
            self._last_version = self._version()
        if last != self._last_version:
            self.poll_now()

    def poll_now(self) -> None:
        """Poll for all waiting requests at once: there may be work that this process did not offer."""
        for poller in self._pollers.values():
            poller.poll_now()

    def _poll(self, queue: WorkQueue) -> None:
        poller = self._pollers.get((queue.provisioner_id, queue.worker_type))
        if poller:
            poller.on_offer(queue)

    def end(self) -> None:
        """Answer all waiting requests, once ``stopping`` is set."""
        for poller in self._pollers.values():
            poller.end()
