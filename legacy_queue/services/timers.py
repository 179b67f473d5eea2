"""The timers of this process: stored before a task is written, and kept until all effects are applied.

Many timers share a message. Concurrent calls put one message for all of them. A second transition of a task
uses the message of the first if it is still there. While the process lives it renews its messages. Another
process receives them within 15 s of its death. Source: docs/explanation/recovery.md#timers.
"""

import heapq
import itertools
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue
from threading import Lock

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import EVER
from legacy_queue.domain.timer import MAX_TEXT, ArtifactName, Timer, text_length
from legacy_queue.ports import Clock
from legacy_queue.services.timer_state import FiredTimer, Schedule, SharedMessage, State, by_time, time_hidden
from legacy_queue.stores.group_commit import GroupCommit
from legacy_queue.stores.timer_store import TimerMessage, TimerStore

LEASE = timedelta(seconds=15)  # of timers whose effects are missing: another process gets them after it
_RENEWED_BEFORE, _NO_DELAY = LEASE / 2, timedelta(0)
_MAX_SKEW = timedelta(minutes=1)  # of another process's clock


class Timers:
    """After ``schedule`` the caller calls ``complete``, ``cancel`` or ``retry_later`` once.

    ``fires``: due timers fire here, and timers of other processes are received. Else only missing effects of
    own calls are retried. Beyond ``max_kept`` timers in memory, waiting timers are in their messages alone.
    """

    def __init__(self, store: TimerStore, clock: Clock, fires: bool = True, max_kept: int = 100_000) -> None:
        self._store, self._clock, self._fires, self._max_kept = store, clock, fires, max_kept
        self._commits = GroupCommit(self._commit, 1000, MAX_TEXT, text_length)
        self._states: dict[str, State] = {}
        self._messages: dict[str, SharedMessage] = {}  # by messageId
        self._renewals: list[tuple[datetime, int, SharedMessage]] = []  # a heap: when to renew which message
        self._schedule, self._order = Schedule(self._states), itertools.count()
        self._unused: list[SharedMessage] = []  # to be deleted
        self._ready: SimpleQueue[str] = SimpleQueue()  # "" ends a wait
        self._lock = Lock()

    @property
    def waiting(self) -> int:
        """How many timers wait to be stored."""
        return self._commits.waiting

    def schedule(
        self, task_id: str, since: datetime, task_group_id: str = "", artifacts: Sequence[ArtifactName] = ()
    ) -> None:
        """Return once a timer is stored. It fires and repeats the effects of a transition, unless completed.

        ``since`` is no later than that transition. Raises ServiceUnavailable: no timer is scheduled.
        """
        timer = Timer(task_id, since, since, task_group_id, tuple(artifacts))
        with self._lock:
            state = None if artifacts or task_group_id else self._states.get(task_id)
            if state and state.message.is_open and self._clock.now() < state.message.fires:
                state.use(timer)
                return
        self._commits.add(timer)

    def complete(self, task_id: str, due: datetime | None) -> None:
        """All effects are applied. The timer fires next when the task is ``due``, None for never."""
        with self._lock:
            state = self._states[task_id]
            state.tries, state.is_foreign = 0, False
            self._end_use(task_id, state, due)

    def cancel(self, task_id: str) -> None:
        """The transition was not written, and has no effects."""
        with self._lock:
            state = self._states[task_id]
            self._end_use(task_id, state, state.due)

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
            state = self._states[task_id]
            state.is_behind, state.tries, state.due = True, tries, due
            state.is_unpublished |= not is_published
            self._end_use(task_id, state, due)
            self._fire_at(task_id, state, self._clock.now() + delay)

    def is_unpublished(self, task_id: str) -> bool:
        """Whether earlier events of the task are missing. They must be published before later events."""
        state = self._states.get(task_id)
        return state is not None and state.is_unpublished

    def is_unfinished(self, task_id: str) -> bool:
        """Whether effects of the task may be missing."""
        state = self._states.get(task_id)
        return state is not None and state.is_unfinished

    def next_fired(self, timeout: float | None) -> FiredTimer | None:
        """A fired timer, or None after ``timeout`` seconds (None: no wait).

        After it the caller calls ``complete`` or ``retry_later``.
        """
        with suppress(Empty):
            while (key := self._ready.get(timeout is not None, timeout)) or timeout is None:
                with self._lock:
                    state = self._states.get(key)
                    if state and state.again is None and (state.is_behind or not state.users):
                        return state.take(key)
        return None

    def wake(self) -> None:
        """End a wait of ``next_fired``."""
        self._ready.put("")

    def tick(self) -> None:
        """Fire timers, renew and delete messages; to be called twice a second. Raises ServiceUnavailable."""
        self.fire()
        self._renew(self._clock.now())
        self._delete()

    def fire(self) -> None:
        """Fire the timers that are due."""
        with self._lock:
            for key in self._schedule.pop_due(self._clock.now()):
                self._ready.put(key)

    def retry_now(self) -> None:
        """Fire the timers of missing effects: the broker is back."""
        with self._lock:
            for key, state in self._states.items():
                if state.is_behind and state.again:
                    self._fire_at(key, state, self._clock.now())

    def next_due(self, end: datetime) -> datetime | None:
        """See ``Schedule.next_due``."""
        with self._lock:
            return self._schedule.next_due(end)

    def receive(self) -> int:
        """Take over timers of other processes. Returns the number of messages. Raises ServiceUnavailable."""
        for received in (messages := self._store.receive(LEASE)):
            self._take_over(received)
        return len(messages)

    def hand_over(self) -> None:
        """Make other processes receive all timers, before this process ends. Raises ServiceUnavailable."""
        self._fires = False
        with self._lock:
            unfinished = {id(state.message) for state in self._states.values() if state.is_unfinished}
            left = [
                message for message in self._messages.values() if message.is_open or id(message) in unfinished
            ]
        self._move_on(left, _NO_DELAY)
        self._delete()

    # called with the lock:

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
            self._schedule.put(key, when)

    def _detach(self, key: str, message: SharedMessage) -> None:
        message.task_ids.discard(key)
        if not message.task_ids and message.lease.message_id in self._messages:
            message.is_open = False
            self._unused.append(message)
            del self._messages[message.lease.message_id]

    def _add(self, message: SharedMessage) -> None:
        self._messages[message.lease.message_id] = message
        if len(self._renewals) > 2 * len(self._messages):  # most are outdated
            current = {due[2]: due for due in self._renewals if due[2].lease.message_id in self._messages}
            self._renewals = [*current.values()]
            heapq.heapify(self._renewals)
        heapq.heappush(self._renewals, (message.fires - _RENEWED_BEFORE, next(self._order), message))

    def _drop(self, key: str, state: State) -> None:
        del self._states[key]
        for message in state.messages:
            self._detach(key, message)

    def _move(self, key: str, state: State, message: SharedMessage, *, says_all: bool) -> None:
        message.task_ids.add(key)
        others = [other for other in state.messages if other is not message]
        state.messages = [message] if says_all else [*others, message]
        for other in others if says_all else ():
            self._detach(key, other)

    # called without the lock:

    def _commit(self, timers: Sequence[Timer]) -> None:
        fires = self._clock.now() + LEASE
        for put in self._store.put(timers, LEASE):
            message = SharedMessage(put.lease, fires, is_open=True)
            with self._lock:
                self._add(message)
                for timer in put.timers:
                    state = self._states.setdefault(timer.task_id, State())
                    self._move(timer.task_id, state, message, says_all=not state.is_unfinished)
                    state.use(timer)

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
                    heapq.heappush(self._renewals, (now, next(self._order), message))
            raise

    def _move_on(self, messages: Sequence[SharedMessage], lease: timedelta) -> None:
        """Put the timers of these messages into new messages. Unfinished timers are hidden for ``lease``."""
        with self._lock:
            for message in messages:
                message.is_open = False
            states = {key: self._states[key] for message in messages for key in sorted(message.task_ids)}
            old = {key: state.message for key, state in states.items()}
            unfinished = {key for key, state in states.items() if state.is_unfinished}
        items, now, keeps = states.items(), self._clock.now(), self._keeps_more
        waiting = [state.timer(key, state.due or now) for key, state in items if key not in unfinished]
        urgent = [state.timer(key, now) for key, state in items if key in unfinished]
        others = [(timers, time_hidden(timers, now, keeps), False) for timers in by_time(waiting, now)]
        for timers, hidden_for, is_open in ((urgent, lease, lease > _NO_DELAY), *others):
            for put in self._store.put(timers, hidden_for):
                message = SharedMessage(put.lease, now + hidden_for, is_open)
                self._moved(message, {timer.task_id for timer in put.timers}, old)

    @property
    def _keeps_more(self) -> bool:
        return self._fires and len(self._states) <= self._max_kept

    def _moved(self, message: SharedMessage, task_ids: Iterable[str], old: dict[str, SharedMessage]) -> None:
        """Give its timers the new message, unless a call moved them to another message meanwhile.

        A timer that needs several messages is in ``old`` until its first, and then has that as its newest.
        """
        with self._lock:
            keeps = message.is_open or self._keeps_more
            self._add(message)
            for key in task_ids:
                state, before = self._states.get(key), old.pop(key, None)
                if state is None or (before and state.message is not before):
                    pass
                elif keeps or state.is_unfinished:  # the timer may have fired meanwhile
                    self._move(key, state, message, says_all=before is not None)
                else:
                    self._drop(key, state)
            if not message.task_ids and keeps:
                self._detach("", message)
            elif not message.task_ids:
                del self._messages[message.lease.message_id]

    def _take_over(self, received: TimerMessage) -> None:
        now = self._clock.now()
        with self._lock:
            own = self._messages.get(received.lease.message_id)
            message = own or SharedMessage(received.lease, now, is_open=False)
            message.lease, message.fires = received.lease, now + LEASE
            self._add(message)
            for timer in received.timers:
                self._take_over_timer(timer, message, now, is_own=own is not None)
            if not message.task_ids:
                self._detach("", message)

    def _take_over_timer(self, timer: Timer, message: SharedMessage, now: datetime, *, is_own: bool) -> None:
        key = timer.task_id
        if is_own and key in self._states:
            return  # the state in memory is newer
        state = self._states.setdefault(key, State())
        due = min(timer.due, state.due or timer.due)
        says_all = not state.is_unfinished and (timer.since is not None or timer.due == due)
        self._move(key, state, message, says_all=says_all)  # its older messages may be deleted
        if timer.since:
            state.add(timer, max(EVER, timer.since - _MAX_SKEW))
            state.is_behind = state.is_unpublished = state.is_foreign = True
            self._fire_at(key, state, now)
        elif state.is_unfinished:
            state.dues.append(timer.due)
        else:
            state.due = due
            self._fire_at(key, state, due)

    def _delete(self) -> None:
        with self._lock:
            unused, self._unused = self._unused, []
        for message in unused:
            self._store.remove(message.lease)
