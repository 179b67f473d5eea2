"""Tasks.

One row for each task, alone in its partition: the partition is the taskId, the key ``task``.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from threading import Lock
from weakref import WeakSet

from legacy_queue.domain.definition import TaskDefinition
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.task import PriorityChange, Run, Task
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.ports import AlreadyExists, Changed
from legacy_queue.ports.table import PARTITION, Condition, Row, Table, Value
from legacy_queue.stores.backlog import Backlog, Entry
from legacy_queue.stores.lru_cache import SharedLruCache
from legacy_queue.stores.rows import (
    NOTHING,
    ExpiringRows,
    as_json,
    first_of,
    json_in,
    json_values,
    of_kind,
    page,
    properties,
    read,
)

KEY = "task"
_REMEMBERED = 2000  # tasks
_LARGEST_REMEMBERED = 16 * 1024  # bytes of a definition

_LISTS = ("dependencies", "routes", "scopes")  # of a definition, of strings
_STATES = ("pending", "running", "completed", "failed", "exception")
_UNRESOLVED_STATES = ("unscheduled", "pending", "running")
_UNRESOLVED = Condition("state", "in", _UNRESOLVED_STATES)
_ANY_STATE = Condition("state", "in", (*_UNRESOLVED_STATES, "completed", "failed", "exception"))
_OPEN = Condition("state", "in", ("pending", "running"))
_OF_ENTRY = ("taskQueueId", "state", "since")  # properties of a row
_PAGE = 1000
_BARRED = "barred"
_EXPIRING = Condition("state", "in", ("completed", "failed", "exception", _BARRED))
_OF_EARLIER_ROWS: Mapping[str, Value] = {
    "waitsFor": b"[]",
    "newestBlob": "",
    "isUnpublished": False,
    "priorityChanges": b"[]",
}


@dataclass(frozen=True)
class StoredTask:
    """A task and the version of it that a conditional write names.

    ``is_own``: this process wrote it, so that no other process has events of it to publish first.
    """

    task: Task
    etag: str
    is_own: bool = field(default=False, compare=False)


class TaskStore(ExpiringRows):
    """Every change is a conditional write on the row's ETag, so a remembered task needs no read.

    Only a resolved task expires: an unresolved one still has to end, and its dependents wait for that.
    """

    def __init__(self, table: Table) -> None:
        self._recent: SharedLruCache[str, StoredTask] = SharedLruCache(_REMEMBERED)
        super().__init__(table, self._recent.remove, (_EXPIRING,))
        self._followers: WeakSet[Backlog] = WeakSet()
        self._lock = Lock()

    def load(self, task_id: str) -> StoredTask | None:
        """The task as it is now. What is written while it is read, it does not replace in memory."""
        before = self._recent.get(task_id)
        row, known = self._table.get(task_id, KEY), self._recent.get(task_id)
        if row is None or row.values.get("state") == _BARRED:
            self._recent.remove(task_id)
            return None
        if known and known.etag == row.etag:
            return known
        return self._remember(read(row, _stored), row.values, before)

    def recall(self, task_id: str) -> StoredTask | None:
        """The task as this process saw it last, where it remembers it: only a write proves that it is so."""
        return self._recent.get(task_id)

    def insert(self, task: Task) -> StoredTask:
        """Store a task that was not there; raises AlreadyExists."""
        values = new_values(task)
        stored = StoredTask(task, self._table.insert(task.task_id, KEY, values), is_own=True)
        self._tell(task, "", stored.etag)
        return self._remember(stored, values, self._recent.get(task.task_id))

    def bar(self, task_id: str, expires: datetime) -> bool:
        """No task of that id comes into being until then, unless there is one: then the answer is False."""
        with suppress(AlreadyExists):
            self._table.insert(task_id, KEY, {"state": _BARRED, "expires": expires})
            return True
        return self.load(task_id) is None

    def replace(self, stored: StoredTask, task: Task) -> StoredTask:
        """Store the task if it is still the version ``stored``; raises Changed."""
        try:
            etag = self._table.merge(task.task_id, KEY, changing_values(task), stored.etag)
        except Changed:
            self._recent.remove(task.task_id)
            raise
        self._tell(task, stored.etag, etag)
        stored_now, known = StoredTask(task, etag, is_own=True), self._recent.get(task.task_id)
        if known and known.etag == stored.etag:
            self._recent.replace(task.task_id, known, stored_now)
        elif known:  # which of them is newer, nobody knows
            self._recent.remove(task.task_id)
        return stored_now

    def begin_backlog(self) -> Backlog:
        """A backlog that every write from now on corrects, until it is dropped; nothing is read yet."""
        backlog = Backlog()
        with self._lock:
            self._followers.add(backlog)
        return backlog

    def read_into(self, backlog: Backlog, after: str) -> str | None:
        """Read a page of the tasks that are pending or running into it; where to go on, None at the end."""
        entries, next_after = page(self._table, [_OPEN], after, _PAGE, self._entry, _OF_ENTRY)
        backlog.read((one for one in entries if one), next_after is None)
        return next_after

    def unresolved(self, after: str, limit: int) -> tuple[Sequence[StoredTask], str | None]:
        """A page of the unscheduled, pending or running tasks, and where to go on: see ``rows.page``."""
        return page(self._table, [_UNRESOLVED], after, limit, _stored)

    def ids(self, after: str, limit: int, *, resolved_too: bool) -> Sequence[str]:
        """Up to ``limit`` taskIds behind that one, in order: of unresolved tasks, or of all."""
        behind = [Condition(PARTITION, "gt", after)] if after else []
        conditions = [*behind, _ANY_STATE if resolved_too else _UNRESOLVED]
        return first_of(self._table, conditions, limit, lambda row: row.partition, NOTHING)

    def _entry(self, row: Row) -> tuple[str, Entry] | None:
        """A task that an earlier version stored last is read whole; None for one that is gone meanwhile."""
        if "taskQueueId" in row.values:
            return row.partition, Entry(*properties(row, taskQueueId=str, state=str, since=datetime))
        stored = self.load(row.partition)
        if stored is None:
            return None
        task = stored.task
        return row.partition, Entry(task.work_queue.task_queue_id, task.state, task.since)

    def _tell(self, task: Task, before: str, etag: str) -> None:
        with self._lock:
            followers = [*self._followers]
        for backlog in followers:
            backlog.record_write(task, before, etag)

    def _remember(
        self, stored: StoredTask, values: Mapping[str, Value], before: StoredTask | None
    ) -> StoredTask:
        definition = values["definition0"]
        if isinstance(definition, bytes) and len(definition) <= _LARGEST_REMEMBERED:
            self._recent.replace(stored.task.task_id, before, stored)
        return stored


def new_values(task: Task) -> Mapping[str, Value]:
    """All properties of a new task."""
    return {
        **changing_values(task),
        **json_values("definition", task.definition.wire),
        "deadline": task.definition.deadline,
        "expires": task.definition.expires,
    }


def changing_values(task: Task) -> Mapping[str, Value]:
    """What a transition may change: merged into the row, so that the definition is not sent again.

    A merge cannot unset a property: nothing held, and no blob, is an empty string.
    """
    return {
        "state": task.state,
        "since": task.since,
        "taskQueueId": task.work_queue.task_queue_id,
        "retriesLeft": task.retries_left,
        "runs": as_json([run.to_wire() for run in task.runs]),
        "waitsFor": as_json(task.waits_for),
        "heldMessageId": task.held.message_id if task.held else "",
        "heldReceipt": task.held.receipt if task.held else "",
        "newestBlob": task.newest_blob,
        "isUnpublished": task.is_unpublished,
        "priorityChanges": as_json(
            [(one.old, one.new, format_time(one.changed)) for one in task.priority_changes]
        ),
    }


def task_in(row: Row) -> Task:
    """The inverse of ``new_values``; a row of an earlier version has not all of them.

    Raises an error of Python's for what is no task.
    """
    row = replace(row, values={**_OF_EARLIER_ROWS, **row.values})
    retries_left, runs, waits_for = properties(row, retriesLeft=int, runs=bytes, waitsFor=bytes)
    message_id, receipt, newest_blob = properties(row, heldMessageId=str, heldReceipt=str, newestBlob=str)
    is_unpublished, priority_changes = properties(row, isUnpublished=bool, priorityChanges=bytes)
    task = Task(
        task_id=row.partition,
        definition=TaskDefinition(json_in("definition", row)),
        retries_left=retries_left,
        runs=tuple(Run.from_wire(run) for run in of_kind(list, json.loads(runs))),
        held=MessageLease(message_id, receipt) if message_id else None,
        waits_for=tuple(of_kind(list, json.loads(waits_for))),
        newest_blob=newest_blob,
        is_unpublished=is_unpublished,
        priority_changes=tuple(
            PriorityChange(old, new, parse_time(changed))
            for old, new, changed in of_kind(list, json.loads(priority_changes))
        ),
    )
    _check(task)
    return task


def _check(task: Task) -> None:
    """That every part is there with which the task is worked on."""
    definition, wire = task.definition, task.definition.wire
    for time in (definition.created, definition.deadline, definition.expires):
        of_kind(datetime, time)
    of_kind(int, wire["retries"])
    texts = [wire[name] for name in ("provisionerId", "workerType", "schedulerId", "taskGroupId", "requires")]
    texts.append(definition.wire.get("projectId", ""))
    for strings in (task.waits_for, *(of_kind(list, wire[name]) for name in _LISTS)):
        texts += strings
    for number, run in enumerate(task.runs):
        if run.run_id != number or run.state not in _STATES:
            raise ValueError("a run of another id or state")
        worker = (run.worker.worker_group, run.worker.worker_id) if run.worker else ()
        texts += [run.reason_created, run.reason_resolved or "", *worker]
    for text in texts:
        of_kind(str, text)
    task.work_queue.name("")


def _stored(row: Row) -> StoredTask:
    return StoredTask(task_in(row), row.etag)
