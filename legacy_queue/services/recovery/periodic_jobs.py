"""Does the periodic jobs, in the process with the lowest name, a page at a time.

A job goes through its pages in order, with a pause between them, and ends its turn after a while: then the
other jobs that are due go on. If the process dies, the next one begins each job anew. While two processes
take each other for dead, both do the jobs: their steps are safe to repeat.
Source: docs/explanation/recovery.md#periodic-jobs.
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
_MAX_SLEEP = timedelta(minutes=1)  # a test may move the clock meanwhile
_AFTER_UNAVAILABLE = timedelta(seconds=10)
_AFTER_A_FAILURE = timedelta(minutes=1)


@dataclass
class _Progress:
    """How far this process has come with a job."""

    # when the next page is due
    due: datetime = EVER
    # where that begins
    after: str = ""
    # when this pass began, and the pass before; None if this process has begun none
    began: datetime | None = None
    last_pass: datetime | None = None


class PeriodicJobs:
    """Does each job when it is due, while this process is the first of those that live."""

    def __init__(
        self, periodic_jobs: Sequence[PeriodicJob], processes: Processes, clock: Clock, waiter: Waiter
    ) -> None:
        self._jobs = [(job, _Progress()) for job in periodic_jobs]
        self._processes = processes
        self._clock = clock
        self._waiter = waiter

    def run(self, stop: threading.Event, gate: BackgroundGate) -> None:
        """Do the jobs until ``stop`` is set. A closed gate holds them up."""
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
        """Do the jobs that are due. Returns when the next job may be due. Raises ServiceUnavailable."""
        while True:
            due = self._do_turns(stop)
            if stop.is_set() or due > self._clock.now():
                return due

    def _do_turns(self, stop: threading.Event) -> datetime:
        """Do a turn of each job that is due. Returns when the next turn is due. Raises ServiceUnavailable."""
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
                # from the first page on, since the position may have caused the failure
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
