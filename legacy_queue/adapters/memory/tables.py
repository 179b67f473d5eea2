"""Tasks, groups, dependencies and turns."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from threading import Lock

from legacy_queue.adapters.memory.sorted_rows import MemoryTable
from legacy_queue.domain.task import Task
from legacy_queue.ports import (
    ActivePage,
    ActiveTask,
    AlreadyExists,
    Changed,
    Clock,
    DependencyStore,
    Dependent,
    Group,
    GroupStore,
    StoredTask,
    TaskPage,
    TaskStore,
    Turn,
    Turns,
)

_ACTIVE, _GROUP, _MEMBER = "a", "g", "m"

_NEVER = datetime.max.replace(tzinfo=UTC)


class MemoryTaskStore(TaskStore):
    def __init__(self) -> None:
        self._table = MemoryTable[StoredTask]()
        self._etags = map(str, itertools.count(1))
        self._pending: dict[tuple[str, str], int] = {}  # by worker type, where there are any

    def load(self, task_id: str) -> StoredTask | None:
        return self._table.get((task_id, ""))

    def insert(self, task: Task) -> StoredTask:
        with self._table.lock:
            if self.load(task.task_id):
                raise AlreadyExists
            return self._store(task)

    def replace(self, stored: StoredTask, task: Task) -> StoredTask:
        with self._table.lock:
            current = self.load(task.task_id)
            if current is None or current.etag != stored.etag:
                raise Changed
            return self._store(task)

    def pending(self, provisioner_id: str, worker_type: str) -> int:
        return self._pending.get((provisioner_id, worker_type), 0)

    def unresolved(self, after: str, limit: int) -> TaskPage:
        with self._table.lock:
            unresolved = (stored for stored in self._table.after((after, "")) if not stored.task.is_resolved)
            tasks = list(islice(unresolved, limit))
        return TaskPage(tasks, tasks[-1].task.task_id if len(tasks) == limit else None)

    def remove_expired(self, now: datetime, after: str, limit: int) -> str | None:
        return self._table.remove_expired(now, after, limit)

    def _store(self, task: Task) -> StoredTask:
        before = self.load(task.task_id)
        self._count(task, (task.state == "pending") - (before is not None and before.task.state == "pending"))
        stored = StoredTask(task, next(self._etags), is_own=True)
        self._table.put((task.task_id, ""), stored, task.definition.expires if task.is_resolved else _NEVER)
        return stored

    def _count(self, task: Task, more: int) -> None:
        queue = task.definition.work_queue
        pool = queue.provisioner_id, queue.worker_type
        count = self._pending.pop(pool, 0) + more
        if count:
            self._pending[pool] = count


class MemoryGroupStore(GroupStore):
    """A partition for each group, with three kinds of rows, of which those of active tasks come first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._table = MemoryTable[Group | ActiveTask | str]()

    def join(self, task_id: str, task_group_id: str, scheduler_id: str, expires: datetime) -> Group:
        with self._table.lock:
            group = self.load(task_group_id) or Group(task_group_id, scheduler_id, expires)
            if group.scheduler_id == scheduler_id:
                group = replace(group, expires=max(group.expires, expires))
                self._table.put((task_group_id, _GROUP), group, group.expires)
                self._table.put((task_group_id, _MEMBER + task_id), task_id, expires)
                self.activate(task_id, task_group_id, 0, expires)
            return group

    def leave(self, task_id: str, task_group_id: str) -> None:
        self.deactivate(task_id, task_group_id, 0)
        self._table.remove((task_group_id, _MEMBER + task_id))

    def load(self, task_group_id: str) -> Group | None:
        group = self._table.get((task_group_id, _GROUP))
        return group if isinstance(group, Group) else None

    def members(self, task_group_id: str, after: str, limit: int) -> Sequence[str]:
        with self._table.lock:
            rows = self._table.after((task_group_id, _MEMBER + after), task_group_id)
            return list(islice((row for row in rows if isinstance(row, str)), limit))

    def activate(self, task_id: str, task_group_id: str, activation: int, expires: datetime) -> None:
        active = ActiveTask(task_group_id, task_id, activation, self._clock.now())
        self._table.put(_active_key(task_id, task_group_id, activation), active, expires)

    def deactivate(self, task_id: str, task_group_id: str, activation: int) -> None:
        self._table.remove(_active_key(task_id, task_group_id, activation))

    def has_active(self, task_group_id: str) -> bool:
        with self._table.lock:
            return isinstance(next(self._table.after((task_group_id, ""), task_group_id), None), ActiveTask)

    def all_active(self, after: str, limit: int) -> ActivePage:
        first, second = json.loads(after) if after else ("", "")
        with self._table.lock:
            rows = self._table.after((first, second))
            active = list(islice((row for row in rows if isinstance(row, ActiveTask)), limit))
        if len(active) < limit:
            return ActivePage(active, None)
        last = active[-1]
        key = _active_key(last.task_id, last.task_group_id, last.activation)
        return ActivePage(active, json.dumps(key))

    def remove_expired(self, now: datetime, after: str, limit: int) -> str | None:
        return self._table.remove_expired(now, after, limit)


class MemoryDependencyStore(DependencyStore):
    def __init__(self) -> None:
        self._table = MemoryTable[Dependent]()

    def add(self, required_id: str, dependent: Dependent, expires: datetime) -> None:
        self._table.put((required_id, dependent.task_id), dependent, expires)

    def dependents(self, required_id: str, after: str, limit: int) -> Sequence[Dependent]:
        with self._table.lock:
            return list(islice(self._table.after((required_id, after), required_id), limit))

    def remove_expired(self, now: datetime, after: str, limit: int) -> str | None:
        return self._table.remove_expired(now, after, limit)


class MemoryTurns(Turns):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turns: dict[str, tuple[Turn, datetime]] = {}
        self._etags = map(str, itertools.count(1))
        self._lock = Lock()

    def take(self, name: str, until: datetime) -> Turn | datetime:
        free = Turn(name, "", None, ""), datetime.min.replace(tzinfo=UTC)
        with self._lock:
            turn, taken_until = self._turns.get(name, free)
            if taken_until > self._clock.now():
                return taken_until
            return self._store(turn, until)

    def keep(self, turn: Turn, until: datetime, cursor: str, since: datetime | None) -> Turn:
        with self._lock:
            stored, _ = self._turns.get(turn.name, (None, None))
            if stored is None or stored.etag != turn.etag:
                raise Changed
            return self._store(replace(turn, cursor=cursor, since=since), until)

    def _store(self, turn: Turn, until: datetime) -> Turn:
        turn = replace(turn, etag=next(self._etags))
        self._turns[turn.name] = turn, until
        return turn


def _active_key(task_id: str, task_group_id: str, activation: int) -> tuple[str, str]:
    return task_group_id, f"{_ACTIVE}{task_id}-{activation:04}"
