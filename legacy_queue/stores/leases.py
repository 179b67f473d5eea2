"""Whose lease it is, among all processes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from legacy_queue.ports import AlreadyExists, Changed, Clock, Corrupt
from legacy_queue.ports.table import Row, Table, Value
from legacy_queue.stores.rows import of_kind, properties, read

_KEY = "turn"  # as earlier versions wrote it
_NEVER = datetime(1601, 1, 1, tzinfo=UTC)  # the first time that Azure knows


@dataclass(frozen=True)
class JobLease:
    """Work of one process at a time: ``cursor`` is how far it came, ``since`` when it was last done."""

    name: str
    cursor: str
    since: datetime | None
    etag: str


class LeaseStore:
    """A row for each lease; the process that writes it on its ETag has it. A corrupt row begins anew."""

    def __init__(self, table: Table, clock: Clock) -> None:
        self._table, self._clock = table, clock

    def acquire(self, name: str, until: datetime) -> JobLease | datetime:
        """The lease, which no other process gets before ``until``; or until when another process has it."""
        while True:
            row = self._table.get(name, _KEY)
            try:
                if row is None:
                    return JobLease(name, "", None, self._table.insert(name, _KEY, _values(until, "", None)))
                left, taken_until = _left(row)
                if taken_until > self._clock.now():
                    return taken_until
                return self.renew(left, until, left.cursor, left.since)
            except (AlreadyExists, Changed):
                continue

    def renew(self, lease: JobLease, until: datetime, cursor: str, since: datetime | None) -> JobLease:
        """The same lease, longer and further on; to end it, let ``until`` be when it may be taken again.

        Raises Changed where another process has taken it.
        """
        etag = self._table.merge(lease.name, _KEY, _values(until, cursor, since), lease.etag)
        return JobLease(lease.name, cursor, since, etag)


def _left(row: Row) -> tuple[JobLease, datetime]:
    """The lease as it was left, and until when it is taken."""
    try:
        return read(row, _stored)
    except Corrupt:
        return JobLease(row.partition, "", None, row.etag), _NEVER


def _stored(row: Row) -> tuple[JobLease, datetime]:
    cursor, until = properties(row, cursor=str, until=datetime)
    since = of_kind(datetime, row.values.get("since", _NEVER))  # none where an earlier version wrote the row
    return JobLease(row.partition, cursor, None if since == _NEVER else since, row.etag), until


def _values(until: datetime, cursor: str, since: datetime | None) -> Mapping[str, Value]:
    return {"until": until, "cursor": cursor, "since": since or _NEVER}
