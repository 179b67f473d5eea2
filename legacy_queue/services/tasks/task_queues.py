"""Counts and lists the pending and the claimed tasks of each pool."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import NamedTuple

from legacy_queue.domain.task import Task
from legacy_queue.ports import Clock
from legacy_queue.services.concurrency import SingleFlight
from legacy_queue.services.pagination import Page
from legacy_queue.services.tasks.listing import Listing
from legacy_queue.stores import OpenTasks, TaskStore
from legacy_queue.stores.open_tasks import OpenCount

MAX_AGE = timedelta(seconds=2)  # the original's 20 s would start machines for work that is already done
MAX_SHARE_OF_TIME = 4  # a reading is used for at least 4 times as long as it took


class _Reading(NamedTuple):
    """The open tasks, and until when they are used, on the monotonic clock."""

    open_tasks: OpenTasks
    until: timedelta


class TaskQueues:
    """Reads the table once for all callers and all pools.

    Changes by this process are included at once. Changes by other processes are included after 2 s, or after
    four times the duration of a reading if that is longer. So reading takes at most a quarter of the time. If
    a reading fails, all callers that share it get ServiceUnavailable, and the next call reads again.
    """

    def __init__(self, tasks: TaskStore, listing: Listing, clock: Clock) -> None:
        self._tasks = tasks
        self._listing = listing
        self._clock = clock
        self._reading: _Reading | None = None
        self._read = SingleFlight(self._read_open_tasks)

    def counts(self, task_queue_ids: list[str]) -> list[tuple[int, int]]:
        """Returns for each pool how many tasks are pending, and how many are claimed."""
        open_tasks = self._open_tasks()
        return [open_tasks.counts(task_queue_id) for task_queue_id in task_queue_ids]

    def messages_needed(self, task_queue_id: str) -> int:
        """Returns how many tasks of the pool need a message."""
        return self._open_tasks().messages_needed(task_queue_id)

    def open_counts(self) -> Mapping[tuple[str, str, str], OpenCount]:
        """Returns the counts of open tasks by taskQueueId, priority and state."""
        return self._open_tasks().open_counts()

    def known_counts(self, *, is_alone: bool) -> Mapping[tuple[str, str, str], OpenCount] | None:
        """Returns ``open_counts`` without a read of storage, or None if this process does not know them.

        ``is_alone``: no other process changes tasks, so an old reading is still true.
        """
        reading = self._reading
        if reading is None or reading.open_tasks.is_full:
            return None
        is_true = is_alone or self._clock.monotonic() < reading.until
        return reading.open_tasks.open_counts() if is_true else None

    def running(self) -> frozenset[str]:
        """The taskIds of the running tasks. Reads no task."""
        return self._open_tasks().running()

    def tasks(
        self, task_queue_id: str, state: str, after: str, limit: int, render: Callable[[Task], bytes]
    ) -> Page[str]:
        """Returns a page of the ``pending`` or ``running`` tasks. The longest in that state come first.

        The page begins after the position ``after``, ``<time>/<taskId>``. No message is received.
        """
        positions = self._open_tasks().positions(task_queue_id, state, after, limit + 1)
        return self._listing.at_positions(positions, limit, lambda task: task.state == state, render)

    def _open_tasks(self) -> OpenTasks:
        reading = self._reading
        if reading is None or self._clock.monotonic() >= reading.until or reading.open_tasks.is_full:
            reading = self._read.call()
        return reading.open_tasks

    def _read_open_tasks(self) -> _Reading:
        begun = self._clock.monotonic()
        open_tasks = self._tasks.begin_open_tasks()
        after: str | None = ""
        while after is not None:
            after = self._tasks.read_into(open_tasks, after)
        took = self._clock.monotonic() - begun
        self._reading = _Reading(open_tasks, begun + max(MAX_AGE, MAX_SHARE_OF_TIME * took))
        return self._reading
