"""Keeps the pending and running tasks of all pools in memory, as this process last read and wrote them."""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import NamedTuple

from legacy_queue.cooperation import yielding
from legacy_queue.domain.messages import needs_message
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import format_time

_YIELD_AFTER = 1000  # tasks
MAX_WRITES = 40_000  # then the table is read again: tasks that other processes ended must not pile up


class OpenTask(NamedTuple):
    """A task that has been ``pending`` or ``running`` since ``since``. See ``messages.needs_message``."""

    task_queue_id: str
    state: str
    since: datetime
    priority: str
    needs_message: bool


@dataclass(frozen=True)
class OpenCount:
    """How many tasks there are in a state, and since when the oldest of them has been in it."""

    count: int = 0
    oldest: datetime | None = None


class OpenTasks:
    """The open tasks: read from the table once, and then updated by every write of this process.

    Later writes of other processes are missing.
    """

    def __init__(self) -> None:
        self._entries: dict[str, OpenTask] = {}  # by taskId
        self._counts: Counter[tuple[str, str]] = Counter()
        self._messages_needed: Counter[str] = Counter()
        self._written: set[str] = set()  # taskIds that this process wrote while the table was being read
        self._writes = 0
        self._is_read = False
        self._lock = Lock()

    @property
    def is_full(self) -> bool:
        """Whether it has so many writes that it is no longer updated."""
        return self._is_read and self._writes > MAX_WRITES

    def read(self, entries: Iterable[tuple[str, OpenTask]], is_last: bool) -> None:
        """Add a page of the table, by taskId. Tasks that this process wrote meanwhile are newer, and stay."""
        with self._lock:
            for task_id, entry in entries:
                if task_id not in self._written:
                    self._put(task_id, entry)
            self._is_read = is_last

    def record_write(self, task: Task) -> None:
        """Add the task as it was written."""
        run = task.last_run
        with self._lock:
            if self.is_full:
                return
            self._writes += 1
            if not self._is_read:
                self._written.add(task.task_id)
            entry = None
            if run and not run.is_resolved:
                needs_one = needs_message(run.state, is_held=task.held is not None)
                pool = task.work_queue.task_queue_id
                entry = OpenTask(pool, run.state, task.since, task.priority, needs_one)
            self._put(task.task_id, entry)

    def counts(self, task_queue_id: str) -> tuple[int, int]:
        """Returns how many tasks are pending, and how many are running."""
        with self._lock:
            return self._counts[task_queue_id, "pending"], self._counts[task_queue_id, "running"]

    def messages_needed(self, task_queue_id: str) -> int:
        """Returns how many tasks need a message."""
        with self._lock:
            return self._messages_needed[task_queue_id]

    def open_counts(self) -> Mapping[tuple[str, str, str], OpenCount]:
        """Returns the counts by taskQueueId, priority and state. Counts of zero are left out."""
        with self._lock:
            entries = [*self._entries.values()]
        counts: dict[tuple[str, str, str], OpenCount] = {}
        for task_queue_id, state, since, priority, _ in yielding(entries, _YIELD_AFTER):
            count = counts.get((task_queue_id, priority, state), OpenCount())
            oldest = min(since, count.oldest or since)
            counts[task_queue_id, priority, state] = OpenCount(count.count + 1, oldest)
        return counts

    def running(self) -> frozenset[str]:
        """Returns the taskIds of the running tasks."""
        with self._lock:
            entries = [*self._entries.items()]
        tasks = yielding(entries, _YIELD_AFTER)
        return frozenset(task_id for task_id, entry in tasks if entry.state == "running")

    def positions(self, task_queue_id: str, state: str, after: str, limit: int) -> list[str]:
        """Returns ``<since>/<taskId>`` for up to ``limit`` tasks after ``after``, the oldest first."""
        with self._lock:
            entries = [*self._entries.items()]
        wanted = task_queue_id, state
        positions = (
            f"{format_time(entry.since)}/{task_id}"
            for task_id, entry in yielding(entries, _YIELD_AFTER)
            if entry[:2] == wanted
        )
        return heapq.nsmallest(limit, (position for position in positions if position > after))

    def _put(self, task_id: str, entry: OpenTask | None) -> None:
        old = self._entries.pop(task_id, None)
        if old:
            self._counts[old[:2]] -= 1
            self._messages_needed[old.task_queue_id] -= old.needs_message
        if entry:
            self._entries[task_id] = entry
            self._counts[entry[:2]] += 1
            self._messages_needed[entry.task_queue_id] += entry.needs_message
