"""Who calls what: one row for each way of calling, written by all processes."""

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
    """A partition for each worker type; a row expires ``KEPT`` after its last call.

    An earlier version wrote a row for each process and hour. These rows are read until they expire.
    """

    def add(self, counted: Mapping[UsageKey, Calls]) -> Iterator[Sequence[UsageKey]]:
        """Add the calls to those on record; yields the keys of each batch that is written.

        If storage fails after it has written a batch, these calls may be counted twice.
        """
        for partition, group in groupby(sorted(counted, key=_address), key=lambda use: _address(use)[0]):
            uses = list(group)
            for start in range(0, len(uses), _MAX_ROWS):
                batch = uses[start : start + _MAX_ROWS]
                while not self._add(partition, {_address(use)[1]: use for use in batch}, counted):
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

    def _add(self, partition: str, uses: Mapping[str, UsageKey], counted: Mapping[UsageKey, Calls]) -> bool:
        """Whether the batch is written; another process may have been faster."""
        keys = [Condition(PARTITION, "eq", partition), Condition(KEY, "ge", min(uses))]
        rows = first_of(self._table, [*keys, Condition(KEY, "le", max(uses))], sys.maxsize, lambda row: row)
        stored = {row.key: row for row in rows}
        try:
            self._table.batch(
                partition, [_change(key, use, counted[use], stored) for key, use in uses.items()]
            )
        except Changed:
            return False
        return True


def _address(use: UsageKey) -> tuple[str, str]:
    """Partition and key; a clientId may have characters that a key may not have."""
    words = json.dumps([use.method, use.caller, *use.missing])
    return f"{use.provisioner_id}:{use.worker_type}", hashlib.sha256(words.encode()).hexdigest()[:32]


def _change(key: str, use: UsageKey, calls: Calls, stored: Mapping[str, Row]) -> Change:
    row = stored.get(key)
    if row is None:
        return Change("insert", key, _values(use, calls))
    with suppress(Corrupt):
        calls = read(row, _recorded)[1].plus(calls)
    return Change("merge", key, _values(use, calls), row.etag)


def _values(use: UsageKey, calls: Calls) -> dict[str, Value]:
    return {
        "provisionerId": use.provisioner_id,
        "workerType": use.worker_type,
        "method": use.method,
        "caller": use.caller,
        "missing": json.dumps(use.missing),
        "count": min(calls.count, _MAX_COUNT),
        "first": calls.first,
        "last": calls.last,
        "expires": calls.last + KEPT,
    }


def _recorded(row: Row) -> tuple[UsageKey, Calls]:
    provisioner, worker_type, method = properties(row, provisionerId=str, workerType=str, method=str)
    caller, missing, count, last = properties(row, caller=str, missing=str, count=int, last=datetime)
    names = tuple(of_kind(str, name) for name in of_kind(list, json.loads(missing)))
    first = of_kind(datetime, row.values.get("first", last))  # a row of an earlier version has none
    return UsageKey(provisioner, worker_type, method, caller, names), Calls(count, first, last)
