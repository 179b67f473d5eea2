"""Remembers which effects of its writes this process still owes, and when it must look at which task.

The rule: each write of a task gets a number before it is made, and stays *open* until all its effects are
applied. So the question "are the effects of this version applied?" has an exact answer: they are if no open
write has its number. All writes before the first open one are *settled*. The row of this process has the
number of the last settled write, and this one number tells the other processes enough.

While a call or the resolver works on an open write, the write is *under way*. If that fails, the write is
*behind*, and the resolver repeats its effects after a while. While the broker is away, very many writes may
be behind. Then the rows of their tasks are *marked*, and any process can find the mark. A marked write no
longer holds back the settled number, and the row of this process does not name its task.

The row of a task says when the task is due. This process remembers that time for the tasks that it was the
last to write, and looks at each of them when the time comes. A look that is too early, or one too many, is
harmless: it finds that the task is not due.

What is ugly: the heap of times keeps outdated entries, because a heap cannot remove one. Whoever pops an
entry must check in the dictionaries whether it still counts.
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
from legacy_queue.stores.process_store import NamedTask

_NO_DELAY = timedelta(0)
_MAX_DUES = 100_000  # tasks for which this process remembers when they are due
_MAX_OUTDATED = 1000  # entries of the heap, in addition to as many as are in use
# If more writes are open, a call that ends a task waits: each write of the row names all of these tasks.
_MAX_OPEN = 500
# How long such a call waits, in seconds.
_WAIT_FOR_ROOM = 20.0
# How many due tasks the resolver gets at once. What their ends cause is done before others end.
_MAX_READY = 100


@dataclass(eq=False)
class Owed:
    """A write whose effects are owed. This process made it, or has taken it over from a dead process."""

    number: int
    task_id: str
    # effects of transitions since this time may be missing
    since: datetime
    # the group that the task joins when it is created
    task_group_id: str = ""
    # whether the row of this process names the task. A new task need not be named: its row as a member of its
    # group is enough to find it.
    is_named: bool = True
    # whether any effect of the task may be missing: of earlier versions, too, or of a dead process
    repeats_all: bool = False
    # whether all events are published, so that only other effects are missing
    is_published: bool = False
    # whether the row of the task says that its events are unpublished
    is_marked: bool = False
    # how often repeating the effects was tried
    tries: int = 0
    # when to repeat them next; None while a call or the resolver works on them
    repeat_at: datetime | None = None


@dataclass(frozen=True)
class Look:
    """A task that the resolver must look at, because effects are ``owed`` or because it may be due."""

    task_id: str
    owed: Sequence[Owed] = ()
    is_due: bool = False

    @property
    def since(self) -> datetime | None:
        """The time since which effects of transitions may be missing. None if none are."""
        return min((EVER if owed.repeats_all else owed.since for owed in self.owed), default=None)

    @property
    def oldest(self) -> datetime:
        """When the first of the writes with missing effects began."""
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
    """Keeps in memory the writes of this process that lack effects, and when tasks are due.

    After ``open``, and after ``next_look``, the caller must call ``close`` or ``repeat_later`` once.
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
        # the same for the tasks whose rows are marked
        self._marked: dict[int, Owed] = {}
        # by taskId: the open and the marked writes that are not under way
        self._behind: dict[str, list[Owed]] = {}
        # by taskId: when the task is due, and the number of the write that said so, 0 for other processes
        self._dues: dict[str, tuple[datetime, int]] = {}
        # due times later than this have been forgotten; None if none have
        self._forgotten: datetime | None = None
        # when to check which taskId: see "What is ugly"
        self._heap: list[tuple[datetime, str]] = []
        # taskIds for the resolver to look at; "" ends a wait for the next one
        self._ready: SimpleQueue[str] = SimpleQueue()

    def in_memory(self) -> int:
        """Returns the number of entries in memory: open writes and tasks with a due time."""
        return len(self._open) + len(self._marked) + len(self._dues)

    def late(self) -> int:
        """Returns how many tasks wait for the resolver."""
        now = self._clock.now()
        with self._lock:
            return self._ready.qsize() + sum(when <= now for when, _ in self._heap)

    @property
    def ready(self) -> int:
        """How many tasks were handed to the resolver and not begun yet."""
        return self._ready.qsize()

    # What is owed

    def wait_for_room(self) -> None:
        """Wait until the resolver has caught up. Use this before a transition that resolves a task.

        The resolver applies effects of such transitions, and it may be far behind. Raises ServiceUnavailable
        if it does not catch up soon.
        """
        if len(self._open) < _MAX_OPEN:
            return
        with self._has_room:
            if not self._has_room.wait_for(lambda: len(self._open) < _MAX_OPEN, _WAIT_FOR_ROOM):
                raise ServiceUnavailable("this server is still busy with earlier calls, try again")

    def open(self, task_id: str, since: datetime, task_group_id: str = "", *, is_named: bool = True) -> Owed:
        """Record that a write begins. ``since`` must not be later than its transition."""
        with self._lock:
            self._number += 1
            owed = Owed(self._number, task_id, since, task_group_id, is_named)
            self._open[owed.number] = owed
            return owed

    def inherit(self, names: Iterable[NamedTask], *, is_marked: bool = False) -> None:
        """Take over what a dead process owed, and repeat it now. ``is_marked``: the task has the mark."""
        with self._lock:
            for name in names:
                behind = self._behind.get(name.task_id, ())
                if any(owed.repeats_all and owed.task_group_id == name.task_group_id for owed in behind):
                    continue  # reading the tasks failed half-way before, and this is the repetition
                self._number += 1
                owed = Owed(self._number, name.task_id, name.since, name.task_group_id, repeats_all=True)
                self._open[owed.number] = owed
                if is_marked:
                    self._mark(owed)
                self._put_behind(owed, _NO_DELAY)

    def close(self, owed: Sequence[Owed]) -> None:
        """Record that all effects are applied, or that nothing was written."""
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
        """Record that effects are missing. They are repeated after ``delay``.

        ``is_published`` is None if that has not changed. A task stays marked until nothing is owed.
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
        """Whether the events of the write with this number are published."""
        owed = self._open.get(number) or self._marked.get(number)
        return owed is None or owed.is_published

    def names(self) -> tuple[list[NamedTask], int]:
        """Returns the names for the row of this process, and the number of its last settled write."""
        with self._lock:
            names: dict[str, NamedTask] = {}
            for owed in self._open.values():
                if owed.is_named:
                    name = NamedTask(owed.task_id, owed.since, owed.task_group_id)
                    names[name.task_id] = _both(name, names.get(name.task_id))
            return [*names.values()], next(iter(self._open), self._number + 1) - 1

    @property
    def number(self) -> int:
        """The number of the last write."""
        return self._number

    # When tasks are due

    def note_due(self, task_id: str, due: datetime | None, number: int = 0) -> None:
        """Remember when the task is due after the write with this number. None means never.

        Without a number, another process wrote the task. If a later write of the task has already noted its
        time, the time of a slower, earlier one is ignored.
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
        """Whether a forgotten due time may be near. Then this process must read the unresolved tasks."""
        return self._forgotten is not None and self._clock.now() + timedelta(minutes=1) >= self._forgotten

    def forget_dues(self) -> None:
        """Call this before the unresolved tasks are read again."""
        self._forgotten = None

    # Looks

    def next_look(self, *, waits: bool) -> Look | None:
        """Returns the next task to look at, or None. If it ``waits``, None comes only after ``end_wait``."""
        try:
            while (task_id := self._next_ready(waits=waits)) or not waits:
                look = self._begin_look(task_id)
                if look:
                    return look
        except Empty:
            return None
        return None

    def end_wait(self) -> None:
        """End one wait of ``next_look``."""
        self._ready.put("")

    def look_again(self, task_id: str, delay: timedelta) -> None:
        """Repeat a failed look at a due task after ``delay``."""
        with self._lock:
            again = self._clock.now() + delay
            self._dues.setdefault(task_id, (again, 0))
            self._push(again, task_id)

    def fire(self) -> None:
        """Hand the tasks that need a look to the resolver, in the order of their times, a few at once."""
        now = self._clock.now()
        with self._lock:
            while self._heap and self._heap[0][0] <= now and self._ready.qsize() < _MAX_READY:
                _, task_id = heapq.heappop(self._heap)
                if self._needs_look(task_id, now):
                    self._ready.put(task_id)

    def repeat_now(self) -> None:
        """Repeat all missing effects now, the oldest first. Call this when the broker is back."""
        with self._lock:
            oldest = sorted(
                (min(owed.since for owed in behind), task_id) for task_id, behind in self._behind.items()
            )
            for _, task_id in oldest:
                for owed in self._behind[task_id]:
                    owed.repeat_at = EVER
                self._ready.put(task_id)

    def next_fires(self, end: datetime) -> datetime | None:
        """Returns when the resolver must look at a task next, or None if that is later than ``end``.

        An effect that failed before waits until its task is due, or until ``end``. Otherwise a clock that is
        moved by a week would try an absent broker every two seconds of that week.
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
        if self._ready.empty():  # do not wait for the next tick
            self.fire()
        return self._ready.get(block=waits)

    # The caller of each method below holds the lock.

    def _mark(self, owed: Owed) -> None:
        owed.is_marked = True
        self._marked[owed.number] = owed  # before it leaves ``_open``, because ``is_applied`` takes no lock
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


def _both(name: NamedTask, other: NamedTask | None) -> NamedTask:
    """Returns a name that includes both. If their groups differ, it has the group of ``other``.

    The sweeper ends the membership in the other group.
    """
    if other is None:
        return name
    return NamedTask(name.task_id, min(name.since, other.since), other.task_group_id or name.task_group_id)
