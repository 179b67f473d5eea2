"""The timers in the memory of a process: what is left to do for which task, and when. It does no I/O.

Theory. A timer is in one of three states, and is gone when its task needs no more looks:

* *busy*: ``calls`` are under way that may write the task, or the handler of the fired timer is.
* *behind*: a call has ended, and left effects missing. A handler repeats them.
* *waiting*: all effects are applied. The task needs its next look when it is ``due``.

::

              begin                    the last call ends, all is done                due is None
    (nothing) -----> busy -------------------------------------------------> waiting -----------> (nothing)
                     |  ^                                                       |
     the last call   |  |                begin; take, when it is due            |
     ends, some      |  +-------------------------------------------------------+
     effects are     |  |
     missing         v  |  begin; take, at the time of the next try
                    behind

A call that leaves effects missing while others are under way makes the timer ready at once: it is busy and
behind then.

The messages themselves are stored by ``Timers``. The table knows what each of them says, and keeps one rule,
which makes every timer outlive this process: **its message covers the timer**, see ``_covers``. From it
follow:

* A call begins without a put only on a message that is open and covers it (``begin``).
* What a put message says was decided before the put. It becomes the message of a timer only if it still
  covers it afterwards (``add``, ``renewed``): calls may have begun or ended meanwhile.
* A message is deleted when it is not the message of any timer (``take_unused``), never before.

There is one kind of "later": ``fires``. It is the time ``due`` of a waiting timer, and of one that is behind,
the time of the next try.
"""

import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from queue import SimpleQueue
from threading import Lock

from legacy_queue.domain.events import EVER
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.timer import Timer

_MAX_SKEW = timedelta(minutes=1)  # of another process's clock


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
    has_artifacts: bool
    tries: int
    due: datetime | None = None


@dataclass(eq=False)
class SharedMessage:
    """A stored message with the timers of many tasks, visible to other processes from ``visible`` on."""

    lease: MessageLease
    visible: datetime
    # calls may begin without a message of their own
    is_open: bool
    # what it says, by taskId; also of timers that have got a newer message since
    timers: dict[str, Timer] = field(default_factory=dict)


@dataclass(eq=False)
class _Entry:
    """The timer of a task."""

    message: SharedMessage
    due: datetime | None = None
    calls: int = 0
    # some of these calls were under way at the same time
    overlapped: bool = False
    # the effects that may be missing; None if none are, or if a handler has not begun any yet
    missing: Timer | None = None
    is_behind: bool = False
    # one of the calls is a handler's, which writes by a call of its own
    is_handled: bool = False
    is_unpublished: bool = False
    fires: datetime | None = None
    tries: int = 0

    @property
    def is_waiting(self) -> bool:
        return not self.calls and not self.is_behind

    def begin(self) -> None:
        self.overlapped = self.calls > 0
        self.calls += 1

    def note_due(self, due: datetime | None) -> None:
        # A call does not know what calls beside it did, so the earliest time counts. A look that is too early
        # is harmless: the task's row says when the next is due.
        self.due = _earliest(self.due, due) if self.overlapped else due

    def end(self) -> None:
        self.calls -= 1
        self.is_handled &= self.calls > 0
        if self.is_waiting:
            self.missing = None
            self.is_unpublished = False

    def timer(self, task_id: str, now: datetime) -> Timer:
        """What a message must say to cover this timer."""
        if self.is_waiting:
            return Timer(task_id, self.due or now)
        # the handler of a timer that was due may cause effects: since then
        missing = self.missing or Timer(task_id, now, self.due or now)
        return replace(missing, due=now)


class TimerTable:
    """The timers of a process. Every method holds the lock, and none waits.

    ``keeps_waiting``: waiting timers stay in memory, up to ``max_kept``, and fire here. Else they are in
    their messages alone, and only missing effects of own calls fire here.
    """

    def __init__(self, *, keeps_waiting: bool, max_kept: int) -> None:
        self.ready: SimpleQueue[str] = SimpleQueue()  # taskIds for ``take``; "" ends a wait
        self._keeps_waiting = keeps_waiting
        self._max_kept = max_kept
        self._entries: dict[str, _Entry] = {}
        self._messages: dict[str, SharedMessage] = {}  # by messageId
        self._unused: list[SharedMessage] = []
        self._heap: list[tuple[datetime, int, str]] = []  # by ``fires``; some are outdated
        self._order = itertools.count()
        self._lock = Lock()

    # Calls

    def begin(self, timer: Timer, now: datetime) -> bool:
        """A call begins that may have the effects of ``timer``. False if it needs a message first."""
        with self._lock:
            entry = self._entries.get(timer.task_id)
            # after a pause of this process, others may have received its message
            if entry is None or not entry.message.is_open or entry.message.visible <= now:
                return False
            if not entry.message.timers[timer.task_id].includes(timer):
                return False
            self._begin(entry, timer)
            return True

    def merged(self, timers: Iterable[Timer]) -> list[Timer]:
        """What a message must say so that calls with these effects can begin on it."""
        merged: dict[str, Timer] = {}
        with self._lock:
            for timer in timers:
                entry = self._entries.get(timer.task_id)
                missing = merged.get(timer.task_id) or (entry.missing if entry else None)
                merged[timer.task_id] = timer.plus(missing)
        return list(merged.values())

    def add(self, message: SharedMessage, said: Iterable[Timer], timers: Iterable[Timer]) -> list[Timer]:
        """Calls begin on a message that was put for them and says ``said``. Returns the others: the message
        does not cover what has begun meanwhile on an older one.
        """
        beginning = defaultdict(list)
        for timer in timers:
            beginning[timer.task_id].append(timer)
        with self._lock:
            self._messages[message.lease.message_id] = message
            for content in said:
                entry = self._entries.setdefault(content.task_id, _Entry(message))
                if _covers(content, entry):
                    self._move(entry, content, message)
                    for timer in beginning.pop(content.task_id, ()):
                        self._begin(entry, timer)
            self._discard_if_unused(message)
        return [timer for left in beginning.values() for timer in left]

    def complete(self, task_id: str, due: datetime | None, now: datetime) -> None:
        """A call ends with all its effects. Its task is due then, None for never."""
        with self._lock:
            entry = self._entries[task_id]
            entry.tries = 0
            entry.note_due(due)
            self._end(task_id, entry, now)

    def cancel(self, task_id: str, now: datetime) -> None:
        """A call ends that has written nothing."""
        with self._lock:
            self._end(task_id, self._entries[task_id], now)

    def retry_later(
        self,
        task_id: str,
        due: datetime | None,
        fires: datetime,
        now: datetime,
        *,
        is_published: bool,
        tries: int,
    ) -> None:
        """A call ends without some of its effects."""
        with self._lock:
            entry = self._entries[task_id]
            entry.tries = tries
            entry.note_due(due)
            entry.is_behind = True
            entry.is_unpublished |= not is_published
            self._end(task_id, entry, now)
            self._fire_at(task_id, entry, fires, now)

    def is_unpublished(self, task_id: str) -> bool:
        """Whether earlier events of the task are missing."""
        entry = self._entries.get(task_id)
        return entry is not None and entry.is_unpublished

    def has_other_calls(self, task_id: str) -> bool:
        """Whether a call under way is not the only one for the task: the other may not have published yet."""
        entry = self._entries.get(task_id)
        return entry is not None and entry.calls - entry.is_handled > 1

    # Firing

    def fire(self, now: datetime) -> None:
        """Make the timers ready whose time has come, in the order of their times."""
        with self._lock:
            while self._heap and self._heap[0][0] <= now:
                fired = heapq.heappop(self._heap)
                if self._is_current(fired):
                    self._make_ready(fired[2])

    def retry_now(self) -> None:
        """Make the timers ready that are behind."""
        with self._lock:
            for task_id, entry in self._entries.items():
                if entry.is_behind and entry.fires:
                    self._make_ready(task_id)

    def take(self, task_id: str) -> FiredTimer | None:
        """The timer that was ready: its handling begins, as a call does. None if it needs none."""
        with self._lock:
            entry = self._entries.get(task_id)
            # a waiting timer that a call uses fires after the call; one may be ready twice
            if entry is None or entry.fires or (entry.calls and not entry.is_behind):
                return None
            missing = entry.missing
            entry.begin()
            entry.is_handled = True
            entry.is_behind = False
            return FiredTimer(
                task_id,
                missing.since if missing else None,
                not entry.is_unpublished,
                missing.task_group_id if missing else "",
                missing is not None and missing.has_artifacts,
                entry.tries,
                entry.due,
            )

    def next_fires(self, end: datetime) -> datetime | None:
        """When the next timer fires, None if it is later than ``end``.

        A timer that failed waits until its task is due, or until ``end``: otherwise a clock that is moved by
        a week would try a broker that is away every two seconds of that week.
        """
        with self._lock:
            while self._heap and self._heap[0][0] <= end:
                fires, _, task_id = self._heap[0]
                if self._is_current(self._heap[0]):
                    entry = self._entries[task_id]
                    later = entry.due if entry.due and fires <= entry.due < end else end
                    if not entry.tries or fires == later:
                        return fires
                    self._push(task_id, entry, later)
                heapq.heappop(self._heap)
        return None

    # Messages

    @property
    def size(self) -> int:
        """How many timers there are."""
        return len(self._entries)

    @property
    def keeps_more(self) -> bool:
        """Whether a timer that waits stays in memory."""
        return self._keeps_waiting and len(self._entries) <= self._max_kept

    def to_renew(self, until: datetime) -> list[SharedMessage]:
        """The messages that are visible to other processes then."""
        with self._lock:
            return [message for message in self._messages.values() if message.visible <= until]

    def to_hand_over(self) -> list[SharedMessage]:
        """The messages with timers that other processes must not wait for. No timer is kept from now on."""
        with self._lock:
            self._keeps_waiting = False
            unfinished = {id(entry.message) for entry in self._entries.values() if not entry.is_waiting}
            return [
                message for message in self._messages.values() if message.is_open or id(message) in unfinished
            ]

    def close(self, messages: Iterable[SharedMessage], now: datetime) -> tuple[list[Timer], list[Timer]]:
        """No call begins on these messages any more. Returns what new messages must say instead: timers
        whose effects may be missing, and timers that wait.
        """
        unfinished: list[Timer] = []
        waiting: list[Timer] = []
        with self._lock:
            for message in messages:
                message.is_open = False
            for task_id in dict.fromkeys(task_id for message in messages for task_id in message.timers):
                entry = self._entries.get(task_id)
                # a timer with an open message needs no other
                if entry and not entry.message.is_open:
                    timers = waiting if entry.is_waiting else unfinished
                    timers.append(entry.timer(task_id, now))
        return unfinished, waiting

    def renewed(self, message: SharedMessage, said: Sequence[Timer]) -> None:
        """The message was put and says this. It replaces messages that were closed."""
        with self._lock:
            moved = []
            for content in said:
                entry = self._entries.get(content.task_id)
                if entry and not entry.message.is_open and _covers(content, entry):
                    moved.append((content, entry))
            # A timer may have fired since the message was closed: then this message is needed, and must not
            # be deleted before the timers that it shares are handled, too.
            is_needed = message.is_open or any(not entry.is_waiting for _, entry in moved)
            if self.keeps_more or is_needed or not moved:
                self._messages[message.lease.message_id] = message
                for content, entry in moved:
                    self._move(entry, content, message)
                self._discard_if_unused(message)
            else:
                for content, entry in moved:
                    self._drop(content.task_id, entry)

    def release(self, messages: Iterable[SharedMessage]) -> None:
        """These messages were replaced: they are unused, unless a new one does not cover a timer."""
        with self._lock:
            for message in messages:
                for task_id in list(message.timers):
                    entry = self._entries.get(task_id)
                    if entry is None or entry.message is not message:
                        del message.timers[task_id]
                self._discard_if_unused(message)

    def take_over(self, received: SharedMessage, timers: Iterable[Timer], now: datetime) -> None:
        """Keep the timers of a message that another process left."""
        with self._lock:
            own = self._messages.get(received.lease.message_id)
            message = own or received
            message.lease = received.lease
            message.visible = received.visible
            self._messages[message.lease.message_id] = message
            for timer in timers:
                if own is None or timer.task_id not in self._entries:  # else the timer in memory is newer
                    self._take_over(timer, message, now)
            self._discard_if_unused(message)

    def take_unused(self) -> list[SharedMessage]:
        """The messages to be deleted; each is returned once."""
        with self._lock:
            unused = self._unused
            self._unused = []
            return unused

    # All below: called with the lock.

    def _begin(self, entry: _Entry, timer: Timer) -> None:
        entry.begin()
        entry.missing = timer.plus(entry.missing)

    def _end(self, task_id: str, entry: _Entry, now: datetime) -> None:
        entry.end()
        if not entry.is_waiting:
            return
        if entry.due is None:
            self._drop(task_id, entry)
        elif self._keeps_waiting:
            self._fire_at(task_id, entry, entry.due, now)

    def _take_over(self, timer: Timer, message: SharedMessage, now: datetime) -> None:
        if timer.since:
            timer = replace(timer, since=max(EVER, timer.since - _MAX_SKEW))
        entry = self._entries.setdefault(timer.task_id, _Entry(message))
        if timer.since:
            entry.missing = timer.plus(entry.missing)
            entry.is_behind = True
            entry.is_unpublished = True
            self._fire_at(timer.task_id, entry, now, now)
        else:
            entry.due = _earliest(entry.due, timer.due)
            entry.overlapped = True  # a call under way does not know this time
            if entry.is_waiting and entry.due:
                self._fire_at(timer.task_id, entry, entry.due, now)
        message.timers[timer.task_id] = timer
        # If neither message covers what both together say, the timer keeps its message. The received one
        # stays beside it until it is renewed: what is put then says all.
        if entry.message is not message and _covers(timer, entry):
            self._move(entry, timer, message)

    def _move(self, entry: _Entry, content: Timer, message: SharedMessage) -> None:
        before = entry.message
        entry.message = message
        message.timers[content.task_id] = content
        if before is not message:
            before.timers.pop(content.task_id, None)
            self._discard_if_unused(before)

    def _drop(self, task_id: str, entry: _Entry) -> None:
        del self._entries[task_id]
        del entry.message.timers[task_id]
        self._discard_if_unused(entry.message)

    def _discard_if_unused(self, message: SharedMessage) -> None:
        if not message.timers and message.lease.message_id in self._messages:
            del self._messages[message.lease.message_id]
            message.is_open = False
            self._unused.append(message)

    def _fire_at(self, task_id: str, entry: _Entry, fires: datetime, now: datetime) -> None:
        if fires <= now:
            self._make_ready(task_id)
        else:
            self._push(task_id, entry, fires)

    def _make_ready(self, task_id: str) -> None:
        self._entries[task_id].fires = None
        self.ready.put(task_id)

    def _push(self, task_id: str, entry: _Entry, fires: datetime) -> None:
        entry.fires = fires
        if len(self._heap) > 2 * len(self._entries):  # most are outdated: of tasks that ended early
            # by taskId, since a time that was pushed twice is current twice
            current = {pushed[2]: pushed for pushed in self._heap if self._is_current(pushed)}
            self._heap = list(current.values())
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (fires, next(self._order), task_id))

    def _is_current(self, pushed: tuple[datetime, int, str]) -> bool:
        fires, _, task_id = pushed
        entry = self._entries.get(task_id)
        return entry is not None and entry.fires == fires


def _covers(said: Timer, entry: _Entry) -> bool:
    """Whether a message that says this saves the timer if the process dies now.

    A message about missing effects is visible soon, and so covers every time that the task is due. One that
    waits is visible at its time: it also covers a handler that has just begun, since that began at its time.
    """
    if said.since is None:
        return entry.missing is None and (entry.due is None or said.due <= entry.due)
    return entry.missing is None or said.includes(entry.missing)


def _earliest(*times: datetime | None) -> datetime | None:
    return min((time for time in times if time), default=None)
