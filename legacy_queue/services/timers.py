"""The timers of this process: durable before a task is written, and kept until all effects are there.

Many timers share a message. Concurrent calls put one together; a second transition of a task finds the
message of the first still there, and puts none. While the process lives it renews its messages, so that
nobody else receives them. Within 15 s of its death they are visible, and another process takes them over.
Source: "Timers and recovery" in design/protocol.md.
"""

import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue
from threading import Lock

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import EVER
from legacy_queue.domain.timers import MAX_TEXT, ArtifactName, Timer, text_length
from legacy_queue.ports import Clock
from legacy_queue.services.timer_state import Due, Message, State
from legacy_queue.stores.group_commit import GroupCommit
from legacy_queue.stores.timers import TimerMessage, TimerStore

LEASE = timedelta(seconds=15)  # of timers whose effects are missing: what a dead process left goes on then

_RENEWED_BEFORE = LEASE / 2
_GRACE = timedelta(seconds=10)  # after a timer is due: until then, it is for the process that keeps it
_SKEW = timedelta(minutes=1)  # of another process's clock
_LONGEST_HIDDEN = timedelta(days=6)  # Azure hides no message for longer than a week
_RENEWED_AGAIN = timedelta(seconds=1)  # after storage could not be reached


class Timers:
    """Each call of ``schedule`` is followed by one of ``complete``, ``abandon`` and ``fall_behind``.

    ``fires``: whether timers fire in this process when they are due, and those of other processes are
    received; else only what its own calls left undone does.
    """

    def __init__(
        self, store: TimerStore, clock: Clock, *, fires: bool = True, max_kept: int = 100_000
    ) -> None:
        """Beyond ``max_kept`` timers in memory, those that wait do so in their messages alone."""
        self._store, self._clock, self._fires, self._max_kept = store, clock, fires, max_kept
        self._commits = GroupCommit(self._commit, 1000, MAX_TEXT, text_length)
        self._states: dict[str, State] = {}
        self._messages: dict[str, Message] = {}  # by messageId
        self._renewals: list[tuple[datetime, int, Message]] = []  # a heap: when to renew which
        self._waiting: list[tuple[datetime, int, str]] = []  # a heap: when which timer fires
        self._unused: list[Message] = []  # to be deleted
        self._ready: SimpleQueue[str | None] = SimpleQueue()
        self._order = itertools.count()
        self._lock = Lock()

    def schedule(
        self, task_id: str, since: datetime, task_group_id: str = "", artifacts: Sequence[ArtifactName] = ()
    ) -> None:
        """Return once a timer is stored that repeats, unless it is completed, the effects of what follows.

        ``since`` is no later than that transition. Raises ServiceUnavailable: nothing is scheduled.
        """
        timer = Timer(task_id, since, since, task_group_id, tuple(artifacts))
        with self._lock:
            state = self._states.get(timer.task_id)
            is_open = state and state.message.is_open and self._clock.now() < state.message.fires
            if state and is_open and not (artifacts or task_group_id):  # which that message may not name
                state.use(timer)
                return
        self._commits.add(timer)

    def complete(self, task_id: str, due: datetime | None) -> None:
        """All effects are there; the task is to be looked at again when it is ``due``, None for never."""
        with self._lock:
            state = self._states[task_id]
            state.tries, state.is_foreign = 0, False
            self._end_use(task_id, state, due)

    def abandon(self, task_id: str) -> None:
        """The transition has not happened, and has no effects."""
        with self._lock:
            state = self._states[task_id]
            self._end_use(task_id, state, state.due)

    def fall_behind(
        self,
        task_id: str,
        due: datetime | None = None,
        *,
        is_published: bool = False,
        again: timedelta = timedelta(0),
        tries: int = 0,
    ) -> None:
        """Effects are missing, other than events if ``is_published``: the timer fires after ``again``."""
        with self._lock:
            state = self._states[task_id]
            state.is_behind, state.tries, state.due = True, tries, due
            state.is_unpublished |= not is_published
            self._end_use(task_id, state, due)
            self._fire_at(task_id, state, self._clock.now() + again)

    def is_unpublished(self, task_id: str) -> bool:
        """Whether earlier events of the task are missing, which are to come before later ones."""
        state = self._states.get(task_id)
        return state is not None and state.is_unpublished

    def take(self, timeout: float | None) -> Due | None:
        """A timer that has fired; wait so many seconds for it, None for not at all.

        It is followed by a call of ``complete`` or ``fall_behind``.
        """
        with suppress(Empty):
            while key := self._ready.get(timeout is not None, timeout):
                with self._lock:
                    state = self._states.get(key)
                    if state and state.again is None and (state.is_behind or not state.users):
                        return state.take(key)
        return None

    def wake(self, count: int) -> None:
        """End so many waits of ``take``."""
        for _ in range(count):
            self._ready.put(None)

    def tick(self) -> None:
        """Let fire what is due, renew the messages whose time comes, and delete what is not needed.

        To be called about twice a second. Raises ServiceUnavailable.
        """
        now = self._clock.now()
        with self._lock:
            while self._waiting and self._waiting[0][0] <= now:
                when, _, key = heapq.heappop(self._waiting)
                state = self._states.get(key)
                if state and state.again == when:
                    state.again = None
                    self._ready.put(key)
        self._renew(now)
        self._delete()

    def receive(self) -> int:
        """Take over timers whose process is gone, or leaves them to others; how many messages those were.

        Raises ServiceUnavailable.
        """
        received = self._store.receive(LEASE)
        for message in received:
            self._take_over(message)
        return len(received)

    def leave(self) -> None:
        """Leave all timers to other processes, before this one ends. Raises ServiceUnavailable."""
        self._fires = False
        with self._lock:
            unfinished = {id(one.message) for one in self._states.values() if one.is_unfinished}
            left = [one for one in self._messages.values() if one.is_open or id(one) in unfinished]
        self._move_on(left, timedelta(0))
        self._delete()

    # the next ones are called with the lock

    def _end_use(self, task_id: str, state: State, due: datetime | None) -> None:
        if not state.end(due):
            return
        if state.due is None:
            self._drop(task_id, state)
        elif self._fires:
            self._fire_at(task_id, state, state.due)

    def _fire_at(self, key: str, state: State, when: datetime) -> None:
        if when <= self._clock.now():
            state.again = None
            self._ready.put(key)
        else:
            state.again = when
            heapq.heappush(self._waiting, (when, next(self._order), key))

    def _part(self, key: str, message: Message) -> None:
        message.task_ids.discard(key)
        if not message.task_ids and message.lease.message_id in self._messages:
            message.is_open = False
            self._unused.append(message)
            del self._messages[message.lease.message_id]

    def _add(self, message: Message) -> None:
        self._messages[message.lease.message_id] = message
        heapq.heappush(self._renewals, (message.fires - _RENEWED_BEFORE, next(self._order), message))

    def _drop(self, key: str, state: State) -> None:
        del self._states[key]
        for message in (state.message, *state.older):
            self._part(key, message)

    def _move(self, key: str, state: State, message: Message, *, says_all: bool) -> None:
        old = [one for one in (state.message, *state.older) if one is not message]
        state.message, state.older = message, [] if says_all else old
        message.task_ids.add(key)
        for one in old if says_all else ():
            self._part(key, one)

    # and these without it

    def _commit(self, timers: Sequence[Timer]) -> None:
        for message, some in self._put(timers, LEASE, is_open=True):
            with self._lock:
                self._add(message)
                for timer in some:
                    state = self._states.setdefault(timer.task_id, State(message))
                    self._move(timer.task_id, state, message, says_all=not state.is_unfinished)
                    state.use(timer)

    def _put(
        self, timers: Iterable[Timer], hidden_for: timedelta, *, is_open: bool
    ) -> Iterator[tuple[Message, Sequence[Timer]]]:
        fires = self._clock.now() + hidden_for
        for put in self._store.put(timers, hidden_for):
            yield Message(put.lease, fires, is_open), put.timers

    def _renew(self, now: datetime) -> None:
        due = []
        with self._lock:
            while self._renewals and self._renewals[0][0] <= now:
                message = heapq.heappop(self._renewals)[2]
                due += [message] if message.lease.message_id in self._messages else []
        if not due:
            return
        try:
            self._move_on(due, LEASE)
        except ServiceUnavailable:
            with self._lock:
                for message in due:
                    heapq.heappush(self._renewals, (now + _RENEWED_AGAIN, next(self._order), message))
            raise

    def _move_on(self, messages: Sequence[Message], lease: timedelta) -> None:
        """What is unfinished in these messages goes into new ones, hidden for ``lease``; the rest waits."""
        with self._lock:
            for message in messages:
                message.is_open = False
            states = {key: self._states[key] for message in messages for key in message.task_ids}
            old = {key: state.message for key, state in states.items()}
            unfinished = {key for key, state in states.items() if state.is_unfinished}
        now = self._clock.now()
        waiting = defaultdict(list)
        for key, state in states.items():
            if key not in unfinished:
                due = state.due or now
                waiting[math.log2(max(1.0, (due - now).total_seconds())) // 1].append(state.timer(key, due))
        moves = [([states[key].timer(key, now) for key in unfinished], lease, lease > timedelta(0))]
        moves += [(timers, self._until(timers, now), False) for timers in waiting.values()]
        for timers, hidden_for, is_open in moves:
            for message, some in self._put(timers, hidden_for, is_open=is_open):
                self._moved(message, {timer.task_id: old[timer.task_id] for timer in some})

    def _until(self, timers: Iterable[Timer], now: datetime) -> timedelta:
        """How long a message of these, which wait, is hidden."""
        grace = _GRACE if self._keeps_more else timedelta(0)
        return min(_LONGEST_HIDDEN, max(timedelta(0), min(one.due for one in timers) - now + grace))

    @property
    def _keeps_more(self) -> bool:
        return self._fires and len(self._states) <= self._max_kept

    def _moved(self, message: Message, old: Mapping[str, Message]) -> None:
        """The new message is there for those timers that no call has put into another one meanwhile."""
        keeps = message.is_open or self._keeps_more
        with self._lock:
            self._add(message)
            for key, before in old.items():
                state = self._states.get(key)
                if state is None or state.message is not before:
                    continue
                if keeps or state.is_unfinished:  # it may have fired meanwhile
                    self._move(key, state, message, says_all=True)
                else:
                    self._drop(key, state)
            if keeps and not message.task_ids:
                self._part("", message)
            elif not message.task_ids:
                del self._messages[message.lease.message_id]

    def _take_over(self, received: TimerMessage) -> None:
        now = self._clock.now()
        with self._lock:
            message = self._messages.get(received.lease.message_id)
            is_own = message is not None
            if message is None:
                message = Message(received.lease, now + LEASE, is_open=False)
            message.lease, message.fires = received.lease, now + LEASE
            self._add(message)
            for timer in received.timers:
                self._take_over_one(timer, message, now, is_own=is_own)
            if not message.task_ids:
                self._part("", message)

    def _take_over_one(self, timer: Timer, message: Message, now: datetime, *, is_own: bool) -> None:
        state = self._states.get(timer.task_id)
        if state and (is_own or timer.since is None):
            return  # this process keeps it, and knows better
        if state is None:
            state = self._states[timer.task_id] = State(message, due=timer.due)
            message.task_ids.add(timer.task_id)
        if timer.since:
            self._move(timer.task_id, state, message, says_all=not state.is_unfinished)
            state.add(timer, max(EVER, timer.since - _SKEW))
            state.is_behind = state.is_unpublished = state.is_foreign = True
        self._fire_at(timer.task_id, state, now if timer.since else timer.due)

    def _delete(self) -> None:
        with self._lock:
            unused, self._unused = self._unused, []
        for message in unused:
            self._store.remove(message.lease)
