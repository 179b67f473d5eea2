"""Stores tasks. Each has one row, in its own partition: the partition is the taskId, the key is ``task``."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from legacy_queue.domain.messages import needs_message
from legacy_queue.domain.states import RESOLVED, UNRESOLVED
from legacy_queue.domain.task import Task
from legacy_queue.ports import AlreadyExists, Changed
from legacy_queue.ports.table import Condition, Row, Table, Value
from legacy_queue.stores.lru_cache import SharedLruCache
from legacy_queue.stores.open_tasks import OpenTask, OpenTasks
from legacy_queue.stores.table_rows import ExpiringRows, page, properties, read
from legacy_queue.stores.task_row import (
    UNPUBLISHED,
    TaskVersion,
    changing_values,
    new_values,
    task_in,
    version_in,
    written_in,
)

TASK_KEY = "task"
_MAX_CACHED = 2000  # tasks
_MAX_CACHED_SIZE = 16 * 1024  # bytes of a definition; a larger task is not cached

_UNRESOLVED = Condition("state", "in", UNRESOLVED)
_OPEN = Condition("state", "in", ("pending", "running"))
_UNSETTLED = Condition("state", "in", (*UNRESOLVED, UNPUBLISHED))
_ANY_STATE = Condition("state", "in", (*UNRESOLVED, *RESOLVED, UNPUBLISHED))
_OF_ENTRY = ("taskQueueId", "state", "since", "priority", "heldMessageId")  # properties to read
_OF_VERSION = ("state", "runs", "deadline", "written", "isUnpublished")
_MAX_ROWS = 1000
_BARRED = "barred"
_EXPIRING = Condition("state", "in", (*RESOLVED, _BARRED))


@dataclass(frozen=True)
class StoredTask:
    """A task, and the ETag of this version for a conditional write.

    ``written`` says which write made it: see ``Processes.version``. It is "" if 0.1.0 did.
    """

    task: Task
    etag: str
    written: str = field(default="", compare=False)


class TaskStore(ExpiringRows):
    """The tasks. Every change is a conditional write on the ETag of the row.

    So a cached task can be changed without a read, even though it may be outdated. Only resolved tasks
    expire: an unresolved task must still end, and its dependents wait for that.
    """

    def __init__(self, table: Table) -> None:
        self._cache: SharedLruCache[str, StoredTask] = SharedLruCache(_MAX_CACHED)
        super().__init__(table, (_EXPIRING,))
        self._open_tasks: OpenTasks | None = None

    def on_removed(self, partition: str) -> None:
        self._cache.remove(partition)

    def load(self, task_id: str) -> StoredTask | None:
        """Reads the task. Returns None if it does not exist."""
        row = self._table.get(task_id, TASK_KEY)
        if row is None or row.values.get("state") == _BARRED:
            self._cache.remove(task_id)
            return None
        cached = self._cache.get(task_id)
        if cached and cached.etag == row.etag:
            return cached
        return self._store_in_cache(read(row, _stored), row.values)

    def recall(self, task_id: str) -> StoredTask | None:
        """Returns the cached task. It may be outdated: only a conditional write shows that it is not."""
        return self._cache.get(task_id)

    def insert(self, task: Task, written: str) -> StoredTask:
        """Store a new task. Raises AlreadyExists."""
        values = {**new_values(task), "written": written}
        stored = StoredTask(task, self._table.insert(task.task_id, TASK_KEY, values), written)
        self._update_open_tasks(task)
        return self._store_in_cache(stored, values)

    def prevent_creation(self, task_id: str, expires: datetime) -> bool:
        """Let no task of this id be created before ``expires``. Returns False if there already is one."""
        with suppress(AlreadyExists):
            self._table.insert(task_id, TASK_KEY, {"state": _BARRED, "expires": expires})
            return True
        return self.load(task_id) is None

    def replace(self, stored: StoredTask, task: Task, written: str = "") -> StoredTask:
        """Store the task if ``stored`` is still the current version. Raises Changed.

        For a change without effects, ``written`` is "". Then the row still names the write before.
        """
        written = written or stored.written
        try:
            values = {**changing_values(task), "written": written}
            etag = self._table.merge(task.task_id, TASK_KEY, values, stored.etag)
        except Changed:
            self._cache.remove(task.task_id)
            raise
        self._update_open_tasks(task)
        replaced = StoredTask(task, etag, written)
        if self._cache.get(task.task_id):  # a task that is not cached is too large
            self._cache.put(task.task_id, replaced)
        return replaced

    def begin_open_tasks(self) -> OpenTasks:
        """Returns empty open tasks, which every write from now on updates instead of the earlier ones."""
        self._open_tasks = OpenTasks()
        return self._open_tasks

    def read_into(self, open_tasks: OpenTasks, after: str) -> str | None:
        """Read a page of the open tasks into ``open_tasks``. Returns the next ``after``, None at the end."""
        entries, next_after = page(self._table, [_OPEN], after, _MAX_ROWS, _entry, _OF_ENTRY)
        open_tasks.read(entries, next_after is None)
        return next_after

    def unresolved(self, after: str, limit: int) -> tuple[Sequence[StoredTask], str | None]:
        """Returns a page of the unscheduled, pending or running tasks, and the next ``after``."""
        return page(self._table, [_UNRESOLVED], after, limit, _stored)

    def unsettled(self, after: str, limit: int) -> tuple[Sequence[TaskVersion], str | None]:
        """Returns a page of the tasks that are unresolved or have unpublished events: see ``page``."""
        return page(self._table, [_UNSETTLED], after, limit, version_in, _OF_VERSION)

    @property
    def knows_age(self) -> bool:
        """Whether ``search`` begins with the newest task. Otherwise it is in the order of the taskIds."""
        return self._table.knows_age

    def search(
        self, state: str, task_queue_id: str, after: str, limit: int
    ) -> tuple[Sequence[StoredTask], str | None]:
        """Returns a page of tasks in that state, ``unresolved`` or ``all``. "" means any pool."""
        states = {"all": _ANY_STATE, "unresolved": _UNRESOLVED}
        is_resolved = state in RESOLVED
        stored_as = Condition("state", "in", (state, UNPUBLISHED) if is_resolved else (state,))
        conditions = [states.get(state, stored_as)]
        if task_queue_id:
            conditions.append(Condition("taskQueueId", "eq", task_queue_id))
        found, next_after = page(self._table, conditions, after, limit, _stored, newest_first=True)
        return [each for each in found if not is_resolved or each.task.state == state], next_after

    def _update_open_tasks(self, task: Task) -> None:
        if open_tasks := self._open_tasks:
            open_tasks.record_write(task)

    def _store_in_cache(self, stored: StoredTask, values: Mapping[str, Value]) -> StoredTask:
        definition = values["definition0"]
        if isinstance(definition, bytes) and len(definition) <= _MAX_CACHED_SIZE:
            self._cache.put(stored.task.task_id, stored)
        return stored


def _entry(row: Row) -> tuple[str, OpenTask]:
    pool, state, since, priority = properties(row, taskQueueId=str, state=str, since=datetime, priority=str)
    (held,) = properties(row, heldMessageId=str)
    return row.partition, OpenTask(pool, state, since, priority, needs_message(state, is_held=bool(held)))


def _stored(row: Row) -> StoredTask:
    return StoredTask(task_in(row), row.etag, written_in(row))
