"""The queues that workers poll: a message for each pending run."""

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
    """A queue for each priority of a pool.

    The first use creates a queue; its metadata holds its pool and the day of its last use. A queue
    that is empty and was unused for 10 days has expired. Durations are whole seconds: invisibility is rounded
    up, the time to live down. Source: docs/explanation/protocols.md#work-queues.
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
        """Put a message, invisible for ``hidden_for``, deleted after ``expires_in``, which is longer.

        Creates the queue again where another process has removed it.
        """
        time_to_live = max(_MIN_TIME_TO_LIVE, expires_in)
        messages = self._use(queue)
        try:
            return messages.put(text, hidden_for, time_to_live)
        except QueueNotFound:
            self._used.remove(messages.name)
            return self._use(queue).put(text, hidden_for, time_to_live)

    def hide(self, queue: WorkQueue, lease: MessageLease, text: str, hidden_for: timedelta) -> MessageLease:
        """Give the leased message this text and hide it for ``hidden_for``; see ``Queue.update``."""
        return self._queue(queue).update(lease, text, hidden_for)

    def remove(self, queue: WorkQueue, lease: MessageLease) -> None:
        """Delete the leased message; raises LeaseLost."""
        self._queue(queue).delete(lease)

    def receive(self, queue: WorkQueue, count: int, hidden_for: timedelta) -> Sequence[QueuedMessage]:
        """Up to ``count`` (1..32) visible messages, which become hidden; none of an unused queue."""
        with suppress(QueueNotFound):
            return self._queue(queue).receive(count, hidden_for)
        return []

    def peek(self, queue: WorkQueue) -> Sequence[QueuedMessage]:
        """Messages, without receiving them: see ``Queue.peek``."""
        with suppress(QueueNotFound):
            return self._queue(queue).peek()
        return []

    def text(self, queue: WorkQueue, message_id: str) -> str | None:
        """The text of a message; None if it is not in that queue, or where storage does not show it."""
        return self._shown.text(self.name(queue), message_id) if self._shown else None

    def texts(self) -> Iterator[tuple[str, str]]:
        """Each message of the account, where storage shows them: the name of its queue, and its text."""
        after: str | None = ""
        while self._shown and after is not None:
            messages, after = self._shown.page(after, _PAGE)
            yield from messages

    def name(self, queue: WorkQueue) -> str:
        """The name of the queue in the storage account."""
        return queue.name(self._prefix)

    def count(self, queue: WorkQueue) -> int:
        """How many messages there are, visible or not; 0 for an unused queue."""
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
        """URLs, valid between the two times, that receive and delete messages: see ``Queue.signed_urls``."""
        return [self._use(queue).signed_urls(start, expiry, visibility, caller) for queue in queues]

    @property
    def sees_polls(self) -> bool:
        """Whether workers poll this server, and not Azure."""
        return self._account.public_queues.is_own

    def named(self, name: str) -> WorkQueue | None:
        """The work queue with that name; None where there is no such queue. Costs a call the first time."""
        if not (queue := self._named.get(name)):
            with suppress(QueueNotFound):
                queue = self._by_metadata(name, self._account.queue(name).metadata())
        if queue:
            self._named.put(name, queue)
        return queue

    def remove_expired(self, now: datetime, after: str, limit: int) -> str | None:
        """As ``ExpiringRows``. Each call lists all queues, since Azurite's markers skip some."""
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
        """Create the queue and record that it was used today, once a day in each process."""
        today = self._clock.now().date()
        messages = self._queue(queue)
        if self._used.get(messages.name) != today:
            owner = {"provisioner_id": queue.provisioner_id, "worker_type": queue.worker_type}
            messages.create({**owner, "last_used": today.isoformat()})
            self._used.put(messages.name, today)
        return messages

    def _is_unused(self, name: str, metadata: Mapping[str, str], now: datetime) -> bool:
        """Whether it is a work queue of this prefix whose last day of use ended 10 days ago.

        Counts also the queues that 0.1.0 made with the setting pool-shards: only their last character is
        another. Nobody polls them, and their messages expire with their tasks' deadlines.
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
        """Remove it if it is empty and still unused; a message put at the same time is lost."""
        queue = self._account.queue(name)
        with suppress(QueueNotFound):
            if not queue.count() and self._is_unused(name, queue.metadata(), now):
                queue.remove()
                self._used.remove(name)
