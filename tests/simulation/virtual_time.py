"""Virtual time: a greenlet that waits for a time goes on when the world's time has come, not before.

The greenlets are gevent's, so locks, events, queues and threads are the same as in a server. Only waiting for
a time differs: see ``Waiter`` in ``ports``. One greenlet runs at a time, until it waits. Then comes the
greenlet whose time is next. So every run is the same.
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
    """Something that happens at a given time, unless it is canceled."""

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
        self._watchers = self._hub.loop.activecnt  # the count while no greenlet sleeps
        # on a slow machine, a shorter interval could change the order of the greenlets
        gevent.setswitchinterval(60)

    def after(self, seconds: float, act: Callable[[], object]) -> Alarm:
        """Call ``act`` after this time, between the steps of greenlets. It must not wait."""
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
        """Wait until gevent's Event is set or its AsyncResult is ready, but at most for this time."""
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
        """Run until each greenlet waits for another, or for a time of the world."""
        loop = self._hub.loop
        goes_on = gevent.getcurrent().switch
        while True:
            loop.run_callback(goes_on)
            self._hub.switch()  # returns when everything that was ready before has run
            if loop._callbacks:  # noqa: SLF001
                continue
            if loop.activecnt <= self._watchers:
                return
            gevent.idle()  # ``let_others_run`` sleeps for a moment of real time


class VirtualWaiter(Waiter):
    """Waits on virtual time.

    After each wait it calls ``resume``, which returns when the process can go on.
    """

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
    """The clock of a machine. It is wrong by ``skew``."""

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
