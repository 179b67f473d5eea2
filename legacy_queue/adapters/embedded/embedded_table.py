"""A table in the file. Each of its rows is a row of ``rows``, with its values as JSON in ``content``.

One statement reads a page, in two steps. First SQLite walks an index in its order and finds the ids of at
most 250 rows. This is a *walk*; there are five of them below. Then it reads these rows one by one and says of
each whether it meets the conditions. The caller stops fetching at the limit, or after half a megabyte. The
next page begins after the last row that was fetched.

The conditions are not in the WHERE of the walk, on purpose. If few rows met them, SQLite would read to the
end of the table to fill a page, and this process could do nothing else meanwhile. The price is that many
pages may be empty, unless the conditions name a partition, an unresolved ``state``, or an ``expires`` in the
past. The stores use these three, and they limit the walk.

What is ugly, and why it stays: the walks name their indexes, because without statistics SQLite may sort a
whole table instead. And the walk over several states is made of one walk for each state, because in one walk
over all of them SQLite would sort all their rows by key.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from legacy_queue.adapters.embedded.database import Database
from legacy_queue.domain.json_bytes import to_json
from legacy_queue.domain.states import UNRESOLVED
from legacy_queue.domain.times import epoch_milliseconds, from_epoch
from legacy_queue.ports import AlreadyExists, Changed, InvalidPosition
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

_MAX_INTEGER = 2**63 - 1  # the largest in SQLite
_FIRST = "\0"  # sorts before every character of a key
_LAST = chr(0x10FFFF)  # sorts after every character of a key
# the states of unresolved tasks, of tasks with unpublished events, and of active members of groups
_INDEXED_STATES = (*UNRESOLVED, "unpublished", "active")
# how much a page reads, which limits its time: rows, and bytes of all rows except the last
_MAX_READ = 250
_MAX_SIZE = 512 * 1024
_AT = "name = ? AND partition = ? AND key = ?"
# The walks. Each finds ids of rows. It takes the values of its question marks in their order.
_BY_KEY = f"""SELECT rowid AS id FROM rows
  WHERE name = ? AND (partition, key) >= (?, ?) AND (partition, key) <= (?, ?)
  ORDER BY partition, key LIMIT {_MAX_READ}"""
_BY_EXPIRY = f"""SELECT rowid AS id FROM rows INDEXED BY rows_by_expiry
  WHERE name = ? AND (expires, partition, key) >= (?, ?, ?) AND expires < ?
  ORDER BY expires, partition, key LIMIT {_MAX_READ}"""
_BY_STATE = f"""SELECT * FROM (SELECT rowid AS id, partition, key FROM rows INDEXED BY rows_by_state
  WHERE name = ? AND state = ? AND (partition, key) >= (?, ?) AND (partition, key) <= (?, ?)
  ORDER BY partition, key LIMIT {_MAX_READ})"""
# The newest rows first, because SQLite's rowid grows. This also finds rows of other tables.
_NEWEST = f"SELECT rowid AS id FROM rows WHERE rowid < ? ORDER BY rowid DESC LIMIT {_MAX_READ}"
_NEWEST_BY_STATE = f"""SELECT rowid AS id FROM rows INDEXED BY rows_by_state
  WHERE name = ? AND state IN (%s) AND rowid < ? ORDER BY rowid DESC LIMIT {_MAX_READ}"""
_COLUMNS = {PARTITION: "partition", KEY: "key", "expires": "expires"}
_OPERATORS = {"eq": "=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "in": "IN"}

_READERS: Mapping[str, Callable[[str], Value]] = {
    "s": str,
    "b": lambda text: text.encode("latin-1"),
    "d": lambda text: from_epoch(int(text)),
}


class EmbeddedTable(Table):
    knows_age = True

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
        statements = [self._statement(partition, change) for change in changes]

        def make_all(db: sqlite3.Connection) -> None:
            for statement, _ in statements:
                if not db.execute(*statement).rowcount:
                    raise Changed

        self._database.transaction(make_all)
        return [etag for _, etag in statements]

    def page(
        self,
        conditions: Sequence[Condition],
        after: str,
        limit: int,
        select: Sequence[str] | None = None,
        newest_first: bool = False,
    ) -> RowPage:
        check_limit(limit)
        if any(condition.value == () for condition in conditions):
            return RowPage([], None)
        walk = self._newest(conditions, after) if newest_first else self._next(conditions, after)
        is_met, asked = _met(walk.others)
        needs_content = select is None or bool(select)
        reads_content = needs_content or any(condition.name not in _COLUMNS for condition in walk.others)
        # CROSS JOIN keeps the order of the walk. So SQLite does not sort, and reads each row when it is
        # fetched. The newest rows may include rows of other tables.
        sql = f"""SELECT json_array({walk.place}), partition, key, etag,
            CASE WHEN name = ? AND {is_met} THEN {"content" if needs_content else "'{}'"} END,
            {"length(content)" if reads_content else "0"}
          FROM ({walk.ids}) AS found CROSS JOIN rows ON rows.rowid = found.id"""
        values = [self._name, *asked, *walk.values]
        found, is_end = self._database.read(partial(_fetched, sql, values, limit))
        rows = [
            Row(partition, key, _decoded(content, select), etag)
            for _, partition, key, etag, content, _ in found
            if content is not None
        ]
        return RowPage(rows, None if is_end else found[-1][0])

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
        """Return the statement and the new etag. It changes no row if its condition is not met."""
        at = (self._name, partition, change.key)
        values = change.values
        where, of_etag = (_AT, ()) if change.etag is None else (f"{_AT} AND etag = ?", (change.etag,))
        if change.kind == "delete":
            return (f"DELETE FROM rows WHERE {where}", (*at, *of_etag)), ""
        etag = f'W/"{os.urandom(8).hex()}"'
        content = to_json(_written(values)).decode()
        state = values.get("state")
        indexed = state if state in _INDEXED_STATES else None
        expires = values.get("expires")
        expiry = epoch_milliseconds(expires) if type(expires) is datetime else None
        if change.kind == "merge":
            columns = {"state": indexed, "expires": expiry}
            changed = {name: value for name, value in columns.items() if name in values}
            sets = "".join([f", {name} = ?" for name in changed])
            sql = f"UPDATE rows SET etag = ?, content = json_patch(content, ?){sets} WHERE {where}"
            return (sql, (etag, content, *changed.values(), *at, *of_etag)), etag
        verb = "INSERT OR IGNORE" if change.kind == "insert" else "INSERT OR REPLACE"
        sql = f"{verb} INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)"
        return (sql, (*at, indexed, expiry, etag, content)), etag

    def _next(self, conditions: Sequence[Condition], after: str) -> "_Walk":
        """Return the walk, by key or by expiry, whose index fits the conditions best."""
        of_state, others = _of_state(conditions)
        names = {condition.name for condition in others}
        expired = [c for c in others if (c.name, c.operator) == ("expires", "lt")]
        if expired and not (of_state or {PARTITION, KEY} & names):
            place = _place(after, int, str, str)
            first = _behind(place) if place else (-(2**62), "", "")
            _, before = _term(expired[0])
            return _Walk(_BY_EXPIRY, "expires, partition, key", (self._name, *first, *before), others)
        place = _place(after, str, str)
        first_key, last_key = _bounds(conditions)
        if place:
            first_key = max(first_key, _behind(place))
        if not of_state:
            return _Walk(_BY_KEY, "partition, key", (self._name, *first_key, *last_key), others)
        states = dict.fromkeys(_values(of_state))
        found = " UNION ALL ".join([_BY_STATE] * len(states))
        in_order = f" ORDER BY partition, key LIMIT {_MAX_READ}" if len(states) > 1 else ""
        ids = f"SELECT id FROM ({found}{in_order})"
        values = [value for state in states for value in (self._name, state, *first_key, *last_key)]
        return _Walk(ids, "partition, key", values, others)

    def _newest(self, conditions: Sequence[Condition], after: str) -> "_Walk":
        """Return the walk from the newest row, over all rows, or over the rows with these states."""
        of_state, others = _of_state(conditions)
        [before] = _place(after, int) or [_MAX_INTEGER]
        if not of_state:
            return _Walk(_NEWEST, "rows.rowid", (before,), others)
        states = _values(of_state)
        ids = _NEWEST_BY_STATE % ", ".join("?" * len(states))
        return _Walk(ids, "rows.rowid", (self._name, *states, before), others)


class _Walk(NamedTuple):
    """How to find the next rows of a page."""

    ids: str  # SQL for the ids of at most _MAX_READ rows, in the order of an index
    place: str  # SQL for what the order is by; the next page begins after it
    values: Sequence[Any]  # for the question marks in ``ids``
    others: Sequence[Condition]  # the conditions that the walk does not already ensure


def _fetched(
    sql: str, values: Sequence[Any], limit: int, connection: sqlite3.Connection
) -> tuple[list[tuple[Any, ...]], bool]:
    """Fetch rows until ``limit`` of them have content, or ``_MAX_SIZE`` is read.

    Returns the rows, and whether there are no more.
    """
    found = []
    met = size = 0
    cursor = connection.execute(sql, values)
    for row in cursor:
        found.append(row)
        met += row[4] is not None
        size += row[5]
        if met == limit or size >= _MAX_SIZE:
            break
    is_end = next(cursor, None) is None and len(found) < _MAX_READ
    cursor.close()
    return found, is_end


def _place(after: str, *kinds: type) -> list[Any]:
    """Return the place in an index that ``after`` names, or [] for its start. Raises InvalidPosition."""
    if not after:
        return []
    with suppress(ValueError, RecursionError):
        place: list[Any] = json.loads(after)
        is_of_index = isinstance(place, list) and [type(value) for value in place] == [*kinds]
        if is_of_index and to_json(place) == after.encode() and _is_in_range(place[0]):
            return place
    raise InvalidPosition


def _is_in_range(value: str | int) -> bool:
    return isinstance(value, str) or abs(value) <= _MAX_INTEGER


def _behind(place: Sequence[Any]) -> tuple[Any, ...]:
    """Return the first key after this place that a row can have."""
    return (*place[:-1], place[-1] + _FIRST)


def _of_state(conditions: Sequence[Condition]) -> tuple[Condition | None, Sequence[Condition]]:
    """Split off the condition that the index by state ensures, if there is one, from the others."""
    of_state = next(filter(_is_of_index, conditions), None)
    return of_state, [condition for condition in conditions if condition is not of_state]


def _is_of_index(condition: Condition) -> bool:
    is_of_state = condition.name == "state" and condition.operator in ("eq", "in")
    return is_of_state and {*_values(condition)} <= {*_INDEXED_STATES}


def _met(conditions: Sequence[Condition]) -> tuple[str, list[Any]]:
    """Return all the conditions in SQL, and their values."""
    terms = [_term(condition) for condition in conditions]
    return " AND ".join([sql for sql, _ in terms]) or "TRUE", [
        value for _, values in terms for value in values
    ]


def _term(condition: Condition) -> tuple[str, list[Any]]:
    """Return the condition in SQL, and its values. A missing property is NULL and meets no condition."""
    values: Sequence[Any] = _values(condition)
    is_time = isinstance(values[0], datetime)
    if is_time:
        values = [*map(epoch_milliseconds, values)]
    right = f"{_OPERATORS[condition.operator]} ({', '.join('?' * len(values))})"
    if condition.name in _COLUMNS:
        return f"{_COLUMNS[condition.name]} {right}", [*values]
    # compare a time as a number, because its text would have another order
    left = "CAST(substr(json_extract(content, ?), 2) AS INTEGER)" if is_time else "json_extract(content, ?)"
    return f"{left} {right}", [f'$."{condition.name}"', *_written(dict(enumerate(values))).values()]


def _bounds(conditions: Sequence[Condition]) -> tuple[_Key, _Key]:
    """Return the first and the last key that can meet the conditions."""
    first, last = _range(conditions, PARTITION)
    first_key, last_key = _range(conditions, KEY)
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


def _written(values: Mapping[Any, Value]) -> dict[Any, Any]:
    """Return the values as JSON can have them.

    JSON has neither bytes nor times, and json_patch must find no structure in a value. So each is a text with
    a letter in front.
    """
    written = dict(values)
    for name, value in values.items():
        match value:
            case str():
                written[name] = f"s{value}"
            case bytes():
                written[name] = "b" + value.decode("latin-1")
            case datetime():
                written[name] = f"d{epoch_milliseconds(value)}"
    return written


def _decoded(content: str, names: Container[str] | None = None) -> dict[str, Value]:
    """Return the values, or only those with these names."""
    return {
        name: _READERS[value[0]](value[1:]) if type(value) is str else value
        for name, value in json.loads(content).items()
        if names is None or name in names
    }
