"""The system's clock, a clock that control can move, and waiting by the system."""

import time
from datetime import datetime, timedelta
from threading import Lock

from legacy_queue.domain.times import EPOCH, MILLISECOND
from legacy_queue.ports import AdjustableClock, Clock, Flag, Waiter

_LONG_BEFORE = timedelta(days=365)


class SystemClock(Clock):
    def now(self) -> datetime:
        return EPOCH + time.time_ns() // 1_000_000 * MILLISECOND

    wall_time = now

    def wall_time_of(self, time: datetime) -> datetime:
        return time

    def monotonic(self) -> timedelta:
        return _LONG_BEFORE + timedelta(seconds=time.monotonic())


class SystemWaiter(Waiter):
    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self, flag: Flag, seconds: float) -> bool:
        return flag.wait(seconds)


class MovableClock(AdjustableClock):
    """Runs like the system's clock, but starts from the time to which it was moved."""

    def __init__(self, wall: Clock | None = None) -> None:
        """``wall`` gives the real time, SystemClock by default."""
        self._wall = wall or SystemClock()
        self._offset = timedelta(0)
        self._frozen_at: datetime | None = None
        self._lock = Lock()

    def now(self) -> datetime:
        with self._lock:
            return self._now()

    def wall_time(self) -> datetime:
        return self._wall.wall_time()

    def wall_time_of(self, time: datetime) -> datetime:
        return time - self.offset

    def monotonic(self) -> timedelta:
        return self._wall.monotonic()

    @property
    def offset(self) -> timedelta:
        with self._lock:
            return self._now() - self._wall.wall_time() if self._frozen_at else self._offset

    @property
    def is_frozen(self) -> bool:
        return self._frozen_at is not None

    def move_to(self, time: datetime) -> None:
        with self._lock:
            if time > self._now():
                self._set(time, freezes=self.is_frozen)

    def freeze(self) -> None:
        with self._lock:
            self._set(self._now(), freezes=True)

    def release(self) -> None:
        with self._lock:
            self._set(self._now(), freezes=False)

    def _now(self) -> datetime:
        return self._frozen_at or self._wall.wall_time() + self._offset

    def _set(self, time: datetime, *, freezes: bool) -> None:
        self._frozen_at = time if freezes else None
        self._offset = time - self._wall.wall_time()
