"""Task groups."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache, partial

from legacy_queue.ports import AlreadyExists, Changed, Clock
from legacy_queue.ports.table import KEY, Change, Condition, Row, Table, Value
from legacy_queue.stores.group_commit import GroupCommit
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
_MAX_STEPS = 33  # in a batch of 100 changes, each with up to two, and that of the group
_GROUP, _MEMBER, _ACTIVE = "group", "member-", "active-"
_MEMBERS_END, _ACTIVE_END = "member.", "active."  # "." is the character behind "-"
_NO_EXPIRY = datetime.min.replace(tzinfo=UTC)


class Sealed(Exception):
    """The group takes no new member."""


@dataclass(frozen=True)
class Group:
    """A task group: one schedulerId, and an expiry no earlier than that of any of its tasks.

    ``active`` is the number of members not recorded as resolved. A ``sealed`` group takes no new member.
    ``etag`` is the version that a write names.
    """

    task_group_id: str
    scheduler_id: str
    expires: datetime
    active: int = 0
    sealed: datetime | None = None
    etag: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True)
class ActiveTask:
    """A member that is not recorded as resolved, and since when it is active; see ``Task.activation``."""

    task_group_id: str
    task_id: str
    activation: int
    since: datetime


@dataclass(eq=False)
class _Step:
    """The changes of one member, first the row of its activation; ``group`` is the group after them, if any.

    ``is_done``: the changes were made before. ``is_refused``: the group is sealed.
    """

    changes: Sequence[Change]
    expires: datetime = _NO_EXPIRY
    is_done: bool = False
    is_refused: bool = False
    group: Group | None = None

    @property
    def key(self) -> str:
        return self.changes[0].key

    @property
    def delta(self) -> int:
        """How the number of active members changes."""
        return -1 if self.changes[0].kind == "delete" else 1

    @property
    def joins(self) -> bool:
        """Whether the second row makes it a member."""
        return len(self.changes) > 1


class GroupStore(ExpiringRows):
    """Groups, their members, and the number of active members. Expiry removes members too.

    A partition for each group, with three kinds of rows: ``group``, ``member-<taskId>`` for each of its
    tasks, and ``active-<taskId>-<activation>`` for each active task. The row ``group`` counts the active
    tasks and is written in one batch with them: concurrent calls share a batch.
    """

    def __init__(self, table: Table, clock: Clock) -> None:
        self._cache: SharedLruCache[str, Group] = SharedLruCache(_MAX_CACHED)
        super().__init__(table, self._cache.remove)
        self._clock = clock
        self._commits = lru_cache(_MAX_CACHED)(self._group_commit)

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
        member = Change("put", _MEMBER + task_id, {"expires": expires})
        return self._enter(task_id, 0, Group(task_group_id, scheduler_id, expires), founder, member)

    def activate(self, task_id: str, group: Group, activation: int) -> None:
        """Make the task active again, from this run on; creates a missing group. Safe to repeat."""
        self._enter(task_id, activation, group)

    def leave(self, task_id: str, task_group_id: str) -> int:
        """Undo ``join`` for a task that was not created; returns as ``end``. Safe to repeat."""
        active = self.end(task_id, task_group_id, 0)
        self._table.delete(task_group_id, _MEMBER + task_id)
        return active

    def end(self, task_id: str, task_group_id: str, activation: int) -> int:
        """End this activation of the task; returns how many members are active then. Safe to repeat."""
        group = self._step(task_group_id, [Change("delete", _active_key(task_id, activation), {})])
        return group.active if group else 0

    def seal(self, group: Group, now: datetime) -> Group:
        """Seal the group, and create it as ``group`` where it is missing; the sealed group. Safe to repeat.

        A join writes the row of the group too, on its version: so no task joins after this returns.
        """
        while True:
            stored = self.load(group.task_group_id)
            if stored is None:
                self._create(group)
                continue
            if stored.sealed:
                return stored
            sealed = replace(stored, sealed=now, expires=max(stored.expires, group.expires))
            with suppress(Changed):
                values = {"sealed": now, "expires": sealed.expires}
                etag = self._table.merge(group.task_group_id, _GROUP, values, stored.etag)
                self._cache.put(group.task_group_id, replace(sealed, etag=etag))
                return sealed

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
        first, end = f"{_ACTIVE}{after}." if after else _ACTIVE, _ACTIVE_END
        return between(self._table, task_group_id, first, end, limit, _active_task)

    def all_active(self, after: str, limit: int) -> tuple[Sequence[ActiveTask], str | None]:
        """A page of the active tasks of all groups, and the next ``after``: see ``rows.page``."""
        conditions = [Condition(KEY, "gt", _ACTIVE), Condition(KEY, "lt", _ACTIVE_END)]
        return page(self._table, conditions, after, limit, _active_task)

    def _enter(
        self,
        task_id: str,
        activation: int,
        wanted: Group,
        founder: Callable[[], str | None] | None = None,
        *further: Change,
    ) -> Group:
        """The group with the task active in it. Without ``founder``, its schedulerId is not compared."""
        values = {"since": self._clock.now(), "expires": wanted.expires}
        changes = [Change("insert", _active_key(task_id, activation), values), *further]
        while True:
            group = self._cache.get(wanted.task_group_id)
            if group is None or (founder and group.scheduler_id != wanted.scheduler_id):
                group = self.load(wanted.task_group_id)
            expected = group or replace(wanted, scheduler_id=(founder and founder()) or wanted.scheduler_id)
            if founder and expected.scheduler_id != wanted.scheduler_id:
                return expected
            if group is None:
                self._create(wanted)
                continue
            entered = self._step(wanted.task_group_id, changes, wanted.expires)
            if entered:  # otherwise the cached group has expired
                return entered

    def _create(self, group: Group) -> None:
        """Create the group, unless another process does at the same time, maybe with another schedulerId."""
        values = {**_counts(group), "schedulerId": group.scheduler_id}
        with suppress(AlreadyExists):
            etag = self._table.insert(group.task_group_id, _GROUP, values)
            self._cache.put(group.task_group_id, replace(group, etag=etag))

    def _step(
        self, task_group_id: str, changes: Sequence[Change], expires: datetime = _NO_EXPIRY
    ) -> Group | None:
        """The group after the changes of a member; None where the group has expired."""
        step = _Step(changes, expires)
        self._commits(task_group_id).add(step)
        if step.is_refused:
            raise Sealed
        return step.group

    def _group_commit(self, task_group_id: str) -> GroupCommit[_Step]:
        return GroupCommit(partial(self._write, task_group_id), _MAX_STEPS)

    def _write(self, task_group_id: str, steps: Sequence[_Step]) -> None:
        """Write all steps in one batch, or in several where a row is changed more than once."""
        while steps:
            first = {step.key: step for step in reversed(steps)}
            self._write_batch(task_group_id, [step for step in steps if first[step.key] is step])
            steps = [step for step in steps if first[step.key] is not step]

    def _write_batch(self, task_group_id: str, steps: Sequence[_Step]) -> None:
        """Write the steps in one batch. If it fails, steps that were made before are left out."""
        group = self._cache.get(task_group_id) or self.load(task_group_id)
        while group:
            before, changes = group, list[Change]()
            if group.sealed:
                self._refuse(task_group_id, steps)
            for step in steps:
                if not (step.is_done or step.is_refused):
                    expires = max(group.expires, step.expires)
                    group = replace(group, active=group.active + step.delta, expires=expires)
                    changes += step.changes
                step.group = group
            if not changes:
                return
            changes.insert(0, Change("merge", _GROUP, _counts(group), before.etag))
            try:
                etag = self._table.batch(task_group_id, changes)[0]
            except Changed:
                group = self.load(task_group_id)
                if group and group.etag == before.etag:  # so a row of a step made the batch fail
                    for step in steps:
                        is_active = self._table.get(task_group_id, step.key) is not None
                        step.is_done = is_active == (step.delta > 0)
                continue
            self._cache.put(task_group_id, replace(group, etag=etag))
            return
        for step in steps:  # the group has expired
            step.group = None

    def _refuse(self, task_group_id: str, steps: Sequence[_Step]) -> None:
        """Refuse the steps that would add a new member to a sealed group."""
        for step in steps:
            step.is_refused = step.joins and self._table.get(task_group_id, step.changes[1].key) is None


def _active_key(task_id: str, activation: int) -> str:
    return f"{_ACTIVE}{task_id}-{activation:04}"


def _counts(group: Group) -> dict[str, Value]:
    return {"active": group.active, "expires": group.expires}


def _group(row: Row) -> Group:
    scheduler_id, expires, active = properties(row, schedulerId=str, expires=datetime, active=int)
    sealed = of_kind(datetime, row.values["sealed"]) if "sealed" in row.values else None
    return Group(row.partition, scheduler_id, expires, active, sealed, row.etag)


def _member(row: Row) -> str:
    return slugid_in(row.key.removeprefix(_MEMBER))


def _active_task(row: Row) -> ActiveTask:
    task_id, _, activation = row.key.removeprefix(_ACTIVE).rpartition("-")
    (since,) = properties(row, since=datetime)
    return ActiveTask(slugid_in(row.partition), slugid_in(task_id), int(activation), since)
