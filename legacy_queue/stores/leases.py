"""Leases of jobs: a job is done by a single process at a time."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from legacy_queue.ports import AlreadyExists, Changed, Clock, Corrupt
from legacy_queue.ports.table import Row, Table, Value
from legacy_queue.stores.rows import properties, read

_LEASE_KEY = "lease"
_EARLIEST = datetime(1601, 1, 1, tzinfo=UTC)  # the first time that Azure knows


@dataclass(frozen=True)
class JobLease:
    """The right to do the job ``name``: ``cursor`` is its progress, ``since`` when it was last completed."""

    name: str
    cursor: str
    since: datetime | None
    etag: str


class LeaseStore:
    """A row for each job: the process that last wrote it on its ETag has the lease. A corrupt row is free."""

    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock

    def acquire(self, name: str, until: datetime) -> JobLease | datetime:
        """The lease, exclusive until ``until``; or the time until which another process holds it."""
        while True:
            row = self._table.get(name, _LEASE_KEY)
            with suppress(AlreadyExists, Changed):
                if row is None:
                    etag = self._table.insert(name, _LEASE_KEY, _values(until, "", None))
                    return JobLease(name, "", None, etag)
                last = JobLease(name, "", None, row.etag)
                with suppress(Corrupt):
                    last, held_until = read(row, _stored)
                    if held_until > self._clock.now():
                        return held_until
                return self.renew(last, until, last.cursor, last.since)

    def renew(self, lease: JobLease, until: datetime, cursor: str, since: datetime | None) -> JobLease:
        """The same lease until ``until``, with this progress. To release it, pass the next due time.

        Raises Changed where another process has acquired it.
        """
        etag = self._table.merge(lease.name, _LEASE_KEY, _values(until, cursor, since), lease.etag)
        return JobLease(lease.name, cursor, since, etag)


def _stored(row: Row) -> tuple[JobLease, datetime]:
    cursor, until, since = properties(row, cursor=str, until=datetime, since=datetime)
    return JobLease(row.partition, cursor, None if since == _EARLIEST else since, row.etag), until


def _values(until: datetime, cursor: str, since: datetime | None) -> Mapping[str, Value]:
    return {"until": until, "cursor": cursor, "since": since or _EARLIEST}
