"""What is done now and then, by one process for all: sweeping, and removing what has expired.

A job goes through its pages one after the other with a pause between them. Where it stopped is stored: the
next process to have its lease goes on there. Source: docs/explanation/recovery.md#periodic-jobs.
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

LEASE = timedelta(seconds=15)  # short, so that what a dead process held goes on soon
PAGE = 100
RENEW_INTERVAL = LEASE / 3
PAGE_PAUSE = timedelta(seconds=0.5)  # between pages: at most 200 a second
_SHORTEST_SLEEP = timedelta(seconds=1)
_LONGEST_SLEEP = timedelta(minutes=1)  # the clock may be moved meanwhile
_NEXT_LOOK = timedelta(seconds=10)  # where storage could not be reached
_AFTER_A_FAILURE = timedelta(minutes=1)

# (after, limit, last_pass) -> where to go on, None at the end
Step = Callable[[str, int, datetime | None], str | None]


@dataclass(frozen=True)
class PeriodicJob:
    """``step`` does one page of it; a pass through all of them begins ``period`` after the last one ended."""

    name: str
    period: timedelta
    step: Step


class RenewedLease:
    """A context in which this process keeps the lease, while it is alive and storage answers."""

    def __init__(self, leases: LeaseStore, lease: JobLease, clock: Clock, every: timedelta) -> None:
        self._leases, self._lease, self._clock, self._every = leases, lease, clock, every
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
        """Note how far the work came; raises Changed where another process has taken the lease."""
        with self._changed:
            self._renew_now(self._clock.now() + LEASE, cursor, since)

    def release(self, until: datetime, cursor: str, since: datetime | None) -> None:
        """End it: the lease may be taken again from ``until`` on. Raises Changed."""
        with self._changed:
            self._is_ended = True
            self._renew_now(until, cursor, since)

    def _renew(self) -> None:
        with self._changed:
            while not self._changed.wait_for(lambda: self._is_ended, self._every.total_seconds()):
                with suppress(Changed, ServiceUnavailable):
                    self._renew_now(self._clock.now() + LEASE, self._lease.cursor, self._lease.since)

    def _renew_now(self, until: datetime, cursor: str, since: datetime | None) -> None:
        self._lease = self._leases.renew(self._lease, until, cursor, since)


class PeriodicJobs:
    """Does each job when it is due and no other process does."""

    def __init__(
        self,
        periodic_jobs: Sequence[PeriodicJob],
        leases: LeaseStore,
        clock: Clock,
        pause: timedelta = PAGE_PAUSE,
        renewed_every: timedelta = RENEW_INTERVAL,
    ) -> None:
        """``pause`` is that between pages. Leases are renewed in real time, not the clock's."""
        self._periodic_jobs, self._leases, self._clock = periodic_jobs, leases, clock
        self._pause, self._renewed_every = pause.total_seconds(), renewed_every

    def run(self, stop: threading.Event, gate: Gate) -> None:
        """Do them until ``stop`` is set. A closed gate holds them up."""
        while not stop.is_set():
            try:
                with gate.pass_through():
                    due = self.do_due(stop)
            except Exception as error:
                due = self._clock.now() + _NEXT_LOOK
                if not isinstance(error, ServiceUnavailable):
                    log.exception("periodic-job-failed")
            left = max(_SHORTEST_SLEEP, due - self._clock.now())
            while left > timedelta(0) and not stop.wait(min(_LONGEST_SLEEP, left).total_seconds()):
                left = due - self._clock.now()

    def do_due(self, stop: threading.Event) -> datetime:
        """Do what is due now; when the next one may be. Raises ServiceUnavailable."""
        return min([self._do(job, stop) for job in self._periodic_jobs])

    def _do(self, job: PeriodicJob, stop: threading.Event) -> datetime:
        lease = self._leases.acquire(f"chore-{job.name}", self._clock.now() + LEASE)
        if not isinstance(lease, JobLease):
            return lease
        try:
            with RenewedLease(self._leases, lease, self._clock, self._renewed_every) as held:
                try:
                    return self._go_on(job, lease, held, stop)
                except (Changed, ServiceUnavailable):
                    raise
                except BrokerAway:
                    log.warning("periodic-job-delayed", job=job.name)
                except Exception:
                    log.exception("periodic-job-failed", job=job.name)
                next_time = self._clock.now() + _AFTER_A_FAILURE
                held.release(next_time, "", lease.since)  # at the beginning: the cursor may be at fault
                return next_time
        except Changed:
            log.info("periodic-job-taken-over", job=job.name)
        return self._clock.now() + LEASE

    def _go_on(
        self, job: PeriodicJob, lease: JobLease, held: RenewedLease, stop: threading.Event
    ) -> datetime:
        """Page by page; when the job may be due again. Raises Changed, ServiceUnavailable."""
        began, after = _began(lease.cursor) or (self._clock.now(), "")
        cursor = lease.cursor
        while not stop.is_set():
            gone_on = job.step(after, PAGE, lease.since)
            if gone_on is None:
                next_time = self._clock.now() + job.period
                held.release(next_time, "", began)
                return next_time
            after, cursor = gone_on, f"{format_time(began)} {gone_on}"
            held.renew(cursor, lease.since)
            stop.wait(self._pause)
        held.release(self._clock.now(), cursor, lease.since)  # for another process
        return self._clock.now() + LEASE


def _began(cursor: str) -> tuple[datetime, str] | None:
    """When the pass that was not finished began, and how far it came; None where the cursor does not say."""
    began, _, after = cursor.partition(" ")
    try:
        return parse_time(began), after
    except ValueError:
        return None
