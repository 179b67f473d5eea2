"""The threads of a server process. They end with the process, and finish the work that they have begun."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports import Waiter
from legacy_queue.services.background_gate import BackgroundGate

log = structlog.get_logger()

_STOP_TIMEOUT = 10  # seconds to finish the work that has begun
_RESTART_AFTER = 1.0  # seconds

Act = Callable[[], None]  # may raise ServiceUnavailable
# A loop waits for work and does it until the flag is set. It passes through the gate for each piece of work.
Loop = Callable[[threading.Event, BackgroundGate], None]


@dataclass(frozen=True)
class PeriodicAct:
    """An act to do every ``interval``. A failure is logged, and the act is done again next time."""

    act: Act
    interval: timedelta
    # whether it is also done before the process is ready
    is_first: bool = False


@dataclass(frozen=True)
class Ending:
    """What a process does when it ends."""

    # called once ``stopping`` is set: each ends the waits of requests or threads
    end_waits: Sequence[Act]
    # called in this order after the threads have ended, unless the process is abandoned
    last: Sequence[Act]


class Background:
    """Runs the background work of a process. Each act and each loop has its own thread."""

    def __init__(
        self,
        acts: Sequence[PeriodicAct],
        loops: Sequence[Loop],
        ending: Ending,
        stopping: threading.Event,
        gate: BackgroundGate,
        waiter: Waiter,
    ) -> None:
        """All threads pause while the ``gate`` is closed."""
        self._acts = acts
        self._loops = loops
        self._ending = ending
        self._stopping = stopping
        self._gate = gate
        self._waiter = waiter
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads. Call this in the process that serves requests, after any fork."""
        for periodic in self._acts:
            if periodic.is_first:
                _try(periodic.act)
        runs = [partial(self._repeat, periodic) for periodic in self._acts]
        runs += [partial(loop, self._stopping, self._gate) for loop in self._loops]
        for run in runs:
            thread = threading.Thread(target=self._keep_running, args=[run], daemon=True)
            thread.start()
            self._threads.append(thread)  # after its start, because ``abandon`` joins it

    def begin_stop(self) -> None:
        """Begin no new work, and let waiting requests be answered. Returns at once. Safe to repeat."""
        self._stopping.set()
        for end_waits in self._ending.end_waits:
            end_waits()

    @property
    def is_running(self) -> bool:
        """Whether the threads have been started."""
        return bool(self._threads)

    def stop(self) -> None:
        """Let the threads finish what they have begun, then store what only this process knows."""
        self.abandon()
        for act in self._ending.last:
            _try(act)

    def abandon(self) -> None:
        """Let the threads finish what they have begun. All other work is dropped."""
        self.begin_stop()
        end = time.monotonic() + _STOP_TIMEOUT
        for thread in self._threads:
            thread.join(max(0, end - time.monotonic()))

    def _keep_running(self, run: Act) -> None:
        """Run it again if a bug ends it. Without this thread the process would still look healthy."""
        while not self._stopping.is_set():
            try:
                run()
            except Exception:
                log.exception("background-restarted")
                self._waiter.wait(self._stopping, _RESTART_AFTER)

    def _repeat(self, periodic: PeriodicAct) -> None:
        while not self._waiter.wait(self._stopping, periodic.interval.total_seconds()):
            with self._gate.pass_through():
                _try(periodic.act)


def _try(act: Act) -> None:
    try:
        act()
    except ServiceUnavailable:
        log.warning("background-delayed", act=act.__qualname__)  # the next interval does it again
    except Exception:
        log.exception("background-failed", act=act.__qualname__)
