"""Timers of this process's own transitions: armed before the write, confirmed after the last consequence.

A confirmation is not urgent: it waits a while, and where the task is known to be resolved by then, the timer
is removed instead of moved to its time. After a burst the timer may fire first: this process then knows that
it is confirmed, and repeats nothing.
"""

import heapq
import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import Lock

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.messages import Lease
from legacy_queue.domain.task import Task
from legacy_queue.domain.timers import CLAIMS, RESOLVED, Timer
from legacy_queue.ports import Clock, LeaseLost
from legacy_queue.services.together import for_each
from legacy_queue.stores import OwnQueues, TaskStore

_AT_ONCE = timedelta(0)
_BATCH = 16
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)


# (act, items): calls ``act`` with each of them
Each = Callable[[Callable[["Armed"], None], Sequence["Armed"]], object]


@dataclass(frozen=True)
class Armed:
    """A timer in its queue, and the lease with which it can be moved or removed until it first fires."""

    timer: Timer
    lease: Lease

    @property
    def first_fires(self) -> datetime:
        return self.timer.armed + self.timer.first_fires_after()


class Timers:
    """``expect`` is told when a timer will be visible: (queue, time). ``hand`` takes a confirmed one of the
    queue ``resolved`` that may be handled at once, and says whether it does.
    """

    def __init__(self, queues: OwnQueues, tasks: TaskStore, clock: Clock) -> None:
        self._queues, self._tasks, self._clock = queues, tasks, clock
        self._confirmed: dict[str, Armed] = {}  # by messageId
        self._to_move: list[tuple[datetime, int, Armed]] = []  # a heap of those: when, first come
        self._order = itertools.count()
        self._lock = Lock()
        self.expect: Callable[[str, datetime], None] = lambda _queue, _time: None
        self.hand: Callable[[Armed], bool] = lambda _armed: False

    def arm(self, timer: Timer) -> Armed:
        """Put the timer: unless it is confirmed, it soon fires."""
        timer = replace(timer, armed=self._clock.now())
        armed = Armed(timer, self._queues.put(timer.queue, timer.text(), timer.first_fires_after()))
        self.expect(timer.queue, armed.first_fires)
        return armed

    def withdraw(self, armed: Armed) -> None:
        """The transition did not happen: the timer has nothing to see to. Best effort: it does no harm."""
        with suppress(LeaseLost, ServiceUnavailable):
            self._queues.remove(armed.timer.queue, armed.lease)

    def confirm(self, armed: Armed) -> None:
        """Everything that the transition causes was told and done; raises ServiceUnavailable."""
        armed = replace(armed, timer=armed.timer.confirmed())
        if armed.timer.queue != RESOLVED:
            when = armed.timer.armed + armed.timer.first_fires_after() / 2
            with self._lock:
                self._confirmed[armed.lease.message_id] = armed
                heapq.heappush(self._to_move, (when, next(self._order), armed))
        elif not self.hand(armed):
            self._move(armed, _AT_ONCE)

    def fires_confirmed(self, message_id: str) -> bool:
        """Whether this process has confirmed the timer, which fires now; then it is not moved any more."""
        with self._lock:
            return self._confirmed.pop(message_id, None) is not None

    def settle(self, each: Each = for_each) -> None:
        """Move the timers that were confirmed a while ago to their times, or remove them, by ``each``.

        Called every now and then. Raises ServiceUnavailable.
        """
        while due := self._take(self._clock.now(), _BATCH):
            each(self._settle, due)

    def settle_all(self, within: timedelta) -> int:
        """Move all that were confirmed, before the process ends; how many are left when the time is over.

        Those fire, and tell again what was told. Raises ServiceUnavailable.
        """
        end = self._clock.now() + within
        while self._clock.now() < end and (confirmed := self._take(_END_OF_TIME, _BATCH)):
            for_each(self._settle, confirmed)
        return len(self._confirmed)

    def _take(self, until: datetime, count: int) -> list[Armed]:
        """Up to so many that are to be moved by then, the earliest first."""
        taken: list[Armed] = []
        with self._lock:
            while self._to_move and self._to_move[0][0] <= until and len(taken) < count:
                _, _, armed = heapq.heappop(self._to_move)
                if self._confirmed.pop(armed.lease.message_id, None):
                    taken.append(armed)
        return taken

    def _settle(self, armed: Armed) -> None:
        timer = armed.timer
        known = self._tasks.recall(timer.task_id)
        if timer.due is None or (known and _is_past(timer, known.task)):
            self.withdraw(armed)
        else:
            self._move(armed, max(_AT_ONCE, timer.due - self._clock.now()))

    def _move(self, armed: Armed, delay: timedelta) -> None:
        with suppress(LeaseLost):  # it has fired already, and told again what was told
            self._queues.hide(armed.timer.queue, armed.lease, armed.timer.text(), delay)
            self.expect(armed.timer.queue, self._clock.now() + delay)


def _is_past(timer: Timer, task: Task) -> bool:
    """Whether nothing is left that the timer could do."""
    if timer.queue == CLAIMS and timer.run_id is not None and timer.run_id < len(task.runs):
        return task.runs[timer.run_id].is_resolved
    return task.is_resolved
