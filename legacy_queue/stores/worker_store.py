"""Stores records of provisioners, pools and workers, and of clients that poll."""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self, TypeVar

from legacy_queue.domain.call_statistics import (
    CALLS_KEPT,
    Caller,
    CallingClient,
    Calls,
    CallStatistics,
)
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.domain.worker_record import (
    PoolPath,
    ProvisionerPath,
    RecordPath,
    RecordPlace,
    WorkerRecord,
    parents,
)
from legacy_queue.ports.table import Condition, Row, Value
from legacy_queue.stores.table_rows import ExpiringRows, between, first_of, json_in, json_values, read

_SEPARATOR = "!"  # sorts before every character of an identifier, so keys are in the order of paths
_END = "~"  # sorts after every key
_MAX_PROVISIONERS = 100  # provisioners that are read at once
_CLIENT = "workerGroup"  # the property that holds the name of a client


@dataclass(frozen=True)
class WorkerRow:
    """The record of a provisioner, pool or worker, and the calls of the worker.

    These two things share a row because a claim changes both, and then one write is enough.
    """

    record: WorkerRecord
    statistics: CallStatistics = field(default_factory=CallStatistics)
    # of this version, for a conditional write; "" if it is not stored yet
    etag: str = field(default="", compare=False)

    @classmethod
    def new(cls, path: RecordPath, now: datetime) -> Self:
        return cls(WorkerRecord.new(path, now))


@dataclass(frozen=True)
class ClientRow:
    """The calls of a client."""

    client: CallingClient
    statistics: CallStatistics = field(default_factory=CallStatistics)
    etag: str = field(default="", compare=False)  # see WorkerRow

    @classmethod
    def new(cls, client: CallingClient, _now: datetime) -> Self:
        return cls(client)


AnyRow = TypeVar("AnyRow", bound=WorkerRow | ClientRow)


class WorkerStore(ExpiringRows):
    """The rows of provisioners, pools, workers and clients.

    The provisioners have one partition. The pools of each provisioner have one. The workers of each pool have
    one, and so have its clients. A row is removed when its record has expired, at least ten days after its
    last call.
    """

    def load(self, path: RecordPath) -> WorkerRow | None:
        """Reads the row of a provisioner, pool or worker. Returns None if there is none."""
        row = self._table.get(*_keys(path))
        return read(row, _worker_row) if row else None

    def load_client(self, client: CallingClient) -> ClientRow | None:
        """Reads the row of a client. Returns None if there is none."""
        row = self._table.get(*_client_keys(client))
        return read(row, _client_row) if row else None

    def insert(self, row: AnyRow) -> AnyRow:
        """Store a new row. Raises AlreadyExists."""
        return replace(row, etag=self._table.insert(*_keys_of(row), _values(row)))

    def replace(self, row: AnyRow) -> AnyRow:
        """Store the row if the stored row still has its ETag. Raises Changed."""
        return replace(row, etag=self._table.merge(*_keys_of(row), _values(row), row.etag))

    def list(
        self, parent: ProvisionerPath | PoolPath | None, after: RecordPlace, limit: int, now: datetime
    ) -> Sequence[WorkerRecord]:
        """Returns up to ``limit`` children of ``parent`` after ``after``, in the order of their paths.

        If ``parent`` is None, these are the provisioners. Records that have expired by ``now`` are left out.
        Only the last page is short.
        """
        begin = _SEPARATOR.join(after)
        is_kept = Condition("keptUntil", "gt", now)
        return between(self._table, _partition(parent), begin, _END, limit, _record, conditions=[is_kept])

    def worker_types(self, after: RecordPlace, limit: int, now: datetime) -> Sequence[WorkerRecord]:
        """Returns the pools of all provisioners: see ``list``."""
        records = [*self.list(ProvisionerPath(after[0]), after, limit, now)] if after else []
        behind: RecordPlace | None = after[:1]
        while behind is not None and len(records) < limit:
            provisioners = self.list(None, behind, _MAX_PROVISIONERS, now)
            for provisioner in provisioners:
                if len(records) < limit:
                    path = ProvisionerPath(provisioner.path.provisioner_id)
                    records += self.list(path, (), limit - len(records), now)
            behind = provisioners[-1].path if len(provisioners) == _MAX_PROVISIONERS else None
        return records

    def callers_since(
        self, time: datetime, provisioner_id: str | None, worker_type: str | None
    ) -> Sequence[Caller]:
        """Returns the callers whose last call was at or after ``time``. None means any pool."""
        conditions = [Condition("lastCall", "ge", time)]
        for name, value in (("provisionerId", provisioner_id), ("workerType", worker_type)):
            if value is not None:
                conditions.append(Condition(name, "eq", value))
        return first_of(self._table, conditions, sys.maxsize, _caller)


def _partition(parent: ProvisionerPath | PoolPath | None) -> str:
    return _SEPARATOR.join(("record", *(parent or ())))


def _keys(path: RecordPath) -> tuple[str, str]:
    above = parents(path)  # a workerGroup has no record
    return _partition(above[-1] if above else None), _SEPARATOR.join(path)


def _client_keys(client: CallingClient) -> tuple[str, str]:
    """Hashes the name, because it may have characters that a key must not have."""
    partition = _SEPARATOR.join(("client", client.provisioner_id, client.worker_type))
    return partition, hashlib.sha256(client.name.encode()).hexdigest()[:32]


def _keys_of(row: WorkerRow | ClientRow) -> tuple[str, str]:
    return _keys(row.record.path) if isinstance(row, WorkerRow) else _client_keys(row.client)


def _values(row: WorkerRow | ClientRow) -> Mapping[str, Value]:
    statistics = row.statistics
    calls = [
        [method, missing, calls.count, format_time(calls.first), format_time(calls.last)]
        for (method, missing), calls in statistics.calls.items()
    ]
    wire: Mapping[str, Any]
    if isinstance(row, WorkerRow):
        wire, kept_until = row.record.to_wire(), row.record.kept_until
    else:
        wire, kept_until = _client_wire(row), statistics.last_call
    values = json_values("record", {**wire, "calls": calls, "client": statistics.client})
    values |= {"keptUntil": kept_until, "expires": kept_until}
    if not calls:
        return values
    return {
        **values,
        "expires": max(kept_until, statistics.last_call + CALLS_KEPT),
        "lastCall": statistics.last_call,
        "provisionerId": wire["provisionerId"],
        "workerType": wire["workerType"],
    }


def _client_wire(row: ClientRow) -> Mapping[str, str]:
    """Returns the client in the form of a worker record, so that 0.1.0 can read it."""
    client, last_call = row.client, format_time(row.statistics.last_call)
    names = {"provisionerId": client.provisioner_id, "workerType": client.worker_type, _CLIENT: client.name}
    return {**names, "lastDateActive": last_call, "expires": last_call}


def _record(row: Row) -> WorkerRecord:
    return WorkerRecord.from_wire(json_in("record", row))


def _worker_row(row: Row) -> WorkerRow:
    wire = json_in("record", row)
    return WorkerRow(WorkerRecord.from_wire(wire), _statistics(wire), row.etag)


def _client_row(row: Row) -> ClientRow:
    wire = json_in("record", row)
    client = CallingClient(wire["provisionerId"], wire["workerType"], wire[_CLIENT])
    return ClientRow(client, _statistics(wire), row.etag)


def _caller(row: Row) -> Caller:
    wire = json_in("record", row)
    pool = wire["provisionerId"], wire["workerType"]
    if "workerId" not in wire:
        return Caller(*pool, wire[_CLIENT], _statistics(wire))
    name = f"{wire['workerGroup']}/{wire['workerId']}"
    return Caller(*pool, name, _statistics(wire), WorkerRecord.from_wire(wire))


def _statistics(wire: Mapping[str, Any]) -> CallStatistics:
    calls = {
        (method, tuple(missing)): Calls(count, parse_time(first), parse_time(last))
        for method, missing, count, first, last in wire["calls"]
    }
    return CallStatistics(calls, wire.get("client", ""))
