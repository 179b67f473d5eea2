"""Periodic jobs: sweeping, and removing expired rows. One process at a time does each job.

A job goes through its pages in order, with a pause between them. Its position is stored with the lease: the
next process that acquires the lease goes on there. Source: docs/explanation/recovery.md#periodic-jobs.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.ports import BrokerAway, Changed, Clock
from legacy_queue.services.gate import Gate
from legacy_queue.stores import JobLease, LeaseStore

log = structlog.get_logger()

LEASE = timedelta(seconds=15)  # short, so that another process soon continues for a dead one
PAGE = 100
RENEW_INTERVAL = LEASE / 3
PAGE_PAUSE = timedelta(seconds=0.5)  # between pages: at most 200 a second
_MIN_SLEEP = timedelta(seconds=1)
_MAX_SLEEP = timedelta(minutes=1)  # a test may move the clock meanwhile
_AFTER_UNAVAILABLE = timedelta(seconds=10)
_AFTER_A_FAILURE = timedelta(minutes=1)

# (after, limit, begin of the previous pass) -> where to go on, None at the end
Step = Callable[[str, int, datetime | None], str | None]


@dataclass(frozen=True)
class PeriodicJob:
    """``step`` does one page. The next pass through all pages begins ``period`` after the end of this one."""

    name: str
    period: timedelta
    step: Step


class RenewedLease:
    """A context that renews the lease in a thread, while the process is alive and storage answers."""

    def __init__(self, leases: LeaseStore, lease: JobLease, clock: Clock, interval: timedelta) -> None:
        self._leases = leases
        self._lease = lease
        self._clock = clock
        self._interval = interval
        self._changed, self._is_ended = threading.Condition(), False
        self._renewing = threading.Thread(target=self._renew, name="renewal", daemon=True)

    def __enter__(self) -> "RenewedLease":
        self._renewing.start()
        return self

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()
        self._renewing.join()

    def renew(self, cursor: str, since: datetime | None) -> None:
        """Store the position of the job. Raises Changed if another process acquired the lease."""
        with self._changed:
            self._renew_now(self._clock.now() + LEASE, cursor, since)

    def release(self, until: datetime, cursor: str, since: datetime | None) -> None:
        """Release the lease: it can be acquired again from ``until`` on. Raises Changed."""
        with self._changed:
            self._is_ended = True
            self._renew_now(until, cursor, since)

    def _renew(self) -> None:
        with self._changed:
            while not self._changed.wait_for(lambda: self._is_ended, self._interval.total_seconds()):
                with suppress(Changed, ServiceUnavailable):
                    self._renew_now(self._clock.now() + LEASE, self._lease.cursor, self._lease.since)

    def _renew_now(self, until: datetime, cursor: str, since: datetime | None) -> None:
        self._lease = self._leases.renew(self._lease, until, cursor, since)


class PeriodicJobs:
    """Does each job when it is due and no other process holds its lease."""

    def __init__(
        self,
        periodic_jobs: Sequence[PeriodicJob],
        leases: LeaseStore,
        clock: Clock,
        page_pause: timedelta = PAGE_PAUSE,
        renew_interval: timedelta = RENEW_INTERVAL,
    ) -> None:
        """``renew_interval`` is real time: a test that moves the clock changes nothing."""
        self._periodic_jobs = periodic_jobs
        self._leases = leases
        self._clock = clock
        self._page_pause, self._renew_interval = page_pause.total_seconds(), renew_interval

    def run(self, stop: threading.Event, gate: Gate) -> None:
        """Do the jobs until ``stop`` is set. A closed gate holds them up."""
        while not stop.is_set():
            try:
                with gate.pass_through():
                    due = self.do_due(stop)
            except Exception as error:
                due = self._clock.now() + _AFTER_UNAVAILABLE
                if not isinstance(error, ServiceUnavailable):
                    log.exception("periodic-job-failed")
            left = max(_MIN_SLEEP, due - self._clock.now())
            while left > timedelta(0) and not stop.wait(min(_MAX_SLEEP, left).total_seconds()):
                left = due - self._clock.now()

    def do_due(self, stop: threading.Event) -> datetime:
        """Do the jobs that are due. Returns when the next job may be due. Raises ServiceUnavailable."""
        return min([self._do(job, stop) for job in self._periodic_jobs])

    def _do(self, job: PeriodicJob, stop: threading.Event) -> datetime:
        lease = self._leases.acquire(f"chore-{job.name}", self._clock.now() + LEASE)
        if not isinstance(lease, JobLease):
            return lease
        try:
            with RenewedLease(self._leases, lease, self._clock, self._renew_interval) as held:
                try:
                    return self._go_on(job, lease, held, stop)
                except (Changed, ServiceUnavailable):
                    raise
                except BrokerAway:
                    log.warning("periodic-job-delayed", job=job.name)
                except Exception:
                    log.exception("periodic-job-failed", job=job.name)
                next_time = self._clock.now() + _AFTER_A_FAILURE
                held.release(next_time, "", lease.since)  # the old cursor may have caused the failure
                return next_time
        except Changed:
            log.info("periodic-job-taken-over", job=job.name)
        return self._clock.now() + LEASE

    def _go_on(
        self, job: PeriodicJob, lease: JobLease, held: RenewedLease, stop: threading.Event
    ) -> datetime:
        """Do page by page. Returns when the job may be due again. Raises Changed, ServiceUnavailable."""
        began, after = _parsed(lease.cursor) or (self._clock.now(), "")
        cursor = lease.cursor
        while not stop.is_set():
            position = job.step(after, PAGE, lease.since)
            if position is None:
                next_time = self._clock.now() + job.period
                held.release(next_time, "", began)
                return next_time
            after, cursor = position, f"{format_time(began)} {position}"
            held.renew(cursor, lease.since)
            stop.wait(self._page_pause)
        held.release(self._clock.now(), cursor, lease.since)  # for another process
        return self._clock.now() + LEASE


def _parsed(cursor: str) -> tuple[datetime, str] | None:
    """Begin and position of the unfinished pass. None for an empty or unreadable cursor."""
    began, _, after = cursor.partition(" ")
    try:
        return parse_time(began), after
    except ValueError:
        return None
