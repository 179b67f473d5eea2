"""Calls by caller: a row for each UsageKey, written by all processes."""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import groupby

from legacy_queue.domain.usage_key import KEPT, Calls, UsageKey
from legacy_queue.ports import Changed, Corrupt
from legacy_queue.ports.table import KEY, PARTITION, Change, Condition, Row, Value
from legacy_queue.stores.rows import ExpiringRows, first_of, of_kind, properties, read

_MAX_ROWS = 100  # in a batch
_MAX_COUNT = 2**31 - 1  # of 32 bits, in a row


class UsageStore(ExpiringRows):
    """A partition for each worker type; a row expires ``KEPT`` after its last call."""

    def add(self, counted: Mapping[UsageKey, Calls]) -> Iterator[Sequence[UsageKey]]:
        """Add the calls to the recorded calls; yields the keys of each batch that is written.

        If storage fails after it has written a batch, these calls may be counted twice.
        """
        for partition, group in groupby(sorted(counted, key=_address), key=lambda key: _address(key)[0]):
            keys = list(group)
            for start in range(0, len(keys), _MAX_ROWS):
                batch = keys[start : start + _MAX_ROWS]
                while not self._add(partition, {_address(key)[1]: key for key in batch}, counted):
                    pass
                yield batch

    def since(
        self, time: datetime, provisioner_id: str | None, worker_type: str | None
    ) -> list[tuple[UsageKey, Calls]]:
        """The calls of all processes, by callers whose last call was not before that time.

        None is any provisionerId or workerType; NOT_RECORDED belongs to each.
        """
        conditions = [Condition("last", "ge", time)]
        for name, value in (("provisionerId", provisioner_id), ("workerType", worker_type)):
            if value is not None:
                conditions.append(Condition(name, "in", (value, "")))
        return first_of(self._table, conditions, sys.maxsize, _recorded)

    def _add(
        self, partition: str, by_row_key: Mapping[str, UsageKey], counted: Mapping[UsageKey, Calls]
    ) -> bool:
        """Whether the batch is written; another process may have been faster."""
        conditions = [Condition(PARTITION, "eq", partition), Condition(KEY, "ge", min(by_row_key))]
        rows = first_of(
            self._table, [*conditions, Condition(KEY, "le", max(by_row_key))], sys.maxsize, lambda row: row
        )
        stored = {row.key: row for row in rows}
        try:
            self._table.batch(
                partition,
                [_change(row_key, key, counted[key], stored) for row_key, key in by_row_key.items()],
            )
        except Changed:
            return False
        return True


def _address(key: UsageKey) -> tuple[str, str]:
    """Partition and key; a clientId may have characters that a key may not have."""
    words = json.dumps([key.method, key.caller, *key.missing])
    return f"{key.provisioner_id}:{key.worker_type}", hashlib.sha256(words.encode()).hexdigest()[:32]


def _change(row_key: str, key: UsageKey, calls: Calls, stored: Mapping[str, Row]) -> Change:
    row = stored.get(row_key)
    if row is None:
        return Change("insert", row_key, _values(key, calls))
    with suppress(Corrupt):
        calls = read(row, _recorded)[1].plus(calls)
    return Change("merge", row_key, _values(key, calls), row.etag)


def _values(key: UsageKey, calls: Calls) -> dict[str, Value]:
    return {
        "provisionerId": key.provisioner_id,
        "workerType": key.worker_type,
        "method": key.method,
        "caller": key.caller,
        "missing": json.dumps(key.missing),
        "count": min(calls.count, _MAX_COUNT),
        "first": calls.first,
        "last": calls.last,
        "expires": calls.last + KEPT,
    }


def _recorded(row: Row) -> tuple[UsageKey, Calls]:
    provisioner, worker_type, method = properties(row, provisionerId=str, workerType=str, method=str)
    caller, missing, count = properties(row, caller=str, missing=str, count=int)
    first, last = properties(row, first=datetime, last=datetime)
    names = tuple(of_kind(str, name) for name in of_kind(list, json.loads(missing)))
    return UsageKey(provisioner, worker_type, method, caller, names), Calls(count, first, last)
