"""A table in the memory of this process."""

import itertools
import json
import operator
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from types import MappingProxyType
from typing import Any

from legacy_queue.ports import AlreadyExists, Changed
from legacy_queue.ports.table import (
    KEY,
    PARTITION,
    Change,
    Condition,
    Row,
    RowPage,
    Table,
    Value,
    check_changes,
    check_limit,
)

_Key = tuple[str, str]  # partition and key

_FIRST, _LAST = "\0", chr(0x10FFFF)  # before and behind every character of a key
_MAX_SCANNED = 10_000  # rows for a page, which bounds the time that the lock is held
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "in": operator.eq,
    **{name: getattr(operator, name) for name in ("eq", "lt", "le", "gt", "ge")},
}

_etags = map('W/"{}"'.format, itertools.count(1))  # unique over all tables


class MemoryTable(Table):
    """Immutable rows, and the sorted list of their keys.

    A page begins with a bisection and scans only the range of keys of its conditions.
    """

    def __init__(self) -> None:
        self._rows: dict[_Key, Row] = {}
        self._keys: list[_Key] = []
        self._lock = Lock()

    def get(self, partition: str, key: str) -> Row | None:
        return self._rows.get((partition, key))

    def batch(self, partition: str, changes: Sequence[Change]) -> Sequence[str]:
        check_changes(partition, changes)
        with self._lock:
            rows = [(change.key, self._changed(partition, change)) for change in changes]
            for key, row in rows:
                self._store((partition, key), row)
        return [row.etag if row else "" for _, row in rows]

    def page(
        self, conditions: Sequence[Condition], after: str, limit: int, select: Sequence[str] | None = None
    ) -> RowPage:
        check_limit(limit)
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
                    return RowPage(found, json.dumps(self._keys[position]))
        return RowPage(found, None)

    def _change(self, partition: str, change: Change) -> str:
        try:
            return self.batch(partition, [change])[0]
        except Changed:
            if change.kind == "insert":
                raise AlreadyExists from None
            if change.kind == "delete" and (partition, change.key) not in self._rows:
                return ""
            raise

    def _changed(self, partition: str, change: Change) -> Row | None:
        """The row after the change, None after a delete; raises Changed."""
        current = self._rows.get((partition, change.key))
        match change.kind:
            case "insert" if current:
                raise Changed
            case "merge" | "delete" if not current or change.etag not in (None, current.etag):
                raise Changed
            case "delete":
                return None
        kept = current.values if current and change.kind == "merge" else {}
        return Row(partition, change.key, MappingProxyType({**kept, **change.values}), next(_etags))

    def _store(self, key: _Key, row: Row | None) -> None:
        if row is None:
            del self._rows[key], self._keys[bisect_left(self._keys, key)]
            return
        if key not in self._rows:
            insort(self._keys, key)
        self._rows[key] = row


def _bounds(conditions: Sequence[Condition]) -> tuple[_Key, _Key]:
    """The first and the last key that can meet the conditions."""
    (first, last), (first_key, last_key) = (_range(conditions, name) for name in (PARTITION, KEY))
    return (first, first_key if first == last else ""), (last, last_key if first == last else _LAST)


def _range(conditions: Sequence[Condition], name: str) -> tuple[str, str]:
    first, last = "", _LAST
    for condition in conditions:
        if condition.name == name and condition.value != ():
            texts = [str(value) for value in _values(condition)]
            if condition.operator in ("eq", "in", "ge", "gt"):
                first = max(first, min(texts) + (_FIRST if condition.operator == "gt" else ""))
            if condition.operator in ("eq", "in", "le", "lt"):
                last = min(last, max(texts))
    return first, last


def _values(condition: Condition) -> tuple[Value, ...]:
    return condition.value if isinstance(condition.value, tuple) else (condition.value,)


def _meets(row: Row, condition: Condition) -> bool:
    fields = {PARTITION: row.partition, KEY: row.key}
    found = fields.get(condition.name, row.values.get(condition.name))
    compare = _COMPARE[condition.operator]
    return any(type(found) is type(value) and compare(found, value) for value in _values(condition))


def _selected(row: Row, names: Sequence[str]) -> Row:
    values = {name: row.values[name] for name in names if name in row.values}
    return Row(row.partition, row.key, values, row.etag)
