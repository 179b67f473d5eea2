"""Tasks."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

from legacy_queue.domain.task import Task
from legacy_queue.ports import Changed
from legacy_queue.ports.table import Condition, Row, Table, Value
from legacy_queue.stores.recent import Recent
from legacy_queue.stores.rows import ExpiringRows, joined, page, read, readable
from legacy_queue.stores.task_rows import KEY, changing_values, new_values, task_in

# How many tasks a process remembers, and how large a definition may be for that
_REMEMBERED = 2000
_LARGEST_REMEMBERED = 16 * 1024

_UNRESOLVED = Condition("state", "in", ("unscheduled", "pending", "running"))
_RESOLVED = Condition("state", "in", ("completed", "failed", "exception"))


@dataclass(frozen=True)
class StoredTask:
    """A task and the version of it that a conditional write names.

    ``is_own``: this process wrote it, so that no other process has events of it to publish first.
    """

    task: Task
    etag: str
    is_own: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class TaskPage:
    """Some of the tasks that were asked for; ``after`` continues, None at the end."""

    tasks: Sequence[StoredTask]
    after: str | None


class TaskStore(ExpiringRows):
    """Every change is a conditional write on the row's ETag, so a remembered task needs no read.

    Only a resolved task expires: an unresolved one still has to end, and its dependents wait for that.
    """

    _FURTHER = (_RESOLVED,)

    def __init__(self, table: Table, *, is_only_writer: bool = False) -> None:
        """``is_only_writer``: no other store writes to the table, so that pending tasks can be counted."""
        super().__init__(table)
        self._recent: Recent[str, StoredTask] = Recent(_REMEMBERED)
        self._pending: Counter[tuple[str, str]] | None = Counter() if is_only_writer else None
        self._lock = Lock()

    def load(self, task_id: str) -> StoredTask | None:
        """The task as it is now."""
        row, known = self._table.get(task_id, KEY), self._recent.get(task_id)
        if row is None:
            self._recent.forget(task_id)
            return None
        if known and known.etag == row.etag:
            return known
        return self._remember(read(row, _stored), row.values)

    def recall(self, task_id: str) -> StoredTask | None:
        """The task as this process saw it last, where it remembers it: only a write proves that it is so."""
        return self._recent.get(task_id)

    def insert(self, task: Task) -> StoredTask:
        """Store a task that was not there; raises AlreadyExists."""
        values = new_values(task)
        stored = StoredTask(task, self._table.insert(task.task_id, KEY, values), is_own=True)
        self._count(task, task.state == "pending")
        return self._remember(stored, values)

    def replace(self, stored: StoredTask, task: Task) -> StoredTask:
        """Store the task if it is still the version ``stored``; raises Changed."""
        try:
            etag = self._table.merge(task.task_id, KEY, changing_values(task), stored.etag)
        except Changed:
            self._recent.forget(task.task_id)
            raise
        self._count(task, (task.state == "pending") - (stored.task.state == "pending"))
        stored_now = StoredTask(task, etag, is_own=True)
        if self._recent.get(task.task_id):
            self._recent.put(task.task_id, stored_now)
        return stored_now

    def pending(self, provisioner_id: str, worker_type: str) -> int | None:
        """How many tasks of the worker type are pending; None where another process may write tasks too."""
        return None if self._pending is None else max(0, self._pending[provisioner_id, worker_type])

    def unresolved(self, after: str, limit: int) -> TaskPage:
        """Up to ``limit`` tasks that are unscheduled, pending or running, in any order that stays the same.

        From where ``after`` says, "" being the beginning. A page may be empty and not the last.
        """
        found = page(self._table, [_UNRESOLVED], after, limit)
        return TaskPage([*readable(found.rows, _stored)], found.after)

    def _count(self, task: Task, more: int) -> None:
        queue = task.definition.work_queue
        pool = queue.provisioner_id, queue.worker_type
        with self._lock:
            if self._pending is not None and more:
                self._pending[pool] += more
                if not self._pending[pool]:
                    del self._pending[pool]

    def _remember(self, stored: StoredTask, values: Mapping[str, Value]) -> StoredTask:
        if len(joined("definition", values)) <= _LARGEST_REMEMBERED:
            self._recent.put(stored.task.task_id, stored)
        return stored

    def _forget(self, partition: str) -> None:
        self._recent.forget(partition)


def _stored(row: Row) -> StoredTask:
    return StoredTask(task_in(row), row.etag)
