"""Records of provisioners, pools, workers, and clients that poll."""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from legacy_queue.domain.call_statistics import CALLS_KEPT, Calls
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.domain.worker_record import RecordPath, WorkerRecord
from legacy_queue.ports.table import Condition, Row, Value
from legacy_queue.stores.rows import ExpiringRows, between, first_of, json_in, json_values, read

_SEPARATOR = "!"  # sorts before every character of an identifier, so keys are in the order of paths
_END = "~"  # behind every key
_MAX_PROVISIONERS = 100  # provisioners
_CLIENT = 3  # names in the path of a client


@dataclass(frozen=True)
class StoredWorkerRecord:
    """A record, and the version that a conditional write names."""

    record: WorkerRecord
    etag: str


class WorkerStore(ExpiringRows):
    """A partition for the provisioners, one for the pools of each, two for the workers and the clients
    of each. A row is removed after its record expired, ten days after its last call at the earliest.
    """

    def load(self, path: RecordPath) -> StoredWorkerRecord | None:
        """The record as it is now."""
        row = self._table.get(*_keys(path))
        return StoredWorkerRecord(read(row, _record), row.etag) if row else None

    def insert(self, record: WorkerRecord) -> StoredWorkerRecord:
        """Store a new record; raises AlreadyExists."""
        return StoredWorkerRecord(record, self._table.insert(*_keys(record.path), _values(record)))

    def replace(self, stored: StoredWorkerRecord, record: WorkerRecord) -> StoredWorkerRecord:
        """Store the record if it is still the version ``stored``; raises Changed."""
        etag = self._table.merge(*_keys(record.path), _values(record), stored.etag)
        return StoredWorkerRecord(record, etag)

    def list(
        self, parent: RecordPath, after: RecordPath, limit: int, now: datetime
    ) -> Sequence[WorkerRecord]:
        """Up to ``limit`` children of ``parent``, () for provisioners, behind the path ``after``.

        Without those that have expired by ``now``, in the order of their paths; ``after`` is () for the
        first page. Only the last page is short.
        """
        begin = _SEPARATOR.join(after)
        is_kept = Condition("keptUntil", "gt", now)
        return between(self._table, _partition(parent), begin, _END, limit, _record, conditions=[is_kept])

    def worker_types(self, after: RecordPath, limit: int, now: datetime) -> Sequence[WorkerRecord]:
        """As ``list``, the pools of all provisioners."""
        records = [*self.list(after[:1], after, limit, now)] if after else []
        behind: RecordPath | None = after[:1]
        while behind is not None and len(records) < limit:
            provisioners = self.list((), behind, _MAX_PROVISIONERS, now)
            for provisioner in provisioners:
                if len(records) < limit:
                    records += self.list(provisioner.path, (), limit - len(records), now)
            behind = provisioners[-1].path if len(provisioners) == _MAX_PROVISIONERS else None
        return records

    def callers_since(
        self, time: datetime, provisioner_id: str | None, worker_type: str | None
    ) -> Sequence[WorkerRecord]:
        """Those whose last call was not before that time, None for any pool."""
        conditions = [Condition("lastCall", "ge", time)]
        for name, value in (("provisionerId", provisioner_id), ("workerType", worker_type)):
            if value is not None:
                conditions.append(Condition(name, "eq", value))
        return first_of(self._table, conditions, sys.maxsize, _record)


def _partition(parent: RecordPath) -> str:
    return _SEPARATOR.join(("record", *parent))


def _keys(path: RecordPath) -> tuple[str, str]:
    if len(path) == _CLIENT:  # its name may have characters that a key may not have
        return _SEPARATOR.join(("client", *path[:2])), hashlib.sha256(path[2].encode()).hexdigest()[:32]
    parent = path[: min(len(path) - 1, 2)]  # a workerGroup has no record
    return _partition(parent), _SEPARATOR.join(path)


def _values(record: WorkerRecord) -> Mapping[str, Value]:
    calls = [
        [method, missing, calls.count, format_time(calls.first), format_time(calls.last)]
        for (method, missing), calls in record.calls.items()
    ]
    values = json_values("record", {**record.to_wire(), "calls": calls, "client": record.client})
    values |= {"keptUntil": record.kept_until, "expires": record.kept_until}
    if not calls:
        return values
    return {
        **values,
        "expires": max(record.kept_until, record.last_call + CALLS_KEPT),
        "lastCall": record.last_call,
        "provisionerId": record.path[0],
        "workerType": record.path[1],
    }


def _record(row: Row) -> WorkerRecord:
    wire = json_in("record", row)
    calls = {
        (method, tuple(missing)): Calls(count, parse_time(first), parse_time(last))
        for method, missing, count, first, last in wire["calls"]
    }
    return replace(WorkerRecord.from_wire(wire), calls=calls, client=wire.get("client", ""))
