"""The threads of a server process. They end with the process and leave no work half done."""

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

_STOP_TIMEOUT = 10  # seconds for the work under way
_RESTART_AFTER = 1.0  # seconds

Act = Callable[[], None]  # may raise ServiceUnavailable
# It waits for work and does it, until the flag is set. It passes through the gate for each piece of work.
Loop = Callable[[threading.Event, BackgroundGate], None]


@dataclass(frozen=True)
class PeriodicAct:
    """Done after each ``interval``. If it fails, that is logged, and it is repeated after the next."""

    act: Act
    interval: timedelta
    # also before the process is ready
    is_first: bool = False


@dataclass(frozen=True)
class Ending:
    """What a process does when it ends."""

    # each ends waits of requests or threads, once ``stopping`` is set
    end_waits: Sequence[Act]
    # done in this order after the threads have ended, unless the process is abandoned
    last: Sequence[Act]


class Background:
    """Runs the repeated work of a process, each act and each loop in a thread of its own."""

    def __init__(
        self,
        acts: Sequence[PeriodicAct],
        loops: Sequence[Loop],
        ending: Ending,
        stopping: threading.Event,
        gate: BackgroundGate,
        waiter: Waiter,
    ) -> None:
        """A closed ``gate`` holds all threads up."""
        self._acts = acts
        self._loops = loops
        self._ending = ending
        self._stopping = stopping
        self._gate = gate
        self._waiter = waiter
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads. Call it in the process that serves, after any fork."""
        for periodic in self._acts:
            if periodic.is_first:
                _try(periodic.act)
        runs = [partial(self._repeat, periodic) for periodic in self._acts]
        runs += [partial(loop, self._stopping, self._gate) for loop in self._loops]
        for run in runs:
            thread = threading.Thread(target=self._keep_running, args=[run], daemon=True)
            thread.start()
            self._threads.append(thread)  # after its start: stop() joins it

    def begin_stop(self) -> None:
        """Begin no new work, and answer waiting requests. Returns at once. Safe to repeat."""
        self._stopping.set()
        for end_waits in self._ending.end_waits:
            end_waits()

    @property
    def is_running(self) -> bool:
        """Whether the threads were started."""
        return bool(self._threads)

    def stop(self) -> None:
        """End the threads after their work under way, then leave nothing that this process alone knows."""
        self.abandon()
        for act in self._ending.last:
            _try(act)

    def abandon(self) -> None:
        """End the threads after their work under way. The rest of the work is dropped."""
        self.begin_stop()
        end = time.monotonic() + _STOP_TIMEOUT
        for thread in self._threads:
            thread.join(max(0, end - time.monotonic()))

    def _keep_running(self, run: Act) -> None:
        """Begin it again if it ends by a defect: without it the process would still look well."""
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
        log.warning("background-delayed", act=act.__qualname__)  # it is repeated
    except Exception:
        log.exception("background-failed", act=act.__qualname__)
