"""The row of this process and the rows of the others: who is alive, who is dead, and what the dead owed.

The rule: before a call writes a task, the row of its process names the task. So when a process dies, its row
names every task that may lack effects. A name too many only costs work. Names stay until the row is written
again, and concurrent calls share one write of the row. A createTask needs no name. It first makes its task a
member of a group, and the rows of member and task say which process wrote them, and in which write.

A process writes its row at least every few seconds (see ``liveness``). If a row has not changed for long, its
process counts as dead, and the process that notices takes over:

1. It puts the names of the dead row into its own row, and says there whom it has inherited.
2. It removes the dead row.
3. It repeats the effects.

So a crash at any point leaves a row that says what must still be done. If two processes take over at the same
time, they only do the same work twice.

The process that was the last to write a task remembers when the task is due. A process that has taken over
reads all active members of groups and all unresolved tasks. It repeats the effects of the members that the
dead process had not settled. For the tasks that no living process was the last to write, it remembers when
they are due. It also finds the tasks that are marked as unpublished. No row of a process names these, because
there may be very many.

What is ugly: a process may stand still for longer than DEAD_AFTER and be alive after all, but its row is gone
then. It writes the row again with its next beat. If a call stands still between the check of the row and its
write, and its process dies right after the write, its events are lost. recovery.md says so.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import itemgetter
from threading import Lock
from typing import TypeVar

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import EVER
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.ports import Changed, Clock, Corrupt
from legacy_queue.services.process.ledger import Ledger, Owed
from legacy_queue.services.process.liveness import BEAT, DEAD_AFTER, TRUSTED_FOR
from legacy_queue.stores import GroupStore, TaskStore
from legacy_queue.stores.group_commit import GroupCommit
from legacy_queue.stores.process_store import NamedTask, ProcessRow, ProcessStore

_PAGE = 1000  # rows
_MAX_CALLS = 100  # calls that share one write of the row
# How many of the last writes of dead processes are taken over, because their names must fit into a row. There
# are more only if an early write has failed for minutes. The later writes have their effects, or the sweeper
# finds what they lack.
_MAX_TAKEN = 5000
_LONG_AGO = timedelta(days=-1)
_NO_TIME = timedelta(0)

Item = TypeVar("Item")


@dataclass(frozen=True)
class _Seen:
    """A row of another process, and since when it has not changed, by the clock of this process."""

    row: ProcessRow
    since: timedelta


class Processes:
    """Keeps the row of this process, watches those of the others, and takes over for the dead.

    Only one thread may call ``tick``. Any thread may call the other methods.
    """

    def __init__(
        self, store: ProcessStore, tasks: TaskStore, groups: GroupStore, ledger: Ledger, clock: Clock
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._groups = groups
        self._ledger = ledger
        self._clock = clock
        # calls that wait for a write of the row, each with names that are not in the ledger yet
        self._writes: GroupCommit[Sequence[NamedTask]] = GroupCommit(self._write, _MAX_CALLS)
        # the names that are certainly in the row of this process, by taskId, and when the row was written
        self._named: dict[str, NamedTask] = {}
        self._written = _LONG_AGO
        # what the row says about the offers of this process: see ``offers``
        self._offers: Mapping[WorkQueue, int] = {}
        # the other living processes, by name, and when their rows were read
        self._others: dict[str, _Seen] = {}
        self._read = _LONG_AGO
        # held while the rows are read, and while this process takes over
        self._reading = Lock()
        # how many other processes have ended or died
        self.departures = 0
        # for each dead process: the number of its last settled write, and the number of the last write of
        # this process that repeats what it owed, None until the members and tasks are read
        self._inherited: dict[str, tuple[int, int | None]] = {}
        self._must_read = False
        # protects ``_named`` and ``_inherited``; never held during an operation of the store
        self._lock = Lock()

    @property
    def name(self) -> str:
        """The name of this process."""
        return self._store.process

    @property
    def waiting(self) -> int:
        """How many calls wait for a write of the row of this process."""
        return self._writes.waiting

    def is_first(self) -> bool:
        """Whether this process has the lowest name of all living ones. Then it does the periodic jobs.

        The first call reads the rows of the others. Raises ServiceUnavailable.
        """
        if self._read == _LONG_AGO:
            self.read_others()
        return all(self.name < name for name in self._others)

    # Calls

    def begin(
        self, task_id: str, since: datetime, task_group_id: str = "", *, needs_name: bool = True
    ) -> Owed:
        """Call this before a write of the task. From now on its effects are safe if this process dies.

        ``since`` must not be later than the transition. ``needs_name``: see the rule above. Afterwards the
        caller must call ``Ledger.close`` or ``Ledger.repeat_later``. After ServiceUnavailable, nothing is
        owed.
        """
        with self._lock:
            owed = self._ledger.open(task_id, since, task_group_id, is_named=needs_name)
            named = self._named.get(task_id)
        is_known = not needs_name or (
            named is not None and named.includes(NamedTask(task_id, since, task_group_id))
        )
        if not (is_known and self._is_within(TRUSTED_FOR, self._written)):
            try:
                self._writes.add([])
            except BaseException:
                self._ledger.close([owed])
                raise
        return owed

    def name_all(self, owed: Sequence[Owed]) -> None:
        """Name the tasks that createTask did not name. From now on, their rows as members may be removed.

        Raises ServiceUnavailable.
        """
        unnamed = [each for each in owed if not each.is_named]
        if not unnamed:
            return
        for each in unnamed:
            each.is_named = True
        try:
            self._writes.add([])
        except BaseException:
            for each in unnamed:
                each.is_named = False
            raise

    def version(self, owed: Owed) -> str:
        """Returns how the row of a task names the version that this write makes: see ``has_events``."""
        return f"{self._store.process}/{owed.number}"

    def number(self, version: str) -> int:
        """Returns the number of the write that made the version, or 0 if another process made it."""
        process, _, number = version.partition("/")
        return int(number) if process == self._store.process else 0

    def has_events(self, version: str) -> bool:
        """Whether the events of this version, which another process wrote, are certainly published.

        Then the events of all versions before it are published too. Costs one or two reads if that process
        has just written the version.
        """
        process, _, number = version.partition("/")
        if not process:
            return True  # 0.1.0 wrote it, and what 0.1.0 owed has become names
        seen = self._others.get(process)
        if seen and int(number) <= seen.row.settled:
            return True
        with suppress(ServiceUnavailable, Corrupt):
            # A dead process's row is removed only when the row of the process that took over names it. So
            # read the dead row first.
            row = self._store.load(process)
            if row:
                return int(number) <= row.settled
            others = self._store.others()
            with self._lock:
                heirs = [*others, self._row()]
            return all(int(number) <= heir.inherited.get(process, int(number)) for heir in heirs)
        return False

    def others(self) -> Sequence[ProcessRow]:
        """Returns the rows of the other living processes, as this process last read them."""
        return [seen.row for seen in self._others.values()]

    # Threads

    def tick(self) -> None:
        """Write the row if it is time. Call this twice a second. Raises ServiceUnavailable."""
        if not self._is_within(BEAT, self._written):
            self._writes.add([])

    def announce(self, offers: Mapping[WorkQueue, int]) -> None:
        """Announce in the row of this process what it has offered. Raises ServiceUnavailable."""
        self._offers = offers
        self._writes.add([])

    def read_others(self, max_age: timedelta = _NO_TIME) -> None:
        """Read the rows of the others, unless that was done within ``max_age``. Take over for the dead.

        Call this at least every READ_EVERY. Raises ServiceUnavailable.
        """
        with self._reading:
            if not self._is_within(max_age, self._read):
                self._read_others(DEAD_AFTER)

    def take_over_all(self) -> None:
        """Take over for all others at once, which the caller knows to be dead. Raises ServiceUnavailable."""
        with self._reading:
            self._read_others(_NO_TIME)

    def _read_others(self, dead_after: timedelta) -> None:
        rows = self._store.others()
        now = self._clock.monotonic()
        if self._read == _LONG_AGO and not rows:
            self._must_read = True  # this process is the only one, so no other remembers when tasks are due
        self._read = now
        seen = {row.process: self._seen(row, now) for row in rows}
        self.departures += len(self._others.keys() - seen.keys())
        dead = [each.row for each in seen.values() if each.row.has_ended or now - each.since >= dead_after]
        for row in dead:
            self._take_over(row)
            del seen[row.process]
            self.departures += 1
        self._others = seen
        if self._must_read or self._ledger.must_read_dues():
            self._read_all()

    def hand_over(self) -> None:
        """Before this process ends, let another take over at once. Raises ServiceUnavailable."""
        if self._written == _LONG_AGO:
            return  # it has served no request, like the parent of forked processes
        with self._lock:
            row = self._row()
        self._store.write(replace(row, has_ended=True))

    def _take_over(self, dead: ProcessRow) -> None:
        self._must_read = True
        with self._lock:
            for process, settled in (*dead.inherited.items(), (dead.process, dead.settled)):
                self._inherited[process] = settled, None
        self._writes.add(dead.names)
        with suppress(Changed):  # it is alive, or another takes over too: then effects are only repeated
            self._store.remove(dead)

    def _seen(self, row: ProcessRow, now: timedelta) -> _Seen:
        seen = self._others.get(row.process)
        return seen if seen and seen.row.etag == row.etag else _Seen(row, now)

    def _row(self, further: Sequence[NamedTask] = ()) -> ProcessRow:
        """Returns the row, with these further names. The caller holds the lock."""
        names, settled = self._ledger.names()
        self._inherited = {
            process: (upto, last)
            for process, (upto, last) in self._inherited.items()
            if last is None or last > settled
        }
        inherited = {process: upto for process, (upto, _) in self._inherited.items()}
        return ProcessRow(self.name, [*names, *further], settled, inherited, self._offers)

    def _write(self, wanted: Sequence[Sequence[NamedTask]]) -> None:
        """Write the row of this process with further names. From then on, this process owes what they say."""
        further = [name for names in wanted for name in names]
        now = self._clock.monotonic()
        with self._lock:
            row = self._row(further)
            names = {name.task_id: name for name in row.names}
            # until the write has succeeded, the stored row may be the old one or the new one
            self._named = {name.task_id: name for name in row.names if name == self._named.get(name.task_id)}
        self._store.write(row)
        with self._lock:
            self._named = names
            self._written = now
        self._ledger.inherit(further)

    def _read_all(self) -> None:
        """Read all active members and unresolved tasks, after a process has died or due times were forgotten.

        Repeats what the dead had not settled and what is unpublished, and notes when tasks are due. It leaves
        out the tasks that a living process was the last to write: that process cares for them.
        """
        self._ledger.forget_dues()
        with self._lock:
            inherited = {process: settled for process, (settled, _) in self._inherited.items()}

        def unsettled(written: str) -> int:
            """Returns the number of the write if it is not settled, otherwise 0."""
            process, _, number = written.partition("/")
            return int(number) if process in inherited and int(number) > inherited[process] else 0

        found = [
            (number, NamedTask(member.task_id, member.since, member.task_group_id))
            for member in (_all(self._groups.all_active) if inherited else ())
            if (number := unsettled(member.written))
        ]
        for task in _all(self._tasks.unsettled):
            process, _, _ = task.written.partition("/")
            if process in self._others:
                continue
            self._ledger.note_due(task.task_id, task.due, self.number(task.written))
            if task.is_unpublished and process != self.name:
                self._ledger.inherit([NamedTask(task.task_id, EVER)], is_marked=True)
            elif number := unsettled(task.written):
                found.append((number, NamedTask(task.task_id, EVER)))
        # before the effects are repeated, because a removed member cannot be found again
        if found:
            found.sort(key=itemgetter(0))
            self._writes.add([name for _, name in found[-_MAX_TAKEN:]])
        with self._lock:
            last = self._ledger.number
            self._inherited |= {process: (settled, last) for process, settled in inherited.items()}
        self._must_read = False

    def _is_within(self, age: timedelta, time: timedelta) -> bool:
        return self._clock.monotonic() - time < age


def _all(read: Callable[[str, int], tuple[Sequence[Item], str | None]]) -> Iterator[Item]:
    """Yields the rows of all pages. Each page is read when it is needed."""
    after: str | None = ""
    while after is not None:
        found, after = read(after, _PAGE)
        yield from found
