"""The threads of a server process: they end when the process does, and leave nothing half-done."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from functools import partial
from typing import TypeVar

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.services.announcer import Announcer
from legacy_queue.services.chores import Chores
from legacy_queue.services.timers import Timers
from legacy_queue.services.watcher import Watcher

log = structlog.get_logger()

_SETTLE_EVERY = timedelta(seconds=0.5)
_DRAIN_FIRST, _DRAIN_IDLE = timedelta(seconds=1), timedelta(seconds=10)
_AT_ONCE = 2  # timers of a queue that are handled, or moved: so few that calls are not slowed by many
_FLUSH_EVERY, _FLUSH_SOON_EVERY = timedelta(seconds=10), timedelta(seconds=0.5)
_END = 10  # seconds that what is under way has left
_SETTLE_ALL = timedelta(seconds=10)

Item = TypeVar("Item")

Flush = Callable[[], None]  # writes down what is only in memory; may raise ServiceUnavailable


class Background:
    """``watchers`` and ``chores`` are empty and None where another process resolves.

    ``waiting`` are called once ``stopping`` is set: each wakes requests that wait, which then end.
    """

    def __init__(
        self,
        timers: Timers,
        announcer: Announcer,
        watchers: Sequence[Watcher],
        chores: Chores | None,
        flushes: Sequence[Flush],
        stopping: threading.Event,
        waiting: Sequence[Callable[[], None]] = (),
        soon: Flush = lambda: None,
    ) -> None:
        """``soon`` writes a little of what is not to wait for ``flushes``."""
        self._timers, self._announcer, self._flushes, self._soon = timers, announcer, flushes, soon
        self._watchers, self._chores = watchers, chores
        self.stopping, self._waiting = stopping, waiting
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads, in the process that is to have them."""
        loops: list[Callable[[], None]] = [self._settle, self._drain, self._flush, self._flush_soon]
        loops += [partial(self._watch, watcher) for watcher in self._watchers]
        if self._chores:
            chores = self._chores
            loops.append(lambda: chores.run(self.stopping))
        self._threads = [threading.Thread(target=loop, daemon=True) for loop in loops]
        for thread in self._threads:
            thread.start()

    def announce_stop(self) -> None:
        """Nothing new begins, and requests that wait are answered. Returns at once, may be repeated."""
        self.stopping.set()
        self._announcer.wake()
        for watcher in self._watchers:
            watcher.wake()
        for wake in self._waiting:
            wake()

    def stop(self) -> None:
        """End them after what they are at, and confirm every timer."""
        self.announce_stop()
        end = time.monotonic() + _END
        for thread in self._threads:
            thread.join(max(0, end - time.monotonic()))
        try:
            for watcher in self._watchers:
                watcher.hand_back()
            left = self._timers.settle_all(_SETTLE_ALL)
            if left:
                log.warning("timers-not-confirmed", left=left)  # they fire, and tell again what was told
        except ServiceUnavailable:
            log.warning("timers-not-confirmed")
        self._flush_all()
        self._announcer.close()

    def _watch(self, watcher: Watcher) -> None:
        with ThreadPoolExecutor(_AT_ONCE, watcher.name) as pool:
            watcher.run(self.stopping, partial(_each, pool))

    def _settle(self) -> None:
        with ThreadPoolExecutor(_AT_ONCE, "settle") as pool:
            while not self.stopping.wait(_SETTLE_EVERY.total_seconds()):
                try:
                    self._timers.settle(partial(_each, pool))
                except ServiceUnavailable:
                    log.warning("timers-not-confirmed")
                except Exception:
                    log.exception("timers-not-confirmed")

    def _flush(self) -> None:
        while not self.stopping.wait(_FLUSH_EVERY.total_seconds()):
            self._flush_all()

    def _flush_soon(self) -> None:
        while not self.stopping.wait(_FLUSH_SOON_EVERY.total_seconds()):
            self._try(self._soon)

    def _flush_all(self) -> None:
        for flush in self._flushes:
            self._try(flush)

    @staticmethod
    def _try(flush: Flush) -> None:
        try:
            flush()
        except ServiceUnavailable:
            log.warning("not-written-down")  # it is tried again
        except Exception:
            log.exception("not-written-down")

    def _drain(self) -> None:
        wait = _DRAIN_FIRST
        while not self.stopping.is_set():
            try:
                is_done = self._announcer.drain()
            except ServiceUnavailable:
                is_done = False
            except Exception:
                log.exception("events-not-published")
                is_done = False
            wait = min(wait * 2, _DRAIN_IDLE) if is_done else _DRAIN_FIRST
            self._announcer.wait(wait)


def _each(pool: ThreadPoolExecutor, act: Callable[[Item], None], items: Sequence[Item]) -> None:
    """Call ``act`` with each item, a few at a time; raises its first error once all are done."""
    futures = [pool.submit(act, item) for item in items]
    wait(futures)
    for future in futures:
        future.result()
