"""Task groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from legacy_queue.ports import Changed, Clock
from legacy_queue.ports.table import KEY, Change, Condition, Row, Table, Value
from legacy_queue.stores.recent import Recent
from legacy_queue.stores.rows import (
    NOTHING,
    ExpiringRows,
    between,
    of_kind,
    page,
    read,
    readable,
    slugid_in,
)

_REMEMBERED = 2000  # groups
_GROUP, _MEMBER, _ACTIVE = "group", "member-", "active-"
_MEMBERS_END, _ACTIVE_END = "member.", "active."  # "." is the character behind "-"


@dataclass(frozen=True)
class Group:
    """A task group: one schedulerId, and an expiry no earlier than that of any of its tasks."""

    task_group_id: str
    scheduler_id: str
    expires: datetime


@dataclass(frozen=True)
class ActiveTask:
    """A member of a group that was not seen resolved yet, and since when; see ``Task.activation``."""

    task_group_id: str
    task_id: str
    activation: int
    since: datetime


@dataclass(frozen=True)
class ActivePage:
    """Some of all groups' active tasks; ``after`` continues, None at the end."""

    active: Sequence[ActiveTask]
    after: str | None


class _Stored(NamedTuple):
    group: Group
    etag: str


class GroupStore(ExpiringRows):
    """Groups, their members, and which of those are active. Expiry removes members too.

    A partition for each group, with three kinds of rows: ``group``, ``member-<taskId>`` for each of its
    tasks, and ``active-<taskId>-<activation>`` while it is so.
    """

    def __init__(self, table: Table, clock: Clock) -> None:
        super().__init__(table)
        self._clock = clock
        self._recent: Recent[str, _Stored] = Recent(_REMEMBERED)

    def join(self, task_id: str, task_group_id: str, scheduler_id: str, expires: datetime) -> Group:
        """Make the task a member, active from run 0 on, and the group live at least until ``expires``.

        The group is created when there is none. Where it has another schedulerId, nothing is changed: the
        caller compares the group that is returned. Safe to repeat.
        """
        rows = [
            Change("put", _MEMBER + task_id, {"expires": expires}),
            Change("put", _active_key(task_id, 0), self._active_values(expires)),
        ]
        stored = self._recent.get(task_group_id)
        if stored and stored.group.scheduler_id != scheduler_id:
            stored = self._read(task_group_id)
        while stored is None or stored.group.scheduler_id == scheduler_id:
            group = stored.group if stored else Group(task_group_id, scheduler_id, expires)
            try:
                return self._write(stored, replace(group, expires=max(group.expires, expires)), rows)
            except Changed:
                stored = self._read(task_group_id)
        return stored.group

    def leave(self, task_id: str, task_group_id: str) -> None:
        """Undo ``join`` for a task that did not come into being; the group stays. Safe to repeat."""
        self.deactivate(task_id, task_group_id, 0)
        self._table.delete(task_group_id, _MEMBER + task_id)

    def load(self, task_group_id: str) -> Group | None:
        """The group, if any task ever joined it."""
        stored = self._read(task_group_id)
        return stored.group if stored else None

    def members(self, task_group_id: str, after: str, limit: int) -> Sequence[str]:
        """Up to ``limit`` taskIds greater than ``after``, ordered as bytes: fewer at the end only."""
        return between(self._table, task_group_id, _MEMBER + after, _MEMBERS_END, limit, _member, NOTHING)

    def activate(self, task_id: str, task_group_id: str, activation: int, expires: datetime) -> None:
        """The task, which lives until ``expires``, is active again, from this run on. Safe to repeat."""
        self._table.put(task_group_id, _active_key(task_id, activation), self._active_values(expires))

    def deactivate(self, task_id: str, task_group_id: str, activation: int) -> None:
        """The task is not active any more by this activation; a later one is untouched. Safe to repeat."""
        self._table.delete(task_group_id, _active_key(task_id, activation))

    def has_active(self, task_group_id: str) -> bool:
        """Whether any task of the group is active: at the cost of one, however many there are."""
        return bool(between(self._table, task_group_id, _ACTIVE, _ACTIVE_END, 1, _activation, NOTHING))

    def all_active(self, after: str, limit: int) -> ActivePage:
        """Up to ``limit`` active tasks of all groups, from where ``after`` says, "" being the beginning."""
        conditions = [Condition(KEY, "gt", _ACTIVE), Condition(KEY, "lt", _ACTIVE_END)]
        found = page(self._table, conditions, after, limit)
        return ActivePage([*readable(found.rows, _active_task)], found.after)

    def _active_values(self, expires: datetime) -> Mapping[str, Value]:
        return {"since": self._clock.now(), "expires": expires}

    def _write(self, stored: _Stored | None, group: Group, rows: Sequence[Change]) -> Group:
        """Write the rows, and the group where it is not as it is stored, at once; raises Changed."""
        changes = [*rows]
        if stored is None:
            values: dict[str, Value] = {"expires": group.expires, "schedulerId": group.scheduler_id}
            changes.insert(0, Change("insert", _GROUP, values))
        elif group != stored.group:
            changes.insert(0, Change("merge", _GROUP, {"expires": group.expires}, stored.etag))
        etags = self._table.batch(group.task_group_id, changes)
        if len(changes) > len(rows):
            self._recent.put(group.task_group_id, _Stored(group, etags[0]))
        return group

    def _read(self, task_group_id: str) -> _Stored | None:
        row = self._table.get(task_group_id, _GROUP)
        if row is None:
            self._recent.forget(task_group_id)
            return None
        stored = read(row, _stored)
        self._recent.put(task_group_id, stored)
        return stored

    def _forget(self, partition: str) -> None:
        self._recent.forget(partition)


def _active_key(task_id: str, activation: int) -> str:
    return f"{_ACTIVE}{task_id}-{activation:04}"


def _stored(row: Row) -> _Stored:
    scheduler_id, expires = row.values["schedulerId"], row.values["expires"]
    return _Stored(Group(row.partition, of_kind(str, scheduler_id), of_kind(datetime, expires)), row.etag)


def _member(row: Row) -> str:
    return slugid_in(row.key.removeprefix(_MEMBER))


def _activation(row: Row) -> tuple[str, int]:
    task_id, _, activation = row.key.removeprefix(_ACTIVE).rpartition("-")
    return slugid_in(task_id), int(activation)


def _active_task(row: Row) -> ActiveTask:
    return ActiveTask(slugid_in(row.partition), *_activation(row), of_kind(datetime, row.values["since"]))
