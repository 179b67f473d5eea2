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
    NOTHING,
    ExpiringRows,
    between,
    of_kind,
    page,
    properties,
    read,
    slugid_in,
)

_REMEMBERED = 2000  # groups
_MAX_STEPS = 33  # in a batch of 100 changes, each with up to two, and that of the group
_GROUP, _MEMBER, _ACTIVE = "group", "member-", "active-"
_MEMBERS_END, _ACTIVE_END = "member.", "active."  # "." is the character behind "-"
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Sealed(Exception):
    """The group takes no new member."""


@dataclass(frozen=True)
class Group:
    """A task group: one schedulerId, and an expiry no earlier than that of any of its tasks.

    ``active`` of its members were not seen resolved yet. Since it was ``sealed`` it takes no new member.
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
    """A member of a group that was not seen resolved yet, and since when; see ``Task.activation``."""

    task_group_id: str
    task_id: str
    activation: int
    since: datetime


@dataclass(eq=False)
class _Step:
    """What one member changes, first the row of its activation; ``group`` is the group after it, if any.

    ``is_done``: it needs nothing, since it has happened before. ``is_refused``: the group is sealed.
    """

    changes: Sequence[Change]
    expires: datetime = _LONG_AGO
    is_done: bool = False
    is_refused: bool = False
    group: Group | None = None

    @property
    def key(self) -> str:
        return self.changes[0].key

    @property
    def more(self) -> int:
        return -1 if self.changes[0].kind == "delete" else 1

    @property
    def joins(self) -> bool:
        """Whether the second row makes it a member."""
        return len(self.changes) > 1


class GroupStore(ExpiringRows):
    """Groups, their members, and how many of those are active. Expiry removes members too.

    A partition for each group, with three kinds of rows: ``group``, ``member-<taskId>`` for each of its
    tasks, and ``active-<taskId>-<activation>`` while it is so. The row ``group`` counts the active ones, and
    is written together with them: steps of concurrent calls share a batch.
    """

    def __init__(self, table: Table, clock: Clock) -> None:
        self._recent: SharedLruCache[str, Group] = SharedLruCache(_REMEMBERED)
        super().__init__(table, self._recent.remove)
        self._clock = clock
        self._commits = lru_cache(_REMEMBERED)(self._group_commit)

    def join(
        self,
        task_id: str,
        task_group_id: str,
        scheduler_id: str,
        expires: datetime,
        founder: Callable[[], str | None] = lambda: None,
    ) -> Group:
        """Make the task a member, active from run 0 on, and the group live at least until ``expires``.

        The group is created when there is none, with the schedulerId that ``founder`` says, if any. Where it
        has another schedulerId, nothing is changed: the caller compares the group that is returned. Raises
        Sealed, unless the task is a member. Safe to repeat.
        """
        member = Change("put", _MEMBER + task_id, {"expires": expires})
        return self._enter(task_id, 0, Group(task_group_id, scheduler_id, expires), founder, member)

    def activate(self, task_id: str, group: Group, activation: int) -> None:
        """The task is active again, from this run on, in the group, which may be new. Safe to repeat."""
        self._enter(task_id, activation, group)

    def leave(self, task_id: str, task_group_id: str) -> int:
        """Undo ``join`` for a task that did not come into being; see ``end``. Safe to repeat."""
        active = self.end(task_id, task_group_id, 0)
        self._table.delete(task_group_id, _MEMBER + task_id)
        return active

    def end(self, task_id: str, task_group_id: str, activation: int) -> int:
        """The task is not active any more by this activation; how many members are then. Safe to repeat."""
        group = self._step(task_group_id, [Change("delete", _active_key(task_id, activation), {})])
        return group.active if group else 0

    def seal(self, group: Group, now: datetime) -> Group:
        """The group as it is since it was sealed: ``group``, where it has no row yet. Safe to repeat.

        Who joins writes the row of the group too, on its version: so nobody does from here on.
        """
        while True:
            known = self.load(group.task_group_id)
            if known is None:
                self._create(group)
                continue
            if known.sealed:
                return known
            sealed = replace(known, sealed=now, expires=max(known.expires, group.expires))
            with suppress(Changed):
                values = {"sealed": now, "expires": sealed.expires}
                etag = self._table.merge(group.task_group_id, _GROUP, values, known.etag)
                self._recent.put(group.task_group_id, replace(sealed, etag=etag))
                return sealed

    def recall(self, task_group_id: str) -> Group | None:
        """The group as this process saw it last, where it remembers it."""
        return self._recent.get(task_group_id)

    def load(self, task_group_id: str) -> Group | None:
        """The group, if any task ever joined it."""
        row = self._table.get(task_group_id, _GROUP)
        if row is None:
            self._recent.remove(task_group_id)
            return None
        group = read(row, _group)
        self._recent.put(task_group_id, group)
        return group

    def members(self, task_group_id: str, after: str, limit: int) -> Sequence[str]:
        """Up to ``limit`` taskIds greater than ``after``, ordered as bytes: fewer at the end only."""
        return between(self._table, task_group_id, _MEMBER + after, _MEMBERS_END, limit, _member, NOTHING)

    def active(self, task_group_id: str, after: str, limit: int) -> Sequence[ActiveTask]:
        """As ``members``, of the active ones; where a task is so twice, the page may hold it twice."""
        first, end = f"{_ACTIVE}{after}." if after else _ACTIVE, _ACTIVE_END
        return between(self._table, task_group_id, first, end, limit, _active_task)

    def all_active(self, after: str, limit: int) -> tuple[Sequence[ActiveTask], str | None]:
        """A page of the active tasks of all groups, and where to go on: see ``rows.page``."""
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
        """The group with the task active in it; of any schedulerId where no ``founder`` is given."""
        values = {"since": self._clock.now(), "expires": wanted.expires}
        changes = [Change("insert", _active_key(task_id, activation), values), *further]
        while True:
            group = self._recent.get(wanted.task_group_id)
            if group is None or (founder and group.scheduler_id != wanted.scheduler_id):
                group = self.load(wanted.task_group_id)
            found = group or replace(wanted, scheduler_id=(founder and founder()) or wanted.scheduler_id)
            if founder and found.scheduler_id != wanted.scheduler_id:
                return found
            if group is None:
                self._create(wanted)
                continue
            entered = self._step(wanted.task_group_id, changes, wanted.expires)
            if entered:  # else what this process remembered has expired
                return entered

    def _create(self, group: Group) -> None:
        """The group is there; another process may have created it, with another schedulerId."""
        values = {**_counts(group), "schedulerId": group.scheduler_id}
        with suppress(AlreadyExists):
            etag = self._table.insert(group.task_group_id, _GROUP, values)
            self._recent.put(group.task_group_id, replace(group, etag=etag))

    def _step(
        self, task_group_id: str, changes: Sequence[Change], expires: datetime = _LONG_AGO
    ) -> Group | None:
        """The group after the changes of a member; None where there is no group any more."""
        step = _Step(changes, expires)
        self._commits(task_group_id).add(step)
        if step.is_refused:
            raise Sealed
        return step.group

    def _group_commit(self, task_group_id: str) -> GroupCommit[_Step]:
        return GroupCommit(partial(self._write, task_group_id), _MAX_STEPS)

    def _write(self, task_group_id: str, steps: Sequence[_Step]) -> None:
        """All of the steps, in one batch, unless a row is changed more than once."""
        while steps:
            first = {step.key: step for step in reversed(steps)}
            self._write_batch(task_group_id, [step for step in steps if first[step.key] is step])
            steps = [step for step in steps if first[step.key] is not step]

    def _write_batch(self, task_group_id: str, steps: Sequence[_Step]) -> None:
        """The steps in one batch; where it fails, those that have happened before are left out."""
        group = self._recent.get(task_group_id) or self.load(task_group_id)
        while group:
            before, changes = group, list[Change]()
            if group.sealed:
                self._refuse(task_group_id, steps)
            for step in steps:
                if not (step.is_done or step.is_refused):
                    expires = max(group.expires, step.expires)
                    group = replace(group, active=group.active + step.more, expires=expires)
                    changes += step.changes
                step.group = group
            if not changes:
                return
            changes.insert(0, Change("merge", _GROUP, _counts(group), before.etag))
            try:
                etag = self._table.batch(task_group_id, changes)[0]
            except Changed:
                group = self.load(task_group_id)
                if group and group.etag == before.etag:  # so it is not the group that has changed
                    for step in steps:
                        is_active = self._table.get(task_group_id, step.key) is not None
                        step.is_done = is_active == (step.more > 0)
                continue
            self._recent.put(task_group_id, replace(group, etag=etag))
            return
        for step in steps:  # the group has expired
            step.group = None

    def _refuse(self, task_group_id: str, steps: Sequence[_Step]) -> None:
        """Of the group, which is sealed, those that are to join and are no members."""
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
