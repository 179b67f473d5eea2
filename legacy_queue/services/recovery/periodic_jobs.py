"""Does the periodic jobs: one process at a time does each, in pages.

A job goes through them in order, with a pause between them, and ends its turn after a while: then the other
jobs that are due go on. Its position is stored with the lease: whoever acquires the lease next, maybe another
process, goes on there. Source: docs/explanation/recovery.md#periodic-jobs.
"""

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.ports import BrokerAway, Changed, Clock, Waiter
from legacy_queue.services.gate import Gate
from legacy_queue.services.recovery.jobs import JOB_LEASE, MAX_PAUSE, PAGE, TURN, PeriodicJob
from legacy_queue.stores import JobLease, LeaseStore

log = structlog.get_logger()

_MIN_SLEEP = timedelta(seconds=1)
_MAX_SLEEP = timedelta(minutes=1)  # a test may move the clock meanwhile
_AFTER_UNAVAILABLE = timedelta(seconds=10)
_AFTER_A_FAILURE = timedelta(minutes=1)


class PeriodicJobs:
    """Does each job when it is due and no other process holds its lease."""

    def __init__(
        self,
        periodic_jobs: Sequence[PeriodicJob],
        leases: LeaseStore,
        clock: Clock,
        waiter: Waiter,
    ) -> None:
        self._periodic_jobs = periodic_jobs
        self._leases = leases
        self._clock = clock
        self._waiter = waiter

    def run(self, stop: threading.Event, gate: Gate) -> None:
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
        """Do a turn of each job that is due. Returns when the next turn is due."""
        return min([self._do(job, stop) for job in self._periodic_jobs])

    def _do(self, job: PeriodicJob, stop: threading.Event) -> datetime:
        """Do a turn of the job if it is due. Returns when it may be due next. Raises ServiceUnavailable."""
        lease = self._leases.acquire(job.name, self._clock.now() + JOB_LEASE)
        if not isinstance(lease, JobLease):
            return lease
        try:
            return self._do_pages(job, lease, stop)
        except Changed:
            log.info("periodic-job-taken-over", job=job.name)
            return self._clock.now() + JOB_LEASE

    def _do_pages(self, job: PeriodicJob, lease: JobLease, stop: threading.Event) -> datetime:
        """Raises Changed: another process has acquired the lease."""
        began, after = _parsed(lease.cursor) or (self._clock.now(), "")
        page_began = self._clock.monotonic()
        end = page_began + TURN
        while not stop.is_set() and page_began < end:
            try:
                position = job.step(after, PAGE, lease.since)
            except ServiceUnavailable:
                raise
            except Exception as error:
                if isinstance(error, BrokerAway):
                    log.warning("periodic-job-delayed", job=job.name)
                else:
                    log.exception("periodic-job-failed", job=job.name)
                # from the first page on, since the position may have caused the failure
                return self._release(lease, _AFTER_A_FAILURE, "", lease.since)
            if position is None:
                return self._release(lease, job.period, "", began)
            after = position
            cursor = f"{format_time(began)} {position}"
            lease = self._leases.renew(lease, self._clock.now() + JOB_LEASE, cursor, lease.since)
            took = self._clock.monotonic() - page_began
            self._waiter.wait(stop, min(MAX_PAUSE, took).total_seconds())
            page_began = self._clock.monotonic()
        return self._release(lease, timedelta(0), lease.cursor, lease.since)

    def _release(self, lease: JobLease, pause: timedelta, cursor: str, since: datetime | None) -> datetime:
        """Let any process acquire the lease after the pause; returns that time. Raises Changed."""
        until = self._clock.now() + pause
        self._leases.renew(lease, until, cursor, since)
        return until


def _parsed(cursor: str) -> tuple[datetime, str] | None:
    """Begin and position of the unfinished pass. None for an empty or unreadable cursor."""
    began, _, after = cursor.partition(" ")
    try:
        return parse_time(began), after
    except ValueError:
        return None
