"""Task groups."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, NamedTuple

from legacy_queue.ports import AlreadyExists, Changed, Clock
from legacy_queue.ports.table import KEY, Change, Condition, Row, Table, Value
from legacy_queue.stores.group_commit import GroupCommit
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
_MAX_STEPS = 33  # in a batch of 100 changes, each with up to two, and that of the group
_GROUP, _MEMBER, _ACTIVE = "group", "member-", "active-"
_MEMBERS_END, _ACTIVE_END = "member.", "active."  # "." is the character behind "-"


@dataclass(frozen=True)
class Group:
    """A task group: one schedulerId, and an expiry no earlier than that of any of its tasks.

    ``active`` of its members were not seen resolved yet.
    """

    task_group_id: str
    scheduler_id: str
    expires: datetime
    active: int = 0


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


@dataclass(eq=False)
class _Step:
    """A change of one member, and what came of it: the group after it, None where there is none.

    ``is_done``: it needs nothing, since it has happened before.
    """

    kind: Literal["join", "activate", "end"]
    task_id: str
    activation: int
    expires: datetime
    is_done: bool = False
    group: Group | None = None

    @property
    def key(self) -> str:
        return _active_key(self.task_id, self.activation)

    def changes(self, now: datetime) -> list[Change]:
        if self.kind == "end":
            return [Change("delete", self.key, {})]
        active = Change("insert", self.key, {"since": now, "expires": self.expires})
        if self.kind == "activate":
            return [active]
        return [active, Change("put", _MEMBER + self.task_id, {"expires": self.expires})]


class GroupStore(ExpiringRows):
    """Groups, their members, and how many of those are active. Expiry removes members too.

    A partition for each group, with three kinds of rows: ``group``, ``member-<taskId>`` for each of its
    tasks, and ``active-<taskId>-<activation>`` while it is so. The row ``group`` counts the active ones, and
    is written together with them: steps of concurrent calls share a batch.
    """

    def __init__(self, table: Table, clock: Clock) -> None:
        super().__init__(table)
        self._clock = clock
        self._recent: Recent[str, _Stored] = Recent(_REMEMBERED)
        self._commits: Recent[str, GroupCommit[_Step]] = Recent(_REMEMBERED)

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
        has another schedulerId, nothing is changed: the caller compares the group that is returned. Safe to
        repeat.
        """
        while True:
            stored = self._recent.get(task_group_id)
            if stored is None or stored.group.scheduler_id != scheduler_id:
                stored = self._read(task_group_id)
            if stored is None:
                group = Group(task_group_id, founder() or scheduler_id, expires)
                if group.scheduler_id != scheduler_id:
                    return group
                if not self._create(group):
                    continue
            elif stored.group.scheduler_id != scheduler_id:
                return stored.group
            joined = self._step(task_group_id, _Step("join", task_id, 0, expires))
            if joined:  # else what this process remembered has expired
                return joined

    def leave(self, task_id: str, task_group_id: str) -> int:
        """Undo ``join`` for a task that did not come into being; see ``end``. Safe to repeat."""
        active = self.end(task_id, task_group_id, 0)
        self._table.delete(task_group_id, _MEMBER + task_id)
        return active

    def activate(self, task_id: str, group: Group, activation: int) -> None:
        """The task is active again, from this run on, in the group, which may be new. Safe to repeat."""
        while True:
            if not (self._recent.get(group.task_group_id) or self._read(group.task_group_id)):
                self._create(group)
            if self._step(group.task_group_id, _Step("activate", task_id, activation, group.expires)):
                return

    def end(self, task_id: str, task_group_id: str, activation: int) -> int:
        """The task is not active any more by this activation; how many members are then. Safe to repeat."""
        group = self._step(task_group_id, _Step("end", task_id, activation, self._clock.now()))
        return group.active if group else 0

    def load(self, task_group_id: str) -> Group | None:
        """The group, if any task ever joined it."""
        stored = self._read(task_group_id)
        return stored.group if stored else None

    def members(self, task_group_id: str, after: str, limit: int) -> Sequence[str]:
        """Up to ``limit`` taskIds greater than ``after``, ordered as bytes: fewer at the end only."""
        return between(self._table, task_group_id, _MEMBER + after, _MEMBERS_END, limit, _member, NOTHING)

    def all_active(self, after: str, limit: int) -> ActivePage:
        """Up to ``limit`` active tasks of all groups, from where ``after`` says, "" being the beginning."""
        conditions = [Condition(KEY, "gt", _ACTIVE), Condition(KEY, "lt", _ACTIVE_END)]
        found = page(self._table, conditions, after, limit)
        return ActivePage([*readable(found.rows, _active_task)], found.after)

    def _create(self, group: Group) -> bool:
        """False where another process was faster: its schedulerId may be another."""
        values: dict[str, Value] = {
            "expires": group.expires,
            "schedulerId": group.scheduler_id,
            "active": group.active,
        }
        try:
            etag = self._table.insert(group.task_group_id, _GROUP, values)
        except AlreadyExists:
            return False
        self._recent.put(group.task_group_id, _Stored(group, etag))
        return True

    def _step(self, task_group_id: str, step: _Step) -> Group | None:
        """The group after the step; None where there is no group any more."""
        commits = self._commits.get(task_group_id)
        if commits is None:
            commits = GroupCommit(
                lambda steps: self._write(task_group_id, steps), lambda _: 1, _MAX_STEPS, _MAX_STEPS
            )
            self._commits.put(task_group_id, commits)
        commits.add([step])
        return step.group

    def _write(self, task_group_id: str, steps: Sequence[_Step]) -> None:
        """All of the steps, in one batch, unless a row is changed more than once."""
        while steps:
            first = {step.key: step for step in reversed(steps)}
            self._write_batch(task_group_id, [step for step in steps if first[step.key] is step])
            steps = [step for step in steps if first[step.key] is not step]

    def _write_batch(self, task_group_id: str, steps: Sequence[_Step]) -> None:
        """The steps in one batch; where it fails, those that have happened before are left out."""
        stored = self._recent.get(task_group_id)
        while True:
            stored = stored or self._read(task_group_id)
            if stored is None:  # it has expired
                for step in steps:
                    step.group = None
                return
            group = stored.group
            for step in steps:
                if not step.is_done:
                    group = _after(group, step)
                step.group = group
            changes = _batch(steps, group, stored, self._clock.now())
            if not changes:
                return
            try:
                etag = self._table.batch(task_group_id, changes)[0]
            except Changed:
                before, stored = stored, self._read(task_group_id)
                if stored and stored.etag == before.etag:  # so it is not the group that has changed
                    self._leave_out_done(task_group_id, steps)
                continue
            self._recent.put(task_group_id, _Stored(group, etag))
            return

    def _leave_out_done(self, task_group_id: str, steps: Sequence[_Step]) -> None:
        for step in steps:
            is_active = self._table.get(task_group_id, step.key) is not None
            step.is_done = is_active == (step.kind != "end")

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


def _after(group: Group, step: _Step) -> Group:
    if step.kind == "end":
        return replace(group, active=group.active - 1)
    return replace(group, active=group.active + 1, expires=max(group.expires, step.expires))


def _batch(steps: Sequence[_Step], group: Group, stored: _Stored, now: datetime) -> list[Change]:
    changes = [change for step in steps if not step.is_done for change in step.changes(now)]
    head = Change("merge", _GROUP, {"active": group.active, "expires": group.expires}, stored.etag)
    return [head, *changes] if changes else []


def _stored(row: Row) -> _Stored:
    scheduler_id, expires, active = (row.values[name] for name in ("schedulerId", "expires", "active"))
    group = Group(row.partition, of_kind(str, scheduler_id), of_kind(datetime, expires), of_kind(int, active))
    return _Stored(group, row.etag)


def _member(row: Row) -> str:
    return slugid_in(row.key.removeprefix(_MEMBER))


def _active_task(row: Row) -> ActiveTask:
    task_id, _, activation = row.key.removeprefix(_ACTIVE).rpartition("-")
    since = of_kind(datetime, row.values["since"])
    return ActiveTask(slugid_in(row.partition), slugid_in(task_id), int(activation), since)
