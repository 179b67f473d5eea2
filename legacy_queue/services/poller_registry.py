"""The pollers of this process, by worker type."""

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.priority import PRIORITIES, WorkQueue, work_queues
from legacy_queue.ports import Clock, LeaseLost
from legacy_queue.services.concurrency import Turns
from legacy_queue.services.gate import Gate
from legacy_queue.services.work_poller import WorkPoller
from legacy_queue.stores import ReceivedMessage, WorkQueues

POLL_INTERVAL = timedelta(seconds=0.9)  # claiming included, other processes' work is found within a second
MAX_POLLS = 200  # in a second, of all pollers that find no work
_WATCH_INTERVAL = timedelta(milliseconds=2)  # for each worker type that is polled
_MAX_IDLE = 1000  # pollers
_NO_DELAY = timedelta(0)


class PollerRegistry:
    """Makes one poller for each worker type that requests wait for."""

    def __init__(
        self,
        queues: WorkQueues,
        clock: Clock,
        stopping: threading.Event,
        gate: Gate,
        version: Callable[[], int] | None = None,
        max_polls: int = 4,
    ) -> None:
        """The pollers end once ``stopping`` is set, and pause while the gate is closed.

        ``version`` is that of StorageAccount. ``max_polls`` worker types are polled at a time.
        """
        self._queues, self._clock, self._stopping, self._gate = queues, clock, stopping, gate
        self._version, self._last_version, self._watched = version, 0, clock.wall_time()
        self._pollers: dict[tuple[str, str], WorkPoller] = {}
        self._turns = Turns(max_polls)
        self._running: set[WorkPoller] = set()
        self._lock = threading.Lock()

    def poller(self, provisioner_id: str, worker_type: str) -> WorkPoller:
        pool = provisioner_id, worker_type
        with self._lock:
            if len(self._pollers) - len(self._running) >= _MAX_IDLE:
                self._pollers = {pool: poller for pool, poller in self._pollers.items() if not poller.is_idle}
            if pool not in self._pollers:
                poller = WorkPoller(
                    work_queues(*pool),
                    self._queues,
                    self.release,
                    self.poll_interval,
                    self._clock,
                    self._stopping,
                    self._gate,
                    self._turns,
                    self._running,
                )
                self._pollers = {**self._pollers, pool: poller}  # a new dict: other threads iterate over it
            return self._pollers[pool]

    def on_offer(self, queue: WorkQueue) -> None:
        """The queue has a visible message: poll it at once if a request waits for it."""
        poller = self._pollers.get((queue.provisioner_id, queue.worker_type))
        if poller:
            poller.on_offer(queue)

    def release(self, queue: WorkQueue, message: ReceivedMessage, delay: timedelta = _NO_DELAY) -> None:
        """Make a polled message visible again after ``delay``, or at the end of its lease if that fails."""
        with suppress(LeaseLost, ServiceUnavailable):
            self._queues.hide(queue, message.lease, message.text, delay)
            if delay <= _NO_DELAY:
                self.on_offer(queue)

    def count(self) -> int:
        """How many worker types have a poller, idle or not."""
        return len(self._pollers)

    def waiting(self) -> int:
        """How many requests wait for work now."""
        return sum(poller.waiting for poller in self._pollers.values())

    def poll_interval(self) -> timedelta:
        """For how long an empty queue is not polled: longer where very many worker types are polled."""
        return max(POLL_INTERVAL, timedelta(seconds=len(PRIORITIES) * len(self._running) / MAX_POLLS))

    @property
    def can_watch(self) -> bool:
        """Whether ``watch`` notices anything."""
        return self._version is not None

    def watch(self) -> None:
        """Poll at once where another process has written since the last call, maybe work for a request.

        The more worker types are polled, the longer it waits in between, so that busy neighbours cost little.
        """
        polled, now = len(self._running), self._clock.wall_time()
        if not polled or not self._version or now - self._watched < polled * _WATCH_INTERVAL:
            return
        self._watched, last = now, self._last_version
        with suppress(ServiceUnavailable):
            self._last_version = self._version()
        if last != self._last_version:
            self.poll_now()

    def poll_now(self) -> None:
        """Poll for all waiting requests at once: there may be work that this process did not offer."""
        for poller in self._pollers.values():
            poller.poll_now()

    def wake(self) -> None:
        """Answer all waiting requests, once ``stopping`` is set."""
        for poller in self._pollers.values():
            poller.wake()
