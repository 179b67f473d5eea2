"""Stores messages in the queues that workers poll. Each pending run has a message."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from itertools import islice

from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.priority import PRIORITIES, WorkQueue, work_queues
from legacy_queue.ports import Clock
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.queue import Queue, QueuedMessage, QueueNotFound, SignedUrls
from legacy_queue.stores.lru_cache import SharedLruCache

_MAX_CACHED = 10_000  # queues
_PAGE = 250  # messages
_KEPT_UNUSED = timedelta(days=10)
_MIN_TIME_TO_LIVE = timedelta(seconds=1)


class WorkQueues:
    """The queues of all pools. Each priority of a pool has its own queue.

    The first use of a queue creates it. Its metadata have its pool and the day of its last use. If a queue is
    empty and unused for 10 days, it has expired. Durations are whole seconds: invisibility is rounded up, the
    time to live is rounded down. Source: docs/explanation/protocols.md#work-queues.
    """

    def __init__(self, account: StorageAccount, prefix: str, clock: Clock) -> None:
        self._account = account
        self._prefix = prefix
        self._clock = clock
        self._shown = account.shown_messages
        self.shows_messages = self._shown is not None
        self._used: SharedLruCache[str, date] = SharedLruCache(_MAX_CACHED)
        self._named: SharedLruCache[str, WorkQueue] = SharedLruCache(_MAX_CACHED)

    def put(self, queue: WorkQueue, text: str, expires_in: timedelta, hidden_for: timedelta) -> MessageLease:
        """Put a message: hidden for ``hidden_for``, and deleted after ``expires_in``, which must be longer.

        If another process has removed the queue, it is created again.
        """
        time_to_live = max(_MIN_TIME_TO_LIVE, expires_in)
        messages = self._use(queue)
        try:
            return messages.put(text, hidden_for, time_to_live)
        except QueueNotFound:
            self._used.remove(messages.name)
            return self._use(queue).put(text, hidden_for, time_to_live)

    def hide(self, queue: WorkQueue, lease: MessageLease, text: str, hidden_for: timedelta) -> MessageLease:
        """Give the leased message this text, and hide it for ``hidden_for``: see ``Queue.update``."""
        return self._queue(queue).update(lease, text, hidden_for)

    def remove(self, queue: WorkQueue, lease: MessageLease) -> None:
        """Delete the leased message. Raises LeaseLost."""
        self._queue(queue).delete(lease)

    def receive(self, queue: WorkQueue, count: int, hidden_for: timedelta) -> Sequence[QueuedMessage]:
        """Receive and hide up to ``count`` (1..32) visible messages. An unused queue has none."""
        with suppress(QueueNotFound):
            return self._queue(queue).receive(count, hidden_for)
        return []

    def peek(self, queue: WorkQueue) -> Sequence[QueuedMessage]:
        """Returns messages without receiving them: see ``Queue.peek``."""
        with suppress(QueueNotFound):
            return self._queue(queue).peek()
        return []

    def text(self, queue: WorkQueue, message_id: str) -> str | None:
        """Returns the text of a message, or None if it is not in that queue or storage does not show it."""
        return self._shown.text(self.name(queue), message_id) if self._shown else None

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yields the name of the queue and the text of each message in the account, if storage shows them."""
        after: str | None = ""
        while self._shown and after is not None:
            messages, after = self._shown.page(after, _PAGE)
            yield from messages

    def name(self, queue: WorkQueue) -> str:
        """Returns the name of the queue in the storage account."""
        return queue.name(self._prefix)

    def count(self, queue: WorkQueue) -> int:
        """Returns how many messages the queue has, visible or not. An unused queue has 0."""
        with suppress(QueueNotFound):
            return self._queue(queue).count()
        return 0

    def signed_urls(
        self,
        queues: Sequence[WorkQueue],
        start: datetime,
        expiry: datetime,
        visibility: timedelta,
        caller: str = "",
    ) -> list[SignedUrls]:
        """Returns URLs that receive and delete messages between the two times: see ``Queue.signed_urls``."""
        return [self._use(queue).signed_urls(start, expiry, visibility, caller) for queue in queues]

    @property
    def sees_polls(self) -> bool:
        """Whether workers poll this server, not Azure."""
        return self._account.public_queues.is_own

    def named(self, name: str) -> WorkQueue | None:
        """Returns the work queue with that name, or None. The first time, this costs a call."""
        if not (queue := self._named.get(name)):
            with suppress(QueueNotFound):
                queue = self._by_metadata(name, self._account.queue(name).metadata())
        if queue:
            self._named.put(name, queue)
        return queue

    def remove_expired(self, now: datetime, after: str, limit: int) -> str | None:
        """See ``ExpiringRows``. Each call lists all queues, because Azurite's markers skip some."""
        unused = (
            name
            for name, metadata in self._account.queues(f"{self._prefix}-")
            if name > after and self._is_unused(name, metadata, now)
        )
        names = list(islice(unused, limit))
        for name in names:
            self._remove_queue(name, now)
        return names[-1] if len(names) == limit else None

    def _queue(self, queue: WorkQueue) -> Queue:
        return self._account.queue(self.name(queue))

    def _use(self, queue: WorkQueue) -> Queue:
        """Create the queue and record that it is used today. Each process does so once a day."""
        today = self._clock.now().date()
        messages = self._queue(queue)
        if self._used.get(messages.name) != today:
            owner = {"provisioner_id": queue.provisioner_id, "worker_type": queue.worker_type}
            messages.create({**owner, "last_used": today.isoformat()})
            self._used.put(messages.name, today)
        return messages

    def _is_unused(self, name: str, metadata: Mapping[str, str], now: datetime) -> bool:
        """Whether it is a work queue with this prefix that was last used more than 10 days ago.

        This includes the queues that 0.1.0 made with the setting pool-shards, which differ only in their last
        character. Nobody polls them, and their messages expire at the deadlines of their tasks.
        """
        try:
            last_used = date.fromisoformat(metadata["last_used"])
            any_queue = WorkQueue(metadata["provisioner_id"], metadata["worker_type"], PRIORITIES[0])
        except (KeyError, ValueError):
            return False
        return now.date() - last_used > _KEPT_UNUSED and name[:-1] == self.name(any_queue)[:-1]

    def _by_metadata(self, name: str, metadata: Mapping[str, str]) -> WorkQueue | None:
        with suppress(KeyError):
            queues = work_queues(metadata["provisioner_id"], metadata["worker_type"])
            return next((queue for queue in queues if self.name(queue) == name), None)
        return None

    def _remove_queue(self, name: str, now: datetime) -> None:
        """Remove the queue if it is empty and unused. A message put at the same time is lost."""
        queue = self._account.queue(name)
        with suppress(QueueNotFound):
            if not queue.count() and self._is_unused(name, queue.metadata(), now):
                queue.remove()
                self._used.remove(name)
