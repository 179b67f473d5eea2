"""What this process owes to which task, and when it must look at a task: in memory.

The rule: each write of a task gets a number, before it is made, and stays *open* until all its effects are
applied. So "are the effects of this version applied?" has an exact answer: no open write has its number. And
all writes below the first open one are *settled*: that single number, in the row of this process, says it to
the others.

An open write is *under way* while a call or the resolver works on it. If that fails, it is *behind*: the
resolver repeats its effects after a while. While the broker is away, there may be very many of these. Then
the rows of their tasks are *marked*, where any process finds the mark; so they no longer hold back what is
settled, and the row of this process does not name them.

When a task is due, its own row says. This process remembers the time for the tasks that it wrote last, and
looks at the task then. A look too early or too many is harmless: it finds that the task is not due.

What is ugly: a heap of times keeps outdated entries, since a heap cannot remove one. Whoever pops an entry
asks the dictionaries whether it still counts.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue
from threading import Condition, Lock

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import EVER
from legacy_queue.ports import Clock
from legacy_queue.stores.process_store import Name

_NO_DELAY = timedelta(0)
_MAX_DUES = 100_000  # tasks whose times this process remembers
_MAX_OUTDATED = 1000  # entries of the heap, beside as many as are in use
# So many writes may be open before a call that ends a task waits: each write of the row names all of them.
_MAX_OPEN = 500
# How long it waits, in seconds.
_WAIT_FOR_ROOM = 20.0
# So many due tasks are handed to the resolver at once: what their ends cause goes before further ends.
_MAX_READY = 100


@dataclass(eq=False)
class Owed:
    """One write of this process, or one that it has taken over from a dead process, and its effects."""

    number: int
    task_id: str
    # effects of transitions since then may be missing
    since: datetime
    # the group that the task joins while it is created
    task_group_id: str = ""
    # whether the row of this process names the task: a member of a group is found by its own row
    is_named: bool = True
    # all effects of the task may be missing: those of the version before, too, or what a dead process owed
    repeats_all: bool = False
    # no event is missing, only other effects
    is_published: bool = False
    # the row of the task says that its events are unpublished
    is_marked: bool = False
    # how often it was tried to repeat the effects
    tries: int = 0
    # when to repeat them next; None while a call or the resolver works on them
    repeat_at: datetime | None = None


@dataclass(frozen=True)
class Look:
    """A task that the resolver must look at: to repeat what is ``owed``, and because it may be due."""

    task_id: str
    owed: Sequence[Owed] = ()
    is_due: bool = False

    @property
    def since(self) -> datetime | None:
        """Effects of transitions since then are missing; None if no effects are."""
        return min((EVER if owed.repeats_all else owed.since for owed in self.owed), default=None)

    @property
    def oldest(self) -> datetime:
        """When the first write began that has missing effects."""
        return min((owed.since for owed in self.owed), default=EVER)

    @property
    def task_group_id(self) -> str:
        return next((owed.task_group_id for owed in self.owed if owed.task_group_id), "")

    @property
    def is_published(self) -> bool:
        return all(owed.is_published for owed in self.owed)

    @property
    def is_marked(self) -> bool:
        return bool(self.owed) and all(owed.is_marked for owed in self.owed)

    @property
    def tries(self) -> int:
        return max((owed.tries for owed in self.owed), default=0)


class Ledger:
    """The writes of this process that lack effects, and when tasks are due.

    After ``open`` the caller calls ``close`` or ``repeat_later`` once; after ``next_look``, as well.
    """

    def __init__(self, clock: Clock, max_dues: int = _MAX_DUES) -> None:
        self._clock = clock
        self._max_dues = max_dues
        self._lock = Lock()
        # calls wait for this until fewer writes are open
        self._has_room = Condition(self._lock)
        # the number of the last write
        self._number = 0
        # writes with missing effects, by number, in the order of their numbers
        self._open: dict[int, Owed] = {}
        # the same, of tasks whose rows are marked
        self._marked: dict[int, Owed] = {}
        # by taskId: those of both that are not under way
        self._behind: dict[str, list[Owed]] = {}
        # by taskId: when the task is due, and the number of the write that said so, 0 if none of this process
        self._dues: dict[str, tuple[datetime, int]] = {}
        # times that are later than this are forgotten; None if none are
        self._forgotten: datetime | None = None
        # when to ask for which taskId; see "What is ugly"
        self._heap: list[tuple[datetime, str]] = []
        # taskIds that the resolver has to look at; "" ends a wait for one
        self._ready: SimpleQueue[str] = SimpleQueue()

    def in_memory(self) -> int:
        """How many writes are open, and how many tasks have a time."""
        return len(self._open) + len(self._marked) + len(self._dues)

    def late(self) -> int:
        """How many tasks wait for the resolver."""
        now = self._clock.now()
        with self._lock:
            return self._ready.qsize() + sum(when <= now for when, _ in self._heap)

    @property
    def ready(self) -> int:
        """How many tasks were handed to the resolver, which has not begun with them."""
        return self._ready.qsize()

    # What is owed

    def wait_for_room(self) -> None:
        """Call this before a call ends a task: the resolver applies effects of that, and may be far behind.

        Raises ServiceUnavailable if it does not catch up soon.
        """
        if len(self._open) < _MAX_OPEN:
            return
        with self._has_room:
            if not self._has_room.wait_for(lambda: len(self._open) < _MAX_OPEN, _WAIT_FOR_ROOM):
                raise ServiceUnavailable("this server still has too much to do for earlier calls, try again")

    def open(self, task_id: str, since: datetime, task_group_id: str = "", *, is_named: bool = True) -> Owed:
        """A write begins. ``since`` is no later than its transition."""
        with self._lock:
            self._number += 1
            owed = Owed(self._number, task_id, since, task_group_id, is_named)
            self._open[owed.number] = owed
            return owed

    def inherit(self, names: Iterable[Name], *, is_marked: bool = False) -> None:
        """What a dead process owed is repeated at once. ``is_marked``: the row of the task says so."""
        with self._lock:
            for name in names:
                behind = self._behind.get(name.task_id, ())
                if any(owed.repeats_all and owed.task_group_id == name.task_group_id for owed in behind):
                    continue  # the reading of the tasks has failed half-way, and is repeated
                self._number += 1
                owed = Owed(self._number, name.task_id, name.since, name.task_group_id, repeats_all=True)
                self._open[owed.number] = owed
                if is_marked:
                    self._mark(owed)
                self._put_behind(owed, _NO_DELAY)

    def close(self, owed: Sequence[Owed]) -> None:
        """All effects are applied, or nothing was written."""
        with self._lock:
            was_full = len(self._open) >= _MAX_OPEN
            for each in owed:
                self._open.pop(each.number, None)
                self._marked.pop(each.number, None)
            if was_full and len(self._open) < _MAX_OPEN:
                self._has_room.notify_all()

    def repeat_later(
        self,
        owed: Sequence[Owed],
        delay: timedelta = _NO_DELAY,
        *,
        is_published: bool | None = None,
        is_marked: bool = False,
        tries: int = 0,
    ) -> None:
        """Effects are missing: they are repeated after ``delay``.

        ``is_published`` is None if that has not changed. Once a task is marked, it is until nothing is owed.
        """
        with self._lock:
            for each in owed:
                each.tries = tries
                if is_published is not None:
                    each.is_published = is_published
                if is_marked and not each.is_marked:
                    self._mark(each)
                self._put_behind(each, delay)

    def is_applied(self, number: int) -> bool:
        """Whether the events of the write with this number were published."""
        owed = self._open.get(number) or self._marked.get(number)
        return owed is None or owed.is_published

    def names(self) -> tuple[list[Name], int]:
        """What the row of this process must name, and up to which number its writes are settled."""
        with self._lock:
            names: dict[str, Name] = {}
            for owed in self._open.values():
                if owed.is_named:
                    name = Name(owed.task_id, owed.since, owed.task_group_id)
                    names[name.task_id] = _both(name, names.get(name.task_id))
            return [*names.values()], next(iter(self._open), self._number + 1) - 1

    @property
    def number(self) -> int:
        """The number of the last write."""
        return self._number

    # When tasks are due

    def note_due(self, task_id: str, due: datetime | None, number: int = 0) -> None:
        """The task is due then, None for never, as the write with this number has left it.

        Without a number, another process wrote it. A call that was slower than the next of its task does not
        overwrite what that has noted.
        """
        with self._lock:
            known, by = self._dues.get(task_id, (None, 0))
            if number == 0:
                number = by
                due = min(due or known, known) if known else due
            elif number < by:
                return
            if due is None:
                self._dues.pop(task_id, None)
            elif not (self._forgotten and due >= self._forgotten):
                self._dues[task_id] = due, number
                self._push(due, task_id)
                if len(self._dues) > self._max_dues:
                    self._forget_latest()

    def must_read_dues(self) -> bool:
        """Whether times that this process has forgotten may be near: it must read the unresolved tasks."""
        return self._forgotten is not None and self._clock.now() + timedelta(minutes=1) >= self._forgotten

    def forget_dues(self) -> None:
        """Before the unresolved tasks are read again."""
        self._forgotten = None

    # Looks

    def next_look(self, *, waits: bool) -> Look | None:
        """The next task to look at. None if there is none, or, if this ``waits``, after ``end_wait``."""
        try:
            while (task_id := self._next_ready(waits=waits)) or not waits:
                look = self._begin_look(task_id)
                if look:
                    return look
        except Empty:
            return None
        return None

    def end_wait(self) -> None:
        """End a wait of ``next_look``."""
        self._ready.put("")

    def look_again(self, task_id: str, delay: timedelta) -> None:
        """The look at a task that is due has failed: it is repeated after ``delay``."""
        with self._lock:
            again = self._clock.now() + delay
            self._dues.setdefault(task_id, (again, 0))
            self._push(again, task_id)

    def fire(self) -> None:
        """Hand tasks whose time has come to the resolver, in the order of their times: few at once."""
        now = self._clock.now()
        with self._lock:
            while self._heap and self._heap[0][0] <= now and self._ready.qsize() < _MAX_READY:
                _, task_id = heapq.heappop(self._heap)
                if self._needs_look(task_id, now):
                    self._ready.put(task_id)

    def repeat_now(self) -> None:
        """Repeat all missing effects, the oldest first: the broker is back."""
        with self._lock:
            oldest = sorted(
                (min(owed.since for owed in behind), task_id) for task_id, behind in self._behind.items()
            )
            for _, task_id in oldest:
                for owed in self._behind[task_id]:
                    owed.repeat_at = EVER
                self._ready.put(task_id)

    def next_fires(self, end: datetime) -> datetime | None:
        """When the resolver must look at a task next, None if that is later than ``end``.

        What has failed before waits until its task is due, or until ``end``: otherwise a clock that is moved
        by a week would try a broker that is away every two seconds of that week.
        """
        with self._lock:
            while self._heap and self._heap[0][0] <= end:
                when, task_id = self._heap[0]
                behind = self._behind.get(task_id, ())
                for owed in behind:
                    if owed.tries and owed.repeat_at and owed.repeat_at < end:
                        owed.repeat_at = end
                        heapq.heappush(self._heap, (end, task_id))
                if when == end or self._needs_look(task_id, when):
                    return when
                heapq.heappop(self._heap)
        return None

    def _next_ready(self, *, waits: bool) -> str:
        if self._ready.empty():  # sooner than the next tick
            self.fire()
        return self._ready.get(block=waits)

    # All below: called with the lock.

    def _mark(self, owed: Owed) -> None:
        owed.is_marked = True
        self._marked[owed.number] = owed  # before it is not open any more: ``is_applied`` has no lock
        del self._open[owed.number]
        if len(self._open) == _MAX_OPEN - 1:
            self._has_room.notify_all()

    def _put_behind(self, owed: Owed, delay: timedelta) -> None:
        owed.repeat_at = self._clock.now() + delay
        self._behind.setdefault(owed.task_id, []).append(owed)
        if delay <= _NO_DELAY:
            self._ready.put(owed.task_id)
        else:
            self._push(owed.repeat_at, owed.task_id)

    def _needs_look(self, task_id: str, now: datetime) -> bool:
        due, _ = self._dues.get(task_id, (None, 0))
        is_due = due is not None and due <= now
        return is_due or any(
            owed.repeat_at and owed.repeat_at <= now for owed in self._behind.get(task_id, ())
        )

    def _begin_look(self, task_id: str) -> Look | None:
        with self._lock:
            if not self._needs_look(task_id, self._clock.now()):
                return None
            behind = self._behind.pop(task_id, [])
            for owed in behind:
                owed.repeat_at = None
            due, _ = self._dues.get(task_id, (None, 0))
            is_due = due is not None and due <= self._clock.now()
            if is_due:
                del self._dues[task_id]
            return Look(task_id, behind, is_due)

    def _push(self, when: datetime, task_id: str) -> None:
        heapq.heappush(self._heap, (when, task_id))
        if len(self._heap) > 2 * (len(self._dues) + len(self._behind)) + _MAX_OUTDATED:
            self._heap = [*self._times()]
            heapq.heapify(self._heap)

    def _times(self) -> Iterator[tuple[datetime, str]]:
        for task_id, (due, _) in self._dues.items():
            yield due, task_id
        for task_id, behind in self._behind.items():
            yield from ((owed.repeat_at, task_id) for owed in behind if owed.repeat_at)

    def _forget_latest(self) -> None:
        by_time = sorted(self._dues.items(), key=lambda each: each[1])
        kept = by_time[: self._max_dues // 2]
        self._forgotten = by_time[len(kept)][1][0]
        self._dues = dict(kept)


def _both(name: Name, other: Name | None) -> Name:
    """A name that includes both, of one task. Of two groups it is the first: the sweeper ends the other."""
    if other is None:
        return name
    return Name(name.task_id, min(name.since, other.since), other.task_group_id or name.task_group_id)
