"""A table in this process's memory."""

import itertools
import json
import operator
import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from threading import Lock
from types import MappingProxyType
from typing import Any

from legacy_queue.ports import AlreadyExists, Changed
from legacy_queue.ports.table import KEY, PARTITION, Change, Condition, Page, Row, Table, Value

_Key = tuple[str, str]  # partition and key

_FIRST, _LAST = "\0", chr(0x10FFFF)  # before and behind every character of a key
_MAX_SCANNED = 10_000  # rows for a page: no other call waits longer than that for the lock
_VALID_KEY = re.compile(r"[^/\\#?\x00-\x1f\x7f-\x9f]{1,512}")
_MAX_VALUE, _MAX_ROW = 64 * 1024, 1024 * 1024  # bytes, two for each character
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}

_etags = map('W/"{}"'.format, itertools.count(1))  # of all tables: no two versions have the same


class MemoryTable(Table):
    """Rows, which are never changed but replaced, and the sorted list of their keys.

    A page begins with a bisection, and looks at rows of the range of keys that its conditions name only.
    """

    def __init__(self) -> None:
        self._rows: dict[_Key, Row] = {}
        self._keys: list[_Key] = []
        self._lock = Lock()

    def get(self, partition: str, key: str) -> Row | None:
        return self._rows.get((partition, key))

    def insert(self, partition: str, key: str, values: Mapping[str, Value]) -> str:
        try:
            return self.batch(partition, [Change("insert", key, values)])[0]
        except Changed:
            raise AlreadyExists from None

    def put(self, partition: str, key: str, values: Mapping[str, Value]) -> str:
        return self.batch(partition, [Change("put", key, values)])[0]

    def merge(self, partition: str, key: str, values: Mapping[str, Value], etag: str | None = None) -> str:
        return self.batch(partition, [Change("merge", key, values, etag)])[0]

    def delete(self, partition: str, key: str, etag: str | None = None) -> None:
        try:
            self.batch(partition, [Change("delete", key, {}, etag)])
        except Changed:
            if (partition, key) in self._rows:
                raise

    def batch(self, partition: str, changes: Sequence[Change]) -> Sequence[str]:
        if not 1 <= len({change.key for change in changes}) == len(changes) <= 100:
            raise ValueError("a batch has 1 to 100 changes of different rows")
        with self._lock:
            rows = [(change.key, self._changed(partition, change)) for change in changes]
            for key, row in rows:
                self._store((partition, key), row)
        return [row.etag if row else "" for _, row in rows]

    def page(
        self,
        conditions: Sequence[Condition],
        after: str,
        limit: int,
        select: Sequence[str] | None = None,
    ) -> Page:
        if not 1 <= limit <= 1000:
            raise ValueError("a page has 1 to 1000 rows")
        first, last = _bounds(conditions)
        found: list[Row] = []
        with self._lock:
            start, end = bisect_left(self._keys, first), bisect_right(self._keys, last)
            if after:
                start = max(start, bisect_right(self._keys, tuple(json.loads(after))))
            for position in range(start, min(end, start + _MAX_SCANNED)):
                row = self._rows[self._keys[position]]
                if all(_meets(row, condition) for condition in conditions):
                    found.append(row if select is None else _selected(row, select))
                if len(found) == limit or position == start + _MAX_SCANNED - 1:
                    return Page(found, json.dumps(self._keys[position]))
        return Page(found, None)

    def _changed(self, partition: str, change: Change) -> Row | None:
        """The row as the change makes it, None where that deletes it; raises Changed."""
        current = self._rows.get((partition, change.key))
        if change.kind == "insert" and current is not None:
            raise Changed
        if change.kind in ("merge", "delete") and (
            current is None or change.etag not in (None, current.etag)
        ):
            raise Changed
        if change.kind == "delete":
            return None
        kept = current.values if current is not None and change.kind == "merge" else {}
        row = Row(partition, change.key, MappingProxyType({**kept, **change.values}), next(_etags))
        _check(row)
        return row

    def _store(self, key: _Key, row: Row | None) -> None:
        if row is None:
            del self._rows[key], self._keys[bisect_left(self._keys, key)]
            return
        if key not in self._rows:
            insort(self._keys, key)
        self._rows[key] = row


def _bounds(conditions: Sequence[Condition]) -> tuple[_Key, _Key]:
    """No key before the first and none behind the second meets the conditions."""
    (first, last), (first_key, last_key) = (_range(conditions, name) for name in (PARTITION, KEY))
    return (first, first_key if first == last else ""), (last, last_key if first == last else _LAST)


def _range(conditions: Sequence[Condition], name: str) -> tuple[str, str]:
    first, last = "", _LAST
    for condition in conditions:
        if condition.name == name and condition.value != ():
            values = condition.value if isinstance(condition.value, tuple) else (condition.value,)
            texts = [str(value) for value in values]
            if condition.operator in ("eq", "in", "ge", "gt"):
                first = max(first, min(texts) + (_FIRST if condition.operator == "gt" else ""))
            if condition.operator in ("eq", "in", "le", "lt"):
                last = min(last, max(texts))
    return first, last


def _meets(row: Row, condition: Condition) -> bool:
    fields = {PARTITION: row.partition, KEY: row.key}
    found = fields.get(condition.name, row.values.get(condition.name))
    wanted = condition.value if isinstance(condition.value, tuple) else (condition.value,)
    compare = _COMPARE["eq" if condition.operator == "in" else condition.operator]
    return any(type(found) is type(value) and compare(found, value) for value in wanted)


def _selected(row: Row, names: Sequence[str]) -> Row:
    values = {name: row.values[name] for name in names if name in row.values}
    return Row(row.partition, row.key, values, row.etag)


def _check(row: Row) -> None:
    """Raise ValueError for what Azure refuses."""
    if not (_VALID_KEY.fullmatch(row.partition) and _VALID_KEY.fullmatch(row.key)):
        raise ValueError(f"{row.partition!r} {row.key!r} is not a valid key")
    sizes = {name: _size(value) for name, value in row.values.items()}
    if sum(sizes.values()) > _MAX_ROW:
        raise ValueError("a row has up to 1 MiB")
    too_large = [name for name, size in sizes.items() if size > _MAX_VALUE]
    if too_large:
        raise ValueError(f"{too_large[0]} has more than 64 KiB")


def _size(value: Value) -> int:
    match value:
        case bool():
            return 1
        case int() if not -(2**31) <= value < 2**31:
            raise ValueError(f"{value} does not have 32 bits")
        case datetime() if value.tzinfo is None:
            raise ValueError("a time has no time zone")
        case bytes():
            return len(value)
        case str():
            return 2 * len(value)
    return 8
