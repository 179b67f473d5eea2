"""The timers of this process: stored before a task is written, and kept until all effects are applied.

What a timer needs is decided in ``timer_table``; here the messages are put, renewed, received and deleted.
Concurrent calls put one message for all of them. While the process lives it renews its messages. Another
process receives them within 15 s of its death. Source: docs/explanation/recovery.md#timers.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from queue import Empty

from legacy_queue.domain.timer import Timer
from legacy_queue.ports import Clock
from legacy_queue.services.recovery.timer_table import FiredTimer, SharedMessage, TimerTable
from legacy_queue.stores.group_commit import GroupCommit
from legacy_queue.stores.timer_store import TimerStore

TIMER_LEASE = timedelta(seconds=15)  # of timers whose effects are missing: another process gets them after it
_RENEWED_BEFORE = TIMER_LEASE / 2
_GRACE = timedelta(seconds=10)  # for the process that keeps a due timer, before others receive it
_MAX_HIDDEN = timedelta(days=6)  # Azure hides a message for a week at most
_MAX_COMMIT = 500  # timers; about what one message holds
_NO_DELAY = timedelta(0)


class Timers:
    """After ``schedule`` the caller calls ``complete``, ``cancel`` or ``retry_later`` once.

    ``fires``: due timers fire here, and timers of other processes are received. Else only missing effects of
    own calls are retried. Beyond ``max_kept`` timers in memory, waiting timers are in their messages alone.
    """

    def __init__(self, store: TimerStore, clock: Clock, fires: bool = True, max_kept: int = 100_000) -> None:
        self._store = store
        self._clock = clock
        self._table = TimerTable(keeps_waiting=fires, max_kept=max_kept)
        self._commits = GroupCommit(self._commit, _MAX_COMMIT)

    @property
    def waiting(self) -> int:
        """How many timers wait to be stored."""
        return self._commits.waiting

    def in_memory(self) -> int:
        """How many timers this process has in memory."""
        return self._table.size

    def late(self) -> int:
        """How many have fired and wait to be handled."""
        return self._table.ready.qsize()

    def schedule(
        self, task_id: str, since: datetime, task_group_id: str = "", *, has_artifacts: bool = False
    ) -> None:
        """Return once a timer is stored. It fires and repeats the effects of a transition, unless completed.

        ``since`` is no later than that transition. Raises ServiceUnavailable: no timer is scheduled.
        """
        timer = Timer(task_id, since, since, task_group_id, has_artifacts)
        if not self._table.begin(timer, self._clock.now()):
            self._commits.add(timer)

    def complete(self, task_id: str, due: datetime | None) -> None:
        """All effects are applied. The timer fires next when the task is ``due``, None for never."""
        self._table.complete(task_id, due, self._clock.now())

    def cancel(self, task_id: str) -> None:
        """The transition was not written, and has no effects."""
        self._table.cancel(task_id, self._clock.now())

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
        now = self._clock.now()
        self._table.retry_later(task_id, due, now + delay, now, is_published=is_published, tries=tries)

    def is_unpublished(self, task_id: str) -> bool:
        """Whether earlier events of the task are missing. They must be published before later events."""
        return self._table.is_unpublished(task_id)

    def has_other_calls(self, task_id: str) -> bool:
        """See ``TimerTable.has_other_calls``."""
        return self._table.has_other_calls(task_id)

    def next_fired(self, *, waits: bool) -> FiredTimer | None:
        """A fired timer. None if there is none, or, if this ``waits``, after a ``wake``.

        After it the caller calls ``complete`` or ``retry_later``.
        """
        with suppress(Empty):
            while (task_id := self._table.ready.get(block=waits)) or not waits:
                fired = self._table.take(task_id)
                if fired:
                    return fired
        return None

    def wake(self) -> None:
        """End a wait of ``next_fired``."""
        self._table.ready.put("")

    def tick(self) -> None:
        """Fire timers, renew and delete messages; to be called twice a second. Raises ServiceUnavailable."""
        self.fire()
        self._replace(self._table.to_renew(self._clock.now() + _RENEWED_BEFORE), TIMER_LEASE)
        self._delete()

    def fire(self) -> None:
        """Fire the timers that are due."""
        self._table.fire(self._clock.now())

    def retry_now(self) -> None:
        """Fire the timers of missing effects: the broker is back."""
        self._table.retry_now()

    def next_fires(self, end: datetime) -> datetime | None:
        """See ``TimerTable.next_fires``."""
        return self._table.next_fires(end)

    def receive(self) -> int:
        """Take over timers of other processes. Returns the number of messages. Raises ServiceUnavailable."""
        messages = self._store.receive(TIMER_LEASE)
        now = self._clock.now()
        for received in messages:
            message = SharedMessage(received.lease, now + TIMER_LEASE, is_open=False)
            self._table.take_over(message, received.timers, now)
        return len(messages)

    def hand_over(self) -> None:
        """Make other processes receive all timers, before this process ends. Raises ServiceUnavailable."""
        self._replace(self._table.to_hand_over(), _NO_DELAY)
        self._delete()

    def _commit(self, timers: Sequence[Timer]) -> None:
        while timers:
            visible = self._clock.now() + TIMER_LEASE
            # all are put before the first call begins: an error means for every call that none has
            for put in list(self._store.put(self._table.merged(timers), TIMER_LEASE)):
                message = SharedMessage(put.lease, visible, is_open=True)
                timers = self._table.add(message, put.timers, timers)

    def _replace(self, messages: Sequence[SharedMessage], lease: timedelta) -> None:
        """Put the timers of these messages into new messages. Unfinished timers are hidden for ``lease``."""
        now = self._clock.now()
        unfinished, waiting = self._table.close(messages, now)
        if unfinished:
            self._put_again(unfinished, now, lease, is_open=lease > _NO_DELAY)
        grace = _GRACE if self._table.keeps_more else _NO_DELAY
        for timers in _by_time(waiting, now):
            first = min(timer.due for timer in timers) - now + grace
            self._put_again(timers, now, min(_MAX_HIDDEN, max(_NO_DELAY, first)), is_open=False)
        self._table.release(messages)

    def _put_again(
        self, timers: Sequence[Timer], now: datetime, hidden_for: timedelta, *, is_open: bool
    ) -> None:
        for put in self._store.put(timers, hidden_for):
            self._table.renewed(SharedMessage(put.lease, now + hidden_for, is_open), put.timers)

    def _delete(self) -> None:
        for message in self._table.take_unused():
            self._store.remove(message.lease)


def _by_time(timers: Iterable[Timer], now: datetime) -> Iterable[Sequence[Timer]]:
    """Group the timers by when they are due: a group spans at most twice its earliest time from now."""
    groups = defaultdict(list)
    for timer in timers:
        groups[math.log2(max(1.0, (timer.due - now).total_seconds())) // 1].append(timer)
    return groups.values()
