"""A table in the file: a row for each row, its values as JSON.

A page costs what it returns where the conditions name keys of a partition, ``state`` or an ``expires`` of the
past; otherwise it reads up to a bounded number of rows.
"""

import json
import operator
import os
import sqlite3
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from legacy_queue.adapters.embedded.database import Database
from legacy_queue.domain.times import epoch_milliseconds, from_epoch
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
    check_change,
    check_changes,
    check_limit,
)

_Key = tuple[str, str]  # partition and key

_FIRST = "\0"  # before every character of a key
_LAST = chr(0x10FFFF)  # behind every character of a key
_INDEXED_STATES = ("unscheduled", "pending", "running")
# rows for a page, which bound the time that it takes
_MAX_READ = 1000
_MAX_DECODED = 250
_AT = "name = ? AND partition = ? AND key = ?"
_BY_STATE = """SELECT * FROM (
  SELECT partition, key, etag, {content}, expires FROM rows INDEXED BY rows_by_state
  WHERE name = ? AND state = ? AND (partition, key) {compare} (?, ?) AND (partition, key) <= (?, ?)
  ORDER BY partition, key LIMIT ?)"""
_BY_KEY = """SELECT partition, key, etag, {content}, expires FROM rows
  WHERE name = ? AND (partition, key) {compare} (?, ?) AND (partition, key) <= (?, ?)
  ORDER BY partition, key LIMIT ?"""
_BY_EXPIRY = """SELECT partition, key, etag, {content}, expires FROM rows INDEXED BY rows_by_expiry
  WHERE name = ? AND expires < ? AND (expires, partition, key) > (?, ?, ?)
  ORDER BY expires, partition, key LIMIT ?"""
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "in": operator.eq,
    **{name: getattr(operator, name) for name in ("eq", "lt", "le", "gt", "ge")},
}

_dumps = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_READERS: Mapping[str, Callable[[str], Value]] = {
    "s": str,
    "b": lambda text: text.encode("latin-1"),
    "d": lambda text: from_epoch(int(text)),
}


class _Asked(NamedTuple):
    """The question of a page. ``states`` and ``expired_before`` are None where no index answers them."""

    first: _Key
    last: _Key
    states: Sequence[Value] | None
    expired_before: int | None
    of_keys: Sequence[Condition]
    of_values: Sequence[Condition]  # which no index answers


class EmbeddedTable(Table):
    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._name = name

    def get(self, partition: str, key: str) -> Row | None:
        found = self._database.rows(
            f"SELECT etag, content FROM rows WHERE {_AT}", (self._name, partition, key)
        )
        return Row(partition, key, _decoded(found[0][1]), found[0][0]) if found else None

    def batch(self, partition: str, changes: Sequence[Change]) -> Sequence[str]:
        check_changes(partition, changes)

        def make_all(db: sqlite3.Connection) -> list[str]:
            etags = []
            for statement, etag in (self._statement(partition, change) for change in changes):
                if not db.execute(*statement).rowcount:
                    raise Changed
                etags.append(etag)
            return etags

        return self._database.transaction(make_all)

    def page(
        self, conditions: Sequence[Condition], after: str, limit: int, select: Sequence[str] | None = None
    ) -> RowPage:
        check_limit(limit)
        if any(condition.value == () for condition in conditions):
            return RowPage([], None)
        asked = _asked(conditions)
        has_content = bool(asked.of_values or select is None or select)
        is_loose = asked.of_values or (asked.of_keys and asked.first[0] != asked.last[0])
        wanted = min(_MAX_DECODED if has_content else _MAX_READ, _MAX_READ if is_loose else limit)
        found = self._database.rows(*self._query(asked, after, wanted, "content" if has_content else "NULL"))
        needed = None if select is None else {*select, *(condition.name for condition in asked.of_values)}
        rows = list[Row]()
        last = -1
        for last, (partition, key, etag, content, _) in enumerate(found):  # noqa: B007 - used below
            row = Row(partition, key, {}, etag)
            if not _meets(row, asked.of_keys):
                continue
            row = Row(partition, key, _decoded(content, needed), etag) if has_content else row
            if _meets(row, asked.of_values):
                rows.append(row if select is None else _selected(row, select))
            if len(rows) == limit:
                break
        if last + 1 == len(found) < wanted:
            return RowPage(rows, None)
        partition, key, _, _, expires = found[last]
        place = [partition, key] if asked.expired_before is None else [expires, partition, key]
        return RowPage(rows, json.dumps(place))

    def _change(self, partition: str, change: Change) -> str:
        check_change(partition, change)
        statement, etag = self._statement(partition, change)
        if not self._database.change(*statement):
            if change.kind == "insert":
                raise AlreadyExists
            if change.kind == "merge" or self.get(partition, change.key):
                raise Changed
        return etag

    def _statement(self, partition: str, change: Change) -> tuple[tuple[str, Sequence[Any]], str]:
        """The statement, which changes no row where its condition does not hold, and the new etag."""
        at = (self._name, partition, change.key)
        values = change.values
        where, of_etag = (_AT, ()) if change.etag is None else (f"{_AT} AND etag = ?", (change.etag,))
        if change.kind == "delete":
            return (f"DELETE FROM rows WHERE {where}", (*at, *of_etag)), ""
        etag = f'W/"{os.urandom(12).hex()}"'
        state = values.get("state")
        expires = values.get("expires")
        columns = {
            "state": state if state in _INDEXED_STATES else None,
            "expires": epoch_milliseconds(expires) if type(expires) is datetime else None,
        }
        if change.kind == "merge":
            changed = {name: value for name, value in columns.items() if name in values}
            sets = "".join([f", {name} = ?" for name in changed])
            sql = f"UPDATE rows SET etag = ?, content = json_patch(content, ?){sets} WHERE {where}"
            return (sql, (etag, _encoded(values), *changed.values(), *at, *of_etag)), etag
        verb = "INSERT OR IGNORE" if change.kind == "insert" else "INSERT OR REPLACE"
        sql = f"{verb} INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)"
        return (sql, (*at, *columns.values(), etag, _encoded(values))), etag

    def _query(self, asked: _Asked, after: str, wanted: int, content: str) -> tuple[str, Sequence[Any]]:
        behind = tuple(json.loads(after)) if after else ()
        if asked.expired_before is not None:
            values = self._name, asked.expired_before, *(behind or (-(2**62), "", "")), wanted
            return _BY_EXPIRY.format(content=content), values
        compare, start = (">", behind) if behind >= asked.first else (">=", asked.first)
        if asked.states is None:
            sql = _BY_KEY.format(content=content, compare=compare)
            return sql, (self._name, *start, *asked.last, wanted)
        one = _BY_STATE.format(content=content, compare=compare)
        sql = " UNION ALL ".join([one] * len(asked.states)) + " ORDER BY partition, key LIMIT ?"
        of_each = ((self._name, state, *start, *asked.last, wanted) for state in asked.states)
        return sql, (*chain.from_iterable(of_each), wanted)


def _asked(conditions: Sequence[Condition]) -> _Asked:
    first, last = _bounds(conditions)
    of_keys = list[Condition]()
    of_values = list[Condition]()
    states = None
    expired_before = None
    for condition in conditions:
        value = condition.value
        if condition.name in (PARTITION, KEY):
            of_keys.append(condition)
        elif states is None and _asks_for_states(condition):
            states = tuple(dict.fromkeys(_values(condition)))
        elif expired_before is None and (condition.name, condition.operator) == ("expires", "lt"):
            expired_before = epoch_milliseconds(value) if isinstance(value, datetime) else -(2**62)
        else:
            of_values.append(condition)
    if expired_before is not None and (of_keys or states):  # these are the better index
        of_values += [condition for condition in conditions if condition.name == "expires"]
        expired_before = None
    return _Asked(first, last, states, expired_before, of_keys, of_values)


def _asks_for_states(condition: Condition) -> bool:
    is_of_state = condition.name == "state" and condition.operator in ("eq", "in")
    return is_of_state and {*_values(condition)} <= {*_INDEXED_STATES}


def _bounds(conditions: Sequence[Condition]) -> tuple[_Key, _Key]:
    """The first and the last key that can meet the conditions."""
    (first, last), (first_key, last_key) = (_range(conditions, name) for name in (PARTITION, KEY))
    return (first, first_key if first == last else ""), (last, last_key if first == last else _LAST)


def _range(conditions: Sequence[Condition], name: str) -> tuple[str, str]:
    first = ""
    last = _LAST
    for condition in conditions:
        if condition.name == name:
            texts = [str(value) for value in _values(condition)]
            if condition.operator in ("eq", "in", "ge", "gt"):
                first = max(first, min(texts) + (_FIRST if condition.operator == "gt" else ""))
            if condition.operator in ("eq", "in", "le", "lt"):
                last = min(last, max(texts))
    return first, last


def _values(condition: Condition) -> tuple[Value, ...]:
    return condition.value if isinstance(condition.value, tuple) else (condition.value,)


def _meets(row: Row, conditions: Sequence[Condition]) -> bool:
    for condition in conditions:
        fields = {PARTITION: row.partition, KEY: row.key}
        actual = fields.get(condition.name, row.values.get(condition.name))
        compare = _COMPARE[condition.operator]
        if not any(type(actual) is type(value) and compare(actual, value) for value in _values(condition)):
            return False
    return True


def _selected(row: Row, names: Sequence[str]) -> Row:
    values = {name: row.values[name] for name in names if name in row.values}
    return Row(row.partition, row.key, values, row.etag)


def _encoded(values: Mapping[str, Value]) -> str:
    """JSON has neither bytes nor times, and json_patch must find no structure in a value."""
    written = dict(values)
    for name, value in values.items():
        match value:
            case str():
                written[name] = f"s{value}"
            case bytes():
                written[name] = "b" + value.decode("latin-1")
            case datetime():
                written[name] = f"d{epoch_milliseconds(value)}"
    return str(_dumps(written))


def _decoded(content: str, names: Container[str] | None = None) -> dict[str, Value]:
    """The values, or those with these names."""
    return {
        name: _READERS[value[0]](value[1:]) if type(value) is str else value
        for name, value in json.loads(content).items()
        if names is None or name in names
    }
