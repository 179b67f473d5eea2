"""Virtual time: a greenlet that waits goes on when the time of the world has come, and not before.

The greenlets are gevent's, as in the server: its locks, events, queues and threads are those of production.
Only waiting for some time is another, see ``Waiter`` in ``ports``. One greenlet runs at a time, until it
waits, and the next is that whose time comes first: the same run each time.
"""

import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import gevent

from legacy_queue.domain.times import to_milliseconds
from legacy_queue.ports import Clock, Flag, Waiter

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)


class Alarm:
    """Something that happens at a time, unless it is canceled."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act: Callable[[], object] | None = act

    def cancel(self) -> None:
        self.act = None


class VirtualTime:
    def __init__(self) -> None:
        self.now = 0.0
        self._alarms: list[tuple[float, int, Alarm]] = []
        self._numbers = itertools.count()
        self._hub: Any = gevent.get_hub()
        self._watchers = self._hub.loop.activecnt  # while no greenlet sleeps
        gevent.setswitchinterval(60)  # a slow machine must not let one that slept go first

    def after(self, seconds: float, act: Callable[[], object]) -> Alarm:
        """Call ``act`` then, between the steps of all greenlets: it must not wait."""
        alarm = Alarm(act)
        heapq.heappush(self._alarms, (self.now + max(0.0, seconds), next(self._numbers), alarm))
        return alarm

    def sleep(self, seconds: float) -> None:
        alarm = self.after(seconds, gevent.getcurrent().switch)
        try:
            self._hub.switch()
        finally:
            alarm.cancel()

    def wait(self, flag: Any, seconds: float) -> None:
        """Return when gevent's Event is set, or its AsyncResult is there; at the latest after that time."""
        if flag.ready():
            return
        go_on = gevent.getcurrent().switch
        alarm = self.after(seconds, go_on)
        flag.rawlink(go_on)
        try:
            self._hub.switch()
        finally:
            alarm.cancel()
            flag.unlink(go_on)

    def run(self, until: float = float("inf"), ended: Callable[[], bool] = lambda: False) -> None:
        self._run_greenlets()
        while not ended():
            if not self._alarms or self._alarms[0][0] > until:
                self.now = max(self.now, until) if until < float("inf") else self.now
                return
            time, _, alarm = heapq.heappop(self._alarms)
            if alarm.act:
                self.now = max(self.now, time)
                self._hub.loop.run_callback(alarm.act)
                self._run_greenlets()

    def _run_greenlets(self) -> None:
        """Return when each greenlet waits for another, or for a time of the world."""
        loop = self._hub.loop
        goes_on = gevent.getcurrent().switch
        while True:
            loop.run_callback(goes_on)
            self._hub.switch()  # until all that was ready before has run
            if loop._callbacks:  # noqa: SLF001
                continue
            if loop.activecnt <= self._watchers:
                return
            gevent.idle()  # ``let_others_run`` sleeps for a moment of real time


class VirtualWaiter(Waiter):
    """``resume`` is called after each wait: it returns when the process can go on."""

    def __init__(self, time: VirtualTime, resume: Callable[[], None]) -> None:
        self._time = time
        self._resume = resume

    def sleep(self, seconds: float) -> None:
        self._time.sleep(seconds)
        self._resume()

    def wait(self, flag: Flag, seconds: float) -> bool:
        self._time.wait(flag, seconds)
        self._resume()
        return flag.is_set()


class VirtualClock(Clock):
    """The clock of a machine, which may be wrong by ``skew``."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self.skew = timedelta(0)

    def now(self) -> datetime:
        return self.at(self._time.now)

    def at(self, seconds: float) -> datetime:
        return to_milliseconds(BEGIN + timedelta(seconds=seconds) + self.skew)

    def wall_time(self) -> datetime:
        return self.now()

    def wall_time_of(self, time: datetime) -> datetime:
        return time

    def monotonic(self) -> timedelta:
        return timedelta(days=1, seconds=self._time.now)
