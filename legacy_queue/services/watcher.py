"""The one loop that watches a queue of timers and has them handled."""

import heapq
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.timers import Timer
from legacy_queue.ports import Clock, Corrupt, LeaseLost
from legacy_queue.services.leases import LEASE, RENEWED_EVERY, LeasedMessage, repeated
from legacy_queue.services.poison import set_aside
from legacy_queue.services.timers import Armed
from legacy_queue.stores import OwnQueues, ReceivedMessage

log = structlog.get_logger()

_STEP = timedelta(seconds=5)  # how long a handler may go on: it stops between two steps, others wait for it
_MAX_TRIES = 10
_BATCH = 32
_MOST_HANDED = 64  # that wait in memory; more wait in the queue
_SHORTEST_WAIT = timedelta(seconds=0.25)
_TRY_AGAIN = timedelta(seconds=5)  # where storage could not be reached
_LONGEST_PAUSE = timedelta(minutes=2)  # between tries of a handler that fails


@dataclass(frozen=True)
class Again:
    """The handler is not done with the timer: it fires again, like this, after ``delay``."""

    timer: Timer
    delay: timedelta


# (timer, when to stop between two steps) -> None when it is done with; safe to repeat
Handler = Callable[[Timer, datetime], Again | None]
# (act, items): calls ``act`` with each of them, several at a time
Each = Callable[[Callable[[LeasedMessage], None], Sequence[LeasedMessage]], object]


class Expected:
    """The times, in whole seconds, at which there will be something to see."""

    def __init__(self) -> None:
        self._heap: list[int] = []  # seconds since 1970, each once
        self._known: set[int] = set()
        self._lock = threading.Lock()

    def add(self, time: datetime) -> bool:
        """Whether it is the earliest."""
        second = math.ceil(time.timestamp()) + 1  # storage counts whole seconds from when it was asked
        with self._lock:
            if second not in self._known:
                self._known.add(second)
                heapq.heappush(self._heap, second)
            return self._heap[0] == second

    def until_next(self, now: datetime) -> float:
        """Seconds until the earliest that is to come, infinitely many if there is none."""
        with self._lock:
            while self._heap and self._heap[0] <= now.timestamp():
                self._known.discard(heapq.heappop(self._heap))
            return self._heap[0] - now.timestamp() if self._heap else math.inf


class Watcher:
    """Has the timers of one queue handled, several at a time.

    A timer is removed only after its handler has returned; its lease is short, and renewed meanwhile. One
    whose handler fails is tried again, later each time, and set aside after a number of tries. While there
    are none, the queue is asked less and less often, up to every ``idle``; a timer of this process's own is
    not waited for any longer than it takes to fire. ``fires_confirmed`` says whether the timer with that
    messageId is confirmed though its text does not say so.
    """

    def __init__(
        self,
        name: str,
        queues: OwnQueues,
        handle: Handler,
        clock: Clock,
        idle: timedelta,
        fires_confirmed: Callable[[str], bool] = lambda _message_id: False,
        renewed_every: timedelta = RENEWED_EVERY,
    ) -> None:
        self.name = name
        self._queues, self._handle, self._clock, self._idle = queues, handle, clock, idle
        self._fires_confirmed, self._renewed_every = fires_confirmed, renewed_every
        self._wait = _SHORTEST_WAIT
        self._expected = Expected()
        self._handed: deque[Armed] = deque()
        self._asked: datetime | None = None  # when the queue was, last
        self._has_more = self._is_ending = False
        self._wake = threading.Event()

    def expect(self, time: datetime) -> None:
        """A timer will be visible then."""
        if self._expected.add(time):
            self._wake.set()

    def hand(self, armed: Armed) -> bool:
        """Handle a timer that this process has just put, without receiving it, unless too many wait."""
        if self._is_ending or len(self._handed) >= _MOST_HANDED:
            return False
        self._handed.append(armed)
        self._wake.set()
        return True

    def hand_back(self) -> None:
        """Nothing is handed to this process any more: what was is visible to others at once.

        Raises ServiceUnavailable.
        """
        self._is_ending = True
        while self._handed:
            armed = self._handed.popleft()
            with suppress(LeaseLost):
                self._queues.hide(self.name, armed.lease, armed.timer.text(), timedelta(0))

    def wake(self) -> None:
        """Look at once."""
        self._wake.set()

    def run(self, stop: threading.Event, each: Each) -> None:
        """Look until ``stop`` is set; ``wake`` it then."""
        while not stop.is_set():
            self._wake.clear()
            try:
                self.look(each)
            except ServiceUnavailable:
                self._has_more = False
            except Exception:
                log.exception("watcher-failed", queue=self.name)
                self._has_more = False
            if not self._has_more:
                self._sleep()

    def look(self, each: Each) -> int:
        """Handle what there is now, by ``each``; how many timers that were. Raises ServiceUnavailable."""
        now = self._clock.now()
        handed = [self._handed.popleft() for _ in range(min(len(self._handed), _BATCH))]
        messages = [ReceivedMessage(armed.lease, armed.timer.text(), 1) for armed in handed]
        received: Sequence[ReceivedMessage] = ()
        if not handed or self._asked is None or now - self._asked >= self._idle:
            self._asked = now
            received = self._queues.receive(self.name, _BATCH, LEASE)
        self._has_more = bool(received or self._handed)
        leased = [LeasedMessage(self._queues, self.name, one) for one in (*messages, *received)]
        if leased:
            self._wait = _SHORTEST_WAIT
            with repeated(lambda: _renew(leased), self._renewed_every):
                each(self._try, leased)
        return len(leased)

    def _sleep(self) -> None:
        """Until somebody wakes it, the next timer that is expected, or the time to ask all the same."""
        until_expected = self._expected.until_next(self._clock.now())
        if not self._wake.wait(min(self._wait.total_seconds(), until_expected)):
            self._wait = min(self._wait * 2, self._idle)

    def _try(self, leased: LeasedMessage) -> None:
        message = leased.message
        if leased.is_lost:
            return  # to another process, which has received it
        try:
            timer = Timer.from_text(self.name, message.text)
        except ValueError as error:
            set_aside(self._queues, self.name, leased.end(), str(error))
            return
        tries = message.dequeue_count - timer.tries
        if tries > _MAX_TRIES:
            set_aside(self._queues, self.name, leased.end(), f"its handler failed {_MAX_TRIES} times")
            return
        if self._fires_confirmed(message.lease.message_id):
            timer = timer.confirmed()
        counted_anew = replace(timer, tries=message.dequeue_count)
        try:
            again = self._handle(timer, self._clock.now() + _STEP)
        except Corrupt as error:
            set_aside(self._queues, self.name, leased.end(), str(error))
            return
        except ServiceUnavailable:
            again = Again(counted_anew, _TRY_AGAIN)
        except Exception:
            log.exception("timer-failed", queue=self.name, task_id=timer.task_id, tries=tries)
            again = Again(timer, min(_LONGEST_PAUSE, timedelta(seconds=2**tries)))
        else:
            again = again and Again(replace(again.timer, tries=message.dequeue_count), again.delay)
        lease = leased.end().lease
        with suppress(LeaseLost, ServiceUnavailable):
            if again is None:
                self._queues.remove(self.name, lease)
            else:
                self._queues.hide(self.name, lease, again.timer.text(), again.delay)
                self.expect(self._clock.now() + again.delay)


def _renew(leased: Sequence[LeasedMessage]) -> None:
    for one in leased:
        one.renew()
