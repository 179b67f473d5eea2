"""Does the periodic jobs, a page at a time, in the process with the lowest name.

A job goes through its pages in order and pauses after each one. After a while its turn ends, and the other
due jobs go on. If the process dies, the next process starts each job from the beginning. If two processes
take each other for dead, both do the jobs. That is harmless, because each step is safe to repeat. Source:
docs/explanation/recovery.md#periodic-jobs.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import EVER
from legacy_queue.ports import BrokerAway, Clock, Waiter
from legacy_queue.services.background_gate import BackgroundGate
from legacy_queue.services.process.liveness import READ_EVERY
from legacy_queue.services.process.processes import Processes
from legacy_queue.services.recovery.job_definitions import MAX_PAUSE, PAGE, TURN, PeriodicJob

log = structlog.get_logger()

_MIN_SLEEP = timedelta(seconds=1)
_MAX_SLEEP = timedelta(minutes=1)  # not longer, because a test may move the clock meanwhile
_AFTER_UNAVAILABLE = timedelta(seconds=10)
_AFTER_A_FAILURE = timedelta(minutes=1)


@dataclass
class _Progress:
    """How far this process has got with a job."""

    # when the next page is due
    due: datetime = EVER
    # where the next page begins
    after: str = ""
    # when this pass and the one before it began; None if this process has not begun one
    began: datetime | None = None
    last_pass: datetime | None = None


class PeriodicJobs:
    """Does each job when it is due, as long as this process has the lowest name of the living ones."""

    def __init__(
        self, periodic_jobs: Sequence[PeriodicJob], processes: Processes, clock: Clock, waiter: Waiter
    ) -> None:
        self._jobs = [(job, _Progress()) for job in periodic_jobs]
        self._processes = processes
        self._clock = clock
        self._waiter = waiter

    def run(self, stop: threading.Event, gate: BackgroundGate) -> None:
        """Do the jobs until ``stop`` is set. They pause while the gate is closed."""
        while not stop.is_set():
            try:
                with gate.pass_through():
                    due = self._do_turns(stop)
            except Exception as error:
                due = self._clock.now() + _AFTER_UNAVAILABLE
                if not isinstance(error, ServiceUnavailable):
                    log.exception("periodic-job-failed")
            left = max(_MIN_SLEEP, due - self._clock.now())
            while left > timedelta(0) and not self._waiter.wait(stop, min(_MAX_SLEEP, left).total_seconds()):
                left = due - self._clock.now()

    def do_due(self, stop: threading.Event) -> datetime:
        """Do all due jobs. Returns when the next job may be due. Raises ServiceUnavailable."""
        while True:
            due = self._do_turns(stop)
            if stop.is_set() or due > self._clock.now():
                return due

    def _do_turns(self, stop: threading.Event) -> datetime:
        """Give each due job one turn. Returns when the next turn is due. Raises ServiceUnavailable."""
        if not self._processes.is_first():
            return self._clock.now() + READ_EVERY
        for job, progress in self._jobs:
            if progress.due <= self._clock.now():
                self._do_pages(job, progress, stop)
        return min(progress.due for _, progress in self._jobs)

    def _do_pages(self, job: PeriodicJob, progress: _Progress, stop: threading.Event) -> None:
        page_began = self._clock.monotonic()
        end = page_began + TURN
        while not stop.is_set() and page_began < end:
            progress.began = progress.began or self._clock.now()
            try:
                position = job.step(progress.after, PAGE, progress.last_pass)
            except ServiceUnavailable:
                raise
            except Exception as error:
                if isinstance(error, BrokerAway):
                    log.warning("periodic-job-delayed", job=job.name)
                else:
                    log.exception("periodic-job-failed", job=job.name)
                # start again from the first page, because the position may have caused the failure
                progress.after = ""
                progress.began = None
                progress.due = self._clock.now() + _AFTER_A_FAILURE
                return
            if position is None:
                progress.after = ""
                progress.last_pass, progress.began = progress.began, None
                progress.due = self._clock.now() + job.period
                return
            progress.after = position
            took = self._clock.monotonic() - page_began
            self._waiter.wait(stop, min(MAX_PAUSE, took).total_seconds())
            page_began = self._clock.monotonic()
