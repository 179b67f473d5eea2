"""Work queues and the queue's own queues."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from threading import Lock

from legacy_queue.adapters.memory_queue import FOREVER, MemoryQueue, QueuedMessage, QueueNotFound
from legacy_queue.adapters.sas import signed_urls
from legacy_queue.domain.messages import Lease
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.times import whole_seconds
from legacy_queue.ports import Clock, OwnQueues, ReceivedMessage, SignedUrls, WorkQueues

_UNUSED = timedelta(days=10)


class MemoryWorkQueues(WorkQueues):
    """``poll`` and ``delete`` are what workers do through the gateway; the rest is the port."""

    def __init__(self, clock: Clock, queue_url: str, queue_prefix: str, account: str, key: str) -> None:
        self._clock, self._prefix = clock, queue_prefix
        self._queue_url, self._account, self._key = queue_url, account, key
        self._queues: dict[str, MemoryQueue] = {}
        self._last_used: dict[str, datetime] = {}
        self._lock = Lock()

    def put(self, queue: WorkQueue, text: str, expires_in: timedelta, hidden_for: timedelta) -> Lease:
        time_to_live = timedelta(seconds=expires_in // timedelta(seconds=1))
        with self._lock:
            now = self._clock.now()
            hidden_until = now + _rounded_up(hidden_for)
            return self._use(queue).put(text, now + time_to_live, hidden_until, now).lease

    def hide(self, queue: WorkQueue, lease: Lease, text: str, hidden_for: timedelta) -> Lease:
        with self._lock:
            now = self._clock.now()
            messages = self._find(queue.name(self._prefix))
            return messages.update(lease, text, now + _rounded_up(hidden_for), now).lease

    def remove(self, queue: WorkQueue, lease: Lease) -> None:
        self.delete(queue.name(self._prefix), lease)

    def receive(self, queue: WorkQueue, count: int, hidden_for: timedelta) -> Sequence[ReceivedMessage]:
        try:
            received = self.poll(queue.name(self._prefix), count, _rounded_up(hidden_for))
        except QueueNotFound:
            return []
        return [ReceivedMessage(one.lease, one.text, one.dequeue_count) for one in received]

    def count(self, queue: WorkQueue) -> int:
        with self._lock:
            used = self._queues.get(queue.name(self._prefix))
            return used.count(self._clock.now()) if used else 0

    def signed_urls(
        self, queues: Sequence[WorkQueue], start: datetime, expiry: datetime, visibility: timedelta
    ) -> list[SignedUrls]:
        with self._lock:
            for queue in queues:
                self._use(queue)
        names = [queue.name(self._prefix) for queue in queues]
        endpoint = f"{self._queue_url}/{self._account}"
        return [
            signed_urls(endpoint, self._account, self._key, name, start, expiry, visibility) for name in names
        ]

    def remove_expired(self, now: datetime, after: str, limit: int) -> str | None:
        with self._lock:
            unused = sorted(
                name
                for name, queue in self._queues.items()
                if name > after and now - self._last_used[name] > _UNUSED and not queue.count(now)
            )
            for name in unused[:limit]:
                del self._queues[name], self._last_used[name]
        return unused[limit - 1] if len(unused) >= limit else None

    def poll(self, queue_name: str, count: int, visibility: timedelta) -> list[QueuedMessage]:
        """Up to ``count`` visible messages, invisible for so long from now; raises QueueNotFound."""
        with self._lock:
            now = self._clock.now()
            return self._find(queue_name).receive(count, now + visibility, now)

    def delete(self, queue_name: str, lease: Lease) -> None:
        """Delete the leased message; raises QueueNotFound, MessageNotFound or PopReceiptMismatch."""
        with self._lock:
            self._find(queue_name).delete(lease, self._clock.now())

    def _use(self, queue: WorkQueue) -> MemoryQueue:
        name = queue.name(self._prefix)
        self._last_used[name] = self._clock.now()
        return self._queues.setdefault(name, MemoryQueue())

    def _find(self, queue_name: str) -> MemoryQueue:
        try:
            return self._queues[queue_name]
        except KeyError:
            raise QueueNotFound from None


class MemoryOwnQueues(OwnQueues):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queues: dict[str, MemoryQueue] = {}
        self._lock = Lock()

    def put(self, name: str, text: str, hidden_for: timedelta) -> Lease:
        with self._lock:
            now = self._clock.now()
            return self._queue(name).put(text, FOREVER, now + _rounded_up(hidden_for), now).lease

    def receive(self, name: str, count: int, hidden_for: timedelta) -> Sequence[ReceivedMessage]:
        with self._lock:
            now = self._clock.now()
            received = self._queue(name).receive(count, now + _rounded_up(hidden_for), now)
        return [ReceivedMessage(one.lease, one.text, one.dequeue_count) for one in received]

    def peek(self, name: str, count: int) -> Sequence[ReceivedMessage]:
        with self._lock:
            seen = self._queue(name).peek(count, self._clock.now())
        return [ReceivedMessage(Lease(one.lease.message_id, ""), one.text, one.dequeue_count) for one in seen]

    def hide(self, name: str, lease: Lease, text: str, hidden_for: timedelta) -> Lease:
        with self._lock:
            now = self._clock.now()
            return self._queue(name).update(lease, text, now + _rounded_up(hidden_for), now).lease

    def remove(self, name: str, lease: Lease) -> None:
        with self._lock:
            self._queue(name).delete(lease, self._clock.now())

    def _queue(self, name: str) -> MemoryQueue:
        return self._queues.setdefault(name, MemoryQueue())


def _rounded_up(duration: timedelta) -> timedelta:
    return timedelta(seconds=whole_seconds(duration))
