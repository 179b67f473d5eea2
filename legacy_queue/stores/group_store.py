"""Stores task groups."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from legacy_queue.ports import AlreadyExists, Changed, Clock, Corrupt
from legacy_queue.ports.table import KEY, Change, Condition, Row, Table, Value
from legacy_queue.stores.lru_cache import SharedLruCache
from legacy_queue.stores.table_rows import (
    ExpiringRows,
    between,
    of_kind,
    page,
    properties,
    read,
    slugid_in,
)
from legacy_queue.stores.task_row import written_in

_MAX_CACHED = 2000  # groups
_GROUP = "group"
_OPEN = "open"
_MEMBER = "member-"
_ACTIVE = "active-"
_ACTIVE_STATE = "active"
_ENDED_STATE = "ended"
_IS_ACTIVE = Condition("state", "eq", _ACTIVE_STATE)
# "." is the character after "-". Each range includes the row of the group: one read finds a member either
# there or in its own row.
_MEMBERS_BEGIN = "active."
_MEMBERS_END = "member."
_ACTIVE_END = "group."


class Sealed(Exception):
    """The group takes no new member."""


@dataclass(frozen=True)
class ActiveTask:
    """A member that is not recorded as resolved."""

    task_group_id: str
    task_id: str
    # the run with which it became active: see ``Task.activation``
    activation: int
    since: datetime
    # the write of the createTask that made it active: see ``Processes.version``; "" if something else did
    written: str


@dataclass(frozen=True)
class Group:
    """A task group."""

    task_group_id: str
    # all its tasks have this schedulerId
    scheduler_id: str
    # not before any of its tasks expires
    expires: datetime
    # since when it takes no new members; None if it is not sealed
    sealed: datetime | None = None
    # the only member if its row holds one, and whether this is active: see GroupStore
    only: ActiveTask | None = field(default=None, compare=False, repr=False)
    is_only_active: bool = field(default=False, compare=False, repr=False)
    # of this version, for a conditional write; "" if the group is not stored
    etag: str = field(default="", compare=False, repr=False)


class GroupStore(ExpiringRows):
    """The groups, their members, and which members are active. Members expire with their group.

    There is a partition for each group, with four kinds of rows:

    - ``group``,
    - ``open`` until the group is sealed,
    - ``member-<taskId>`` for each of its tasks,
    - ``active-<taskId>-<activation>`` for each active task.

    Most tasks are alone in their group. So in a new group, the row ``group`` holds its first member, and
    there is no other row. The end of that member changes only this row. Any other change also writes, in the
    same batch, the rows that this one stands for (``_spread``). Both name the version of the row ``group``.

    Rows of members are written in a batch that also requires the row ``open`` or ``group`` to exist: see
    ``_exists``. If that row is missing, the batch fails. So no task joins a group that another process has
    sealed or removed meanwhile.
    """

    def __init__(self, table: Table, clock: Clock) -> None:
        self._cache: SharedLruCache[str, Group] = SharedLruCache(_MAX_CACHED)
        super().__init__(table)
        self._clock = clock

    def on_removed(self, partition: str) -> None:
        self._cache.remove(partition)

    def join(self, task_id: str, group: Group, written: str) -> Group:
        """Make the task an active member from run 0 on. The group will not expire before ``group``.

        If the group is missing, it is created. If the stored group has another schedulerId, nothing is
        changed, and the caller must compare the returned group. Raises Sealed, unless the task is already a
        member. Safe to repeat.
        """
        since = self._clock.now()
        active = ActiveTask(group.task_group_id, task_id, 0, since, written)
        rows = [_member_row(task_id, group.expires), _active_row(active, group.expires)]
        known = self._cache.get(group.task_group_id)
        if known is None or known.scheduler_id != group.scheduler_id:
            known = group  # assume that it is new, because most tasks are alone in their group
        while True:
            if known.scheduler_id != group.scheduler_id:
                return known
            must_exist = _OPEN
            if known.sealed:
                if not self.is_member(task_id, group.task_group_id):
                    raise Sealed
                must_exist = _GROUP  # a member of a sealed group may join again
            try:
                if not known.etag:
                    return self._create(known, active)
                return self._add(rows, known, group.expires, must_exist)
            except (AlreadyExists, Changed):
                known = self.load(group.task_group_id) or group

    def is_member(self, task_id: str, task_group_id: str) -> bool:
        """Whether the task has joined the group."""
        return self._table.get(task_group_id, _MEMBER + task_id) is not None

    def activate(self, task_id: str, group: Group, activation: int) -> None:
        """Make the task active again from this run on, even if the group is sealed. Safe to repeat.

        If the group is missing, it is created.
        """
        active = ActiveTask(group.task_group_id, task_id, activation, self._clock.now(), "")
        row = _active_row(active, group.expires)
        known = self._cache.get(group.task_group_id) or group
        while True:
            try:
                self._add([row], known, group.expires, _GROUP)
                return
            except Changed:
                known = self.load(group.task_group_id) or group

    def leave(self, task_id: str, task_group_id: str) -> None:
        """Undo ``join`` for a task that was not created. Safe to repeat."""
        while (group := self.load(task_group_id)) and group.only:
            with suppress(Changed):
                self._write(group, [])
        self._table.delete(task_group_id, _active_key(task_id, 0))
        self._table.delete(task_group_id, _MEMBER + task_id)

    def end(self, task_id: str, task_group_id: str, activations: Collection[int]) -> bool:
        """End these activations of the task. Returns whether any member is active. Safe to repeat."""
        group = self._cache.get(task_group_id)
        # a cached group that has expired may have been replaced by another
        if group is None or group.expires <= self._clock.now() or (group.only and not group.is_only_active):
            group = self._readable(task_group_id)
        while group and group.only and group.only.task_id == task_id and 0 in activations:
            if not group.is_only_active:
                return False
            try:
                etag = self._table.merge(task_group_id, _GROUP, {"state": _ENDED_STATE}, group.etag)
            except Changed:
                group = self._readable(task_group_id)
            else:
                ended = Group(task_group_id, group.scheduler_id, group.expires, only=group.only, etag=etag)
                self._cache.put(task_group_id, ended)
                return False
        for activation in activations:
            self._table.delete(task_group_id, _active_key(task_id, activation))
        return self.is_active(task_group_id)

    def is_active(self, task_group_id: str) -> bool:
        """Whether any member is active. If two callers each end one and ask, the later sees both ends."""
        return bool(self.active(task_group_id, "", 1))

    def seal(self, task_group_id: str, now: datetime) -> Group | None:
        """Seal the group, so that no task joins it. Returns it, or None if there is none. Safe to repeat."""
        while True:
            group = self.load(task_group_id)
            if group is None or group.sealed:
                return group
            with suppress(Changed):
                return self._write(replace(group, sealed=now), [Change("delete", _OPEN, {})])
            # its row ``open`` may be missing, because it is about to expire
            with suppress(Changed):
                self._write(group, [_open(group)])

    def load(self, task_group_id: str) -> Group | None:
        """Reads the group. Returns None if no task has ever joined it."""
        row = self._table.get(task_group_id, _GROUP)
        if row is None:
            self._cache.remove(task_group_id)
            return None
        group = read(row, _group)
        self._cache.put(task_group_id, group)
        return group

    def _readable(self, task_group_id: str) -> Group | None:
        """Reads the group. Returns None also if its row is corrupt: then the rows of members must do."""
        with suppress(Corrupt):
            return self.load(task_group_id)
        return None

    def members(self, task_group_id: str, after: str, limit: int) -> Sequence[str]:
        """Returns up to ``limit`` taskIds after ``after``, in byte order. Only the last page is short."""
        first = _MEMBER + after if after else _MEMBERS_BEGIN
        found = between(self._table, task_group_id, first, _MEMBERS_END, limit + 1, _member, ["member"])
        return [member for member in found if member][:limit]

    def active(self, task_group_id: str, after: str, limit: int) -> Sequence[ActiveTask]:
        """Returns active tasks: see ``members``. A task with two activations may be there twice."""
        # "." sorts after the "-" before an activation, so all activations of ``after`` are skipped
        first = f"{_ACTIVE}{after}." if after else _ACTIVE
        found = between(self._table, task_group_id, first, _ACTIVE_END, limit, _active_task)
        return [active for active in found if active and active.task_id > after]

    def all_active(
        self, after: str, limit: int, *, also_old: bool = False
    ) -> tuple[Sequence[ActiveTask], str | None]:
        """Returns a page of the active tasks of all groups, and the next ``after``: see ``page``.

        Embedded storage finds the active rows by their state. Rows of version 0.1.0 have no state, so
        ``also_old`` reads all rows.
        """
        conditions = (
            [Condition(KEY, "gt", _ACTIVE), Condition(KEY, "lt", _ACTIVE_END)] if also_old else [_IS_ACTIVE]
        )
        found, next_after = page(self._table, conditions, after, limit, _active_task)
        return [active for active in found if active], next_after

    def _create(self, group: Group, only: ActiveTask) -> Group:
        """Store the new group with its first member. Raises AlreadyExists."""
        values = {
            **_group_values(group),
            "member": only.task_id,
            "since": only.since,
            "state": _ACTIVE_STATE,
            "written": only.written,
        }
        etag = self._table.insert(group.task_group_id, _GROUP, values)
        created = Group(group.task_group_id, group.scheduler_id, group.expires, None, only, True, etag)
        self._cache.put(group.task_group_id, created)
        return created

    def _add(self, rows: Sequence[Change], known: Group, expires: datetime, must_exist: str) -> Group:
        """Write the rows if the row ``must_exist`` exists and the group is still the version ``known``.

        Without an ETag, ``known`` is a new group. Returns the group, which then does not expire before
        ``expires``. If this raises Changed, nothing is written.
        """
        if known.etag and not known.only and known.expires >= expires:
            self._table.batch(known.task_group_id, [_exists(must_exist), *rows])
            return known
        lasting = known if known.expires >= expires else replace(known, expires=expires)
        return self._write(lasting, rows if known.sealed else [_open(lasting), *rows])

    def _write(self, group: Group, beside: Sequence[Change]) -> Group:
        """Write a new group, or its next version, with the changes ``beside`` it. Raises Changed."""
        values = _group_values(group)
        if group.only:
            values |= {"member": "", "state": ""}
            by_key = {change.key: change for change in (*_spread(group, group.only), *beside)}
            beside = [*by_key.values()]
        change = Change("insert", _GROUP, values)
        if group.etag:
            change = Change("merge", _GROUP, values, group.etag)
        [etag, *_] = self._table.batch(group.task_group_id, [change, *beside])
        written = Group(group.task_group_id, group.scheduler_id, group.expires, group.sealed, etag=etag)
        self._cache.put(group.task_group_id, written)
        return written


def _group_values(group: Group) -> dict[str, Value]:
    values: dict[str, Value] = {"schedulerId": group.scheduler_id, "expires": group.expires}
    if group.sealed:
        values["sealed"] = group.sealed
    return values


def _spread(group: Group, only: ActiveTask) -> Sequence[Change]:
    """Returns the rows for the only member, which the row of the group has stood for so far."""
    rows = [_open(group), _member_row(only.task_id, group.expires)]
    return [*rows, _active_row(only, group.expires)] if group.is_only_active else rows


def _exists(key: str) -> Change:
    """Returns a change that makes a batch fail if the row is missing. It changes nothing.

    It names no version, so tasks that join a group at the same time do not make each other fail.
    """
    return Change("merge", key, {})


def _open(group: Group) -> Change:
    return Change("put", _OPEN, {"expires": group.expires})


def _member_row(task_id: str, expires: datetime) -> Change:
    return Change("put", _MEMBER + task_id, {"expires": expires})


def _active_row(active: ActiveTask, expires: datetime) -> Change:
    values: Mapping[str, Value] = {
        "since": active.since,
        "expires": expires,
        "state": _ACTIVE_STATE,
        "written": active.written,
    }
    return Change("put", _active_key(active.task_id, active.activation), values)


def _active_key(task_id: str, activation: int) -> str:
    return f"{_ACTIVE}{task_id}-{activation:04}"


def _group(row: Row) -> Group:
    scheduler_id, expires = properties(row, schedulerId=str, expires=datetime)
    sealed = of_kind(datetime, row.values["sealed"]) if "sealed" in row.values else None
    only = _only_member(row)
    is_active = row.values.get("state") == _ACTIVE_STATE
    return Group(row.partition, scheduler_id, expires, sealed, only, is_active, row.etag)


def _only_member(row: Row) -> ActiveTask | None:
    if not row.values.get("member"):
        return None
    task_id, since = properties(row, member=str, since=datetime)
    return ActiveTask(slugid_in(row.partition), slugid_in(task_id), 0, since, written_in(row))


def _member(row: Row) -> str | None:
    """Returns the member in a row, or None for the row of a group that holds none."""
    if row.key == _GROUP:
        only = row.values.get("member")
        return slugid_in(of_kind(str, only)) if only else None
    return slugid_in(row.key.removeprefix(_MEMBER))


def _active_task(row: Row) -> ActiveTask | None:
    """Returns the active task in a row, or None for the row of a group that holds none."""
    if row.key == _GROUP:
        return _only_member(row) if row.values.get("state") == _ACTIVE_STATE else None
    task_id, _, activation = row.key.removeprefix(_ACTIVE).rpartition("-")
    (since,) = properties(row, since=datetime)
    return ActiveTask(slugid_in(row.partition), slugid_in(task_id), int(activation), since, written_in(row))
