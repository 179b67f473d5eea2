"""Task groups."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from legacy_queue.ports import Changed, Clock
from legacy_queue.ports.table import KEY, Change, Condition, Row, Table, Value
from legacy_queue.stores.lru_cache import SharedLruCache
from legacy_queue.stores.rows import (
    KEYS_ONLY,
    ExpiringRows,
    between,
    of_kind,
    page,
    properties,
    read,
    slugid_in,
)

_MAX_CACHED = 2000  # groups
_GROUP = "group"
_OPEN = "open"
_MEMBER = "member-"
_ACTIVE = "active-"
_ACTIVE_STATE = "active"
_MEMBERS_END = "member."
_ACTIVE_END = "active."  # "." is the character behind "-"


class Sealed(Exception):
    """The group takes no new member."""


@dataclass(frozen=True)
class Group:
    """A task group: one schedulerId, and an expiry no earlier than that of any of its tasks.

    A ``sealed`` group takes no new member. ``etag`` is the version that a write names.
    """

    task_group_id: str
    scheduler_id: str
    expires: datetime
    sealed: datetime | None = None
    etag: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True)
class ActiveTask:
    """A member that is not recorded as resolved, and since when it is active; see ``Task.activation``."""

    task_group_id: str
    task_id: str
    activation: int
    since: datetime


class GroupStore(ExpiringRows):
    """Groups, their members, and the active ones of these. Expiry removes members too.

    A partition for each group, with four kinds of rows: ``group``, ``open`` until the group is sealed,
    ``member-<taskId>`` for each of its tasks, and ``active-<taskId>-<activation>`` for each active task.

    Rows of members are written in one batch with a merge of nothing into ``open``, or ``group``: it fails
    where that row is missing, and so no task joins a group that another process has sealed or removed
    meanwhile. The merge names no version, so that concurrent joins do not make each other fail.
    """

    def __init__(self, table: Table, clock: Clock) -> None:
        self._cache: SharedLruCache[str, Group] = SharedLruCache(_MAX_CACHED)
        super().__init__(table, self._cache.remove)
        self._clock = clock

    def join(
        self,
        task_id: str,
        task_group_id: str,
        scheduler_id: str,
        expires: datetime,
        founder: Callable[[], str | None] = lambda: None,
    ) -> Group:
        """Make the task a member, active from run 0 on, and the group expire no earlier than ``expires``.

        A missing group is created, with the schedulerId that ``founder`` returns, if any. Where the group has
        another schedulerId, nothing is changed: the caller compares the returned group. Raises Sealed, unless
        the task is a member. Safe to repeat.
        """
        wanted = Group(task_group_id, scheduler_id, expires)
        member = Change("put", _MEMBER + task_id, {"expires": expires})
        while True:
            group = self._cache.get(task_group_id)
            # a cached schedulerId may be that of an expired group: a refusal needs the row
            if group is None or group.scheduler_id != scheduler_id:
                group = self.load(task_group_id)
            known = group.scheduler_id if group else founder()
            if known not in (None, scheduler_id):
                return group or replace(wanted, scheduler_id=known)
            # a member of a sealed group may join again, and is not refused
            rejoins = group and group.sealed and self._table.get(task_group_id, member.key)
            if group and group.sealed and not rejoins:
                raise Sealed
            entered = self._enter(group or wanted, wanted, task_id, 0, _GROUP if rejoins else _OPEN, member)
            if entered:
                return entered

    def activate(self, task_id: str, group: Group, activation: int) -> None:
        """Make the task active again, from this run on; creates a missing group. Safe to repeat."""
        while True:
            known = self._cache.get(group.task_group_id) or self.load(group.task_group_id) or group
            if self._enter(known, group, task_id, activation, _GROUP):
                return

    def leave(self, task_id: str, task_group_id: str) -> None:
        """Undo ``join`` for a task that was not created. Safe to repeat."""
        self.end(task_id, task_group_id, 0)
        self._table.delete(task_group_id, _MEMBER + task_id)

    def end(self, task_id: str, task_group_id: str, activation: int) -> None:
        """End this activation of the task. Safe to repeat."""
        self._table.delete(task_group_id, _active_key(task_id, activation))

    def is_active(self, task_group_id: str) -> bool:
        """Whether any member is active. Of two that ask after an end of theirs, the later sees both ends."""
        return bool(self.active(task_group_id, "", 1))

    def seal(self, group: Group, now: datetime) -> Group:
        """Seal the group, and create it as ``group`` where it is missing; the sealed group. Safe to repeat.

        No task joins after this returns.
        """
        while True:
            stored = self.load(group.task_group_id)
            if stored and stored.sealed:
                return stored
            known = stored or group
            sealed = replace(known, sealed=now, expires=max(known.expires, group.expires))
            with suppress(Changed):
                return self._write(sealed, [Change("delete", _OPEN, {})] if stored else [])
            if stored:  # or else its row ``open`` may be missing, since it is about to expire
                with suppress(Changed):
                    self._write(stored, [_open(stored)])

    def recall(self, task_group_id: str) -> Group | None:
        """The cached group, which may be outdated."""
        return self._cache.get(task_group_id)

    def load(self, task_group_id: str) -> Group | None:
        """The group as it is now, if any task ever joined it."""
        row = self._table.get(task_group_id, _GROUP)
        if row is None:
            self._cache.remove(task_group_id)
            return None
        group = read(row, _group)
        self._cache.put(task_group_id, group)
        return group

    def members(self, task_group_id: str, after: str, limit: int) -> Sequence[str]:
        """Up to ``limit`` taskIds behind ``after``, ordered as bytes. Only the last page is short."""
        return between(self._table, task_group_id, _MEMBER + after, _MEMBERS_END, limit, _member, KEYS_ONLY)

    def active(self, task_group_id: str, after: str, limit: int) -> Sequence[ActiveTask]:
        """As ``members``, the active tasks. A task with two activations may be there twice."""
        # the "." is behind the "-" before an activation: all activations of ``after`` are skipped
        first = f"{_ACTIVE}{after}." if after else _ACTIVE
        end = _ACTIVE_END
        return between(self._table, task_group_id, first, end, limit, _active_task)

    def all_active(
        self, after: str, limit: int, *, also_old: bool = True
    ) -> tuple[Sequence[ActiveTask], str | None]:
        """A page of the active tasks of all groups, and the next ``after``: see ``rows.page``.

        Rows of version 0.1.0 have no state, by which embedded storage finds the others among the members:
        ``also_old`` reads all rows.
        """
        conditions = [Condition(KEY, "gt", _ACTIVE), Condition(KEY, "lt", _ACTIVE_END)]
        if not also_old:
            conditions.append(Condition("state", "eq", _ACTIVE_STATE))
        return page(self._table, conditions, after, limit, _active_task)

    def _enter(
        self, group: Group, wanted: Group, task_id: str, activation: int, required: str, *further: Change
    ) -> Group | None:
        """The group, which lasts as long as ``wanted``, with the task active in it.

        None where another process has changed it: it is not as ``group``, or has no row ``required``.
        """
        values: Mapping[str, Value] = {
            "since": self._clock.now(),
            "expires": wanted.expires,
            "state": _ACTIVE_STATE,
        }
        rows = [Change("put", _active_key(task_id, activation), values), *further]
        try:
            if group.etag and group.expires >= wanted.expires:
                self._table.batch(group.task_group_id, [Change("merge", required, {}), *rows])
                return group
            lasting = replace(group, expires=wanted.expires)  # a new group is ``wanted`` itself
            return self._write(lasting, rows if group.sealed else [_open(lasting), *rows])
        except Changed:
            self._cache.remove(group.task_group_id)
            return None

    def _write(self, group: Group, beside: Sequence[Change]) -> Group:
        """Write the group over its version, or as a new one, with the changes ``beside``; raises Changed."""
        values: dict[str, Value] = {"schedulerId": group.scheduler_id, "expires": group.expires}
        if group.sealed:
            values["sealed"] = group.sealed
        change = Change("insert", _GROUP, values)
        if group.etag:
            change = Change("merge", _GROUP, values, group.etag)
        written = replace(group, etag=self._table.batch(group.task_group_id, [change, *beside])[0])
        self._cache.put(group.task_group_id, written)
        return written


def _open(group: Group) -> Change:
    return Change("put", _OPEN, {"expires": group.expires})


def _active_key(task_id: str, activation: int) -> str:
    return f"{_ACTIVE}{task_id}-{activation:04}"


def _group(row: Row) -> Group:
    scheduler_id, expires = properties(row, schedulerId=str, expires=datetime)
    sealed = of_kind(datetime, row.values["sealed"]) if "sealed" in row.values else None
    return Group(row.partition, scheduler_id, expires, sealed, row.etag)


def _member(row: Row) -> str:
    return slugid_in(row.key.removeprefix(_MEMBER))


def _active_task(row: Row) -> ActiveTask:
    task_id, _, activation = row.key.removeprefix(_ACTIVE).rpartition("-")
    (since,) = properties(row, since=datetime)
    return ActiveTask(slugid_in(row.partition), slugid_in(task_id), int(activation), since)
