"""The timers of this process: stored before a task is written, and kept until all effects are applied.

Theory. A stored timer is a row, which is inserted and deleted and never changed. It says either that effects
may be missing since some time, and is due 15 s after it was inserted, or 24 s while it waits for a retry; or
that none are, and is due when the task is. A process deletes its rows in time: a row that is due is work that
no process does. Any process that finds it takes it, and then does what the task's own row says. So two rules
keep each timer, whatever dies:

* *Insert before the write.* No call begins before a row names its effects (``schedule``).
* *Delete only while another row suffices*, or nothing is left to do (``_settle``).

What a process remembers of a task is only a hint: which rows there are, and what its own calls still owe.
Source: docs/explanation/recovery.md#timers.
"""

import heapq
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from queue import Empty, SimpleQueue
from threading import Lock

from legacy_queue.domain.events import EVER
from legacy_queue.domain.timer import Timer
from legacy_queue.ports import Clock
from legacy_queue.services.recovery.jobs import RETRY_LEASE, TIMER_LEASE
from legacy_queue.stores.group_commit import GroupCommit
from legacy_queue.stores.timer_store import TimerRow, TimerStore

# A row is replaced so long before it is due. That is longer than a bucket of the store, so that the rows of
# calls under way are in buckets that no process reads yet: else each would read those of all.
_MARGIN = timedelta(seconds=9)
_MAX_COMMIT = 100  # rows: one batch
_MAX_SETTLED = 1000  # taskIds in a tick
_MAX_LATE = 2000  # fired timers in memory: what is beyond that is left to other processes
_NO_DELAY = timedelta(0)


@dataclass(frozen=True)
class FiredTimer:
    """A timer that is handled. Effects of transitions after ``since`` are missing; events too, unless
    ``is_published``. ``tries``: how often handling it has failed. ``due``: when to look at the task, whatever
    effects are missing.
    """

    task_id: str
    since: datetime | None
    is_published: bool
    task_group_id: str
    tries: int
    due: datetime | None = None


@dataclass(eq=False)
class _Entry:
    """What this process knows of the timer of a task.

    It is *busy* while ``calls`` are under way that may write the task; *behind* when one has left effects
    missing; *waiting* otherwise: the task needs its next look when it is ``due``.
    """

    # stored, and not being deleted
    rows: list[TimerRow] = field(default_factory=list)
    due: datetime | None = None
    calls: int = 0
    # some of these calls were under way at the same time
    overlapped: bool = False
    # the effects that may be missing; None if none are, or if a handler has not begun any yet
    missing: Timer | None = None
    is_behind: bool = False
    # another process has left some missing. Then all events of the task may be: that process may have had to
    # publish those of a third first, and its clock was another.
    is_taken: bool = False
    # one of the calls is a handler's, which writes by a call of its own
    is_handled: bool = False
    is_unpublished: bool = False
    # when a handler must have it; None if it has fired, or waits for nothing
    fires: datetime | None = None
    tries: int = 0

    @property
    def is_waiting(self) -> bool:
        return not self.calls and not self.is_behind

    @property
    def since(self) -> datetime:
        """The age of its missing effects."""
        return (self.missing and self.missing.since) or EVER

    def begin(self, timer: Timer | None = None) -> None:
        self.overlapped = self.calls > 0
        self.calls += 1
        self.missing = timer.plus(self.missing) if timer else self.missing

    def note_due(self, due: datetime | None) -> None:
        # A call does not know what calls beside it did, so the earliest time counts. A look that is too early
        # is harmless: the task's row says when the next is due.
        self.due = _earliest(self.due, due) if self.overlapped else due

    def end(self) -> None:
        self.calls -= 1
        self.is_handled &= self.calls > 0
        if self.is_waiting:
            self.missing = None
            self.is_taken = False
            self.is_unpublished = False
            self.fires = self.due

    def covering(self, timer: Timer, now: datetime) -> TimerRow | None:
        """A row that names these effects, and that no other process takes for a while."""
        for row in reversed(self.rows):
            if now + _MARGIN < row.timer.due and row.timer.includes(timer):
                return row
        return None

    def looks(self) -> list[TimerRow]:
        return [row for row in self.rows if row.timer.since is None]

    def kept(self, now: datetime) -> Sequence[TimerRow] | None:
        """The rows that must stay; None if they do not say what is needed."""
        if self.missing:
            # one row for all effects, since each that is left alone becomes due; and what the task waits for,
            # since the call may write nothing
            row = self.covering(self.missing, now)
            return [row, *self.looks()] if row else None
        if not self.is_waiting:
            return self.rows  # of a handler that has not begun to write
        if self.due is None:
            return []
        # A row may be due before the task: a claim that was extended needs no row for each reclaim.
        looks = [row for row in self.looks() if now < row.timer.due <= self.due or row.timer.due == self.due]
        return [max(looks, key=lambda row: row.timer.due)] if looks else None

    def needed(self, task_id: str, now: datetime) -> Timer:
        """What a row must say in place of those that there are."""
        if self.missing:
            return replace(self.missing, due=now + (TIMER_LEASE if self.calls else RETRY_LEASE))
        return Timer(task_id, self.due or now)

    def times(self) -> Iterator[datetime]:
        """When something has to be done."""
        if self.fires:
            yield self.fires
        for row in self.rows:
            if row.timer.since:
                yield row.timer.due - _MARGIN
            elif self.is_waiting and self.due and row.timer.due < self.due:
                yield row.timer.due


class Timers:
    """After ``schedule`` the caller calls ``complete``, ``cancel`` or ``retry_later`` once.

    Beyond ``max_kept`` tasks, those that wait are forgotten: their rows are found when they are due.
    """

    def __init__(self, store: TimerStore, clock: Clock, max_kept: int = 100_000) -> None:
        self._store = store
        self._clock = clock
        self._max_kept = max_kept
        self._commits = GroupCommit(self._commit, _MAX_COMMIT)
        self._ready: SimpleQueue[str] = SimpleQueue()  # taskIds; "" ends a wait
        # All below is used with the lock, which is never held during an operation of the store.
        self._lock = Lock()
        self._entries: dict[str, _Entry] = {}
        self._unsettled: dict[str, None] = {}  # taskIds whose rows may have to change, in their order
        self._heap: list[tuple[datetime, str]] = []  # when entries wake; some are outdated

    @property
    def waiting(self) -> int:
        """How many timers wait to be stored."""
        return self._commits.waiting

    def in_memory(self) -> int:
        """How many timers this process has in memory."""
        return len(self._entries)

    def late(self) -> int:
        """How many have fired and wait to be handled."""
        return self._ready.qsize()

    # Calls

    def schedule(self, task_id: str, since: datetime, task_group_id: str = "") -> None:
        """Return once a timer is stored. It fires and repeats the effects of a transition, unless completed.

        ``since`` is no later than that transition. Raises ServiceUnavailable: no timer is scheduled.
        """
        timer = Timer(task_id, since, since, task_group_id)
        with self._lock:
            entry = self._entries.get(task_id)
            # After a pause of this process, others may have taken its row. On a row that does not name the
            # group, a createTask that dies would leave its member there for ever.
            if entry and entry.covering(timer, self._clock.now()):
                entry.begin(timer)
                return
        self._commits.add(timer)

    def complete(self, task_id: str, due: datetime | None) -> None:
        """All effects are applied. The timer fires next when the task is ``due``, None for never."""
        with self._lock:
            entry = self._entries[task_id]
            entry.tries = 0
            entry.note_due(due)
            self._end(task_id, entry)

    def cancel(self, task_id: str) -> None:
        """What the call has written, if anything, has no effects that are missing, and no other due time."""
        with self._lock:
            self._end(task_id, self._entries[task_id])

    def retry_later(
        self,
        task_id: str,
        due: datetime | None = None,
        *,
        is_published: bool = False,
        delay: timedelta = _NO_DELAY,
        tries: int = 0,
    ) -> None:
        """Effects are missing, but no events if ``is_published``. The timer fires after ``delay``."""
        with self._lock:
            entry = self._entries[task_id]
            entry.tries = tries
            entry.note_due(due)
            entry.is_behind = True
            entry.is_unpublished |= not is_published
            entry.fires = self._clock.now() + delay
            self._end(task_id, entry)

    def is_unpublished(self, task_id: str) -> bool:
        """Whether earlier events of the task are missing. They must be published before later events."""
        entry = self._entries.get(task_id)
        return entry is not None and entry.is_unpublished

    def has_other_calls(self, task_id: str, *, own: int = 1) -> bool:
        """Whether calls are under way beside the caller's ``own``: they may not have published yet."""
        entry = self._entries.get(task_id)
        return entry is not None and entry.calls - entry.is_handled > own

    # Firing

    def next_fired(self, *, waits: bool) -> FiredTimer | None:
        """A fired timer. None if there is none, or, if this ``waits``, after a ``wake``.

        After it the caller calls ``complete`` or ``retry_later``.
        """
        with suppress(Empty):
            while (task_id := self._ready.get(block=waits)) or not waits:
                fired = self._begin_handling(task_id)
                if fired:
                    return fired
        return None

    def wake(self) -> None:
        """End a wait of ``next_fired``."""
        self._ready.put("")

    def fire(self) -> None:
        """Fire the timers that are due, in the order of their times."""
        now = self._clock.now()
        with self._lock:
            while self._heap and self._heap[0][0] <= now:
                _, task_id = heapq.heappop(self._heap)
                if entry := self._entries.get(task_id):
                    self._review(task_id, entry)

    def retry_now(self) -> None:
        """Fire the timers of missing effects, the oldest first: the broker is back."""
        with self._lock:
            behind = [(entry.since, task_id) for task_id, entry in self._entries.items() if entry.is_behind]
            for _, task_id in sorted(behind):
                entry = self._entries[task_id]
                if entry.fires:
                    entry.fires = EVER
                    self._review(task_id, entry)

    def next_fires(self, end: datetime) -> datetime | None:
        """When something must be done next, None if that is later than ``end``.

        A timer that failed waits until its task is due, or until ``end``: otherwise a clock that is moved by
        a week would try a broker that is away every two seconds of that week.
        """
        with self._lock:
            while self._heap and self._heap[0][0] <= end:
                wakes, task_id = self._heap[0]
                entry = self._entries.get(task_id)
                if entry and entry.tries and entry.fires:
                    later = entry.due if entry.due and wakes <= entry.due < end else end
                    entry.fires = max(entry.fires, later)
                if entry and wakes in entry.times():
                    return wakes
                heapq.heappop(self._heap)  # it is outdated
                if entry:
                    self._review(task_id, entry)
        return None

    # Rows

    def tick(self) -> None:
        """Fire timers, insert and delete rows; to be called twice a second. Raises ServiceUnavailable."""
        self.fire()
        self._settle()

    def receive(self) -> int:
        """Take over due timers that no process handles. Returns how many. Raises ServiceUnavailable."""
        limit = _MAX_LATE - self.late()
        found = self._store.due(limit)
        now = self._clock.now()
        with self._lock:
            unknown = sorted((row for row in found if not self._has(row)), key=_age)
        count = 0
        for taken in self._store.take([(row, _taken(row.timer, now)) for row in unknown[:limit]]):
            with self._lock:
                for old, row in taken:
                    self._take_over(old.timer, row, now)
            count += len(taken)
        return count

    def hand_over(self) -> None:
        """Make other processes handle at once what is left, before this process ends. Raises
        ServiceUnavailable.
        """
        now = self._clock.now()
        with self._lock:
            left = [entry for entry in self._entries.values() if entry.missing]
            self._unsettled = {task_id: None for task_id, entry in self._entries.items() if entry.is_waiting}
        self._store.put([replace(entry.missing, due=now) for entry in left if entry.missing])
        self._store.remove([row for entry in left for row in entry.rows])
        for _ in range(0, len(self._unsettled), _MAX_SETTLED):
            self._settle()

    def _commit(self, timers: Sequence[Timer]) -> None:
        due = self._clock.now() + TIMER_LEASE
        # all are stored before the first call begins: an error means for every call that none has
        rows = self._store.put([replace(timer, due=due) for timer in timers])
        with self._lock:
            for row, timer in zip(rows, timers, strict=True):
                entry = self._entries.setdefault(timer.task_id, _Entry())
                # Beside the rows that there are: what has begun on them meanwhile is not in this one.
                entry.rows.append(row)
                entry.begin(timer)
                self._review(timer.task_id, entry)

    def _settle(self) -> None:
        """Insert the rows that are needed, then delete those that are not."""
        now = self._clock.now()
        with self._lock:
            # There may be thousands while the broker is away: the next tick goes on, and fires timers before.
            task_ids = islice(self._unsettled, _MAX_SETTLED)
            entries = {task_id: self._entries.get(task_id) for task_id in task_ids}
            needed = [
                entry.needed(task_id, now)
                for task_id, entry in entries.items()
                if entry and entry.kept(now) is None
            ]
        stored = self._store.put(needed) if needed else []
        with self._lock:
            for row in stored:
                self._entries.setdefault(row.timer.task_id, _Entry()).rows.append(row)
            # What is kept is decided again: a call may have begun or ended meanwhile.
            obsolete = [row for task_id in entries for row in self._settled(task_id, now)]
        if obsolete:
            self._store.remove(obsolete)

    # All below: called with the lock.

    def _settled(self, task_id: str, now: datetime) -> Sequence[TimerRow]:
        """The rows that are not needed. None are, for now, if something that is needed is not stored yet."""
        entry = self._entries.get(task_id, _Entry())
        kept = entry.kept(now)
        if kept is None:
            return []
        self._unsettled.pop(task_id, None)
        obsolete = [row for row in entry.rows if row not in kept]
        entry.rows = [*kept]
        # where too many are kept, the row alone is left
        is_left = entry.fires and len(self._entries) > self._max_kept
        if entry.is_waiting and (is_left or not kept):
            self._entries.pop(task_id, None)
        else:
            self._review(task_id, entry)
        return obsolete

    def _end(self, task_id: str, entry: _Entry) -> None:
        entry.end()
        self._review(task_id, entry)

    def _begin_handling(self, task_id: str) -> FiredTimer | None:
        """The handling of a timer begins, as a call does. None if it needs none."""
        with self._lock:
            entry = self._entries.get(task_id)
            # a waiting timer that a call uses fires after the call; one may be ready twice
            if entry is None or entry.fires or (entry.calls and not entry.is_behind):
                return None
            entry.begin()
            entry.is_handled = True
            entry.is_behind = False
            is_published = not entry.is_unpublished
            effects = entry.missing or Timer(task_id, EVER)
            since = EVER if entry.is_taken else effects.since
            group = effects.task_group_id
            return FiredTimer(task_id, since, is_published, group, entry.tries, entry.due)

    def _has(self, row: TimerRow) -> bool:
        entry = self._entries.get(row.timer.task_id)
        return entry is not None and any(own.key == row.key for own in entry.rows)

    def _take_over(self, old: Timer, row: TimerRow, now: datetime) -> None:
        entry = self._entries.setdefault(old.task_id, _Entry())
        entry.rows.append(row)
        if old.since:
            entry.missing = row.timer.plus(entry.missing)
            entry.is_taken = True
            entry.is_behind = True
            entry.is_unpublished = True
            entry.fires = now
        else:
            entry.due = now
            entry.overlapped = True  # a call under way does not know this time
            if entry.is_waiting:
                entry.fires = now
        self._review(old.task_id, entry)

    def _review(self, task_id: str, entry: _Entry) -> None:
        """Fire the timer if its time has come, and see that it is reviewed again in time."""
        now = self._clock.now()
        if entry.fires and entry.fires <= now:
            entry.fires = None
            self._ready.put(task_id)
        times = [*entry.times()]
        if (entry.is_waiting and entry.due is None) or any(time <= now for time in times):
            self._unsettled[task_id] = None
        if later := [time for time in times if time > now]:
            heapq.heappush(self._heap, (min(later), task_id))
        if len(self._heap) > 4 * len(self._entries):  # most are outdated: of tasks that ended early
            self._heap = [(min(each.times(), default=now), name) for name, each in self._entries.items()]
            heapq.heapify(self._heap)


def _taken(timer: Timer, now: datetime) -> Timer:
    """What the row of a process says that handles a timer of another."""
    # The handler of a timer that is due may cause effects: since then.
    return replace(timer, since=timer.since or now, due=now + TIMER_LEASE)


def _age(row: TimerRow) -> datetime:
    # Processes may die, one after the other, before they have handled all that a dead one has left. In
    # another order, those that come last would wait while newer ones are handled.
    return row.timer.since or row.timer.due


def _earliest(*times: datetime | None) -> datetime | None:
    return min((time for time in times if time), default=None)
