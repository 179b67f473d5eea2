"""A table in the file: a row for each row, its values as JSON.

A page reads up to 250 rows of an index. All of them are wanted where the conditions name a partition, an
unresolved ``state`` or an ``expires`` of the past; otherwise many pages may be empty.
"""

import json
import os
import re
import sqlite3
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

from legacy_queue.adapters.embedded.database import Database
from legacy_queue.domain.json_bytes import to_json
from legacy_queue.domain.times import epoch_milliseconds, from_epoch
from legacy_queue.ports import AlreadyExists, Changed, InvalidPlace
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

_ETAG = re.compile(r'W/"(\d+)\.')  # older rows have no time in their etags
_MAX_INTEGER = 2**63 - 1  # of SQLite
_FIRST = "\0"  # before every character of a key
_LAST = chr(0x10FFFF)  # behind every character of a key
_INDEXED_STATES = ("unscheduled", "pending", "running", "active")  # of tasks, and of a group's members
# what a page reads, which bounds the time that it takes: rows, and bytes of them beside the last row
_MAX_READ = 250
_MAX_SIZE = 512 * 1024
_AT = "name = ? AND partition = ? AND key = ?"
# The rows of ``ids``, in their order: the place of each, its content if it meets the conditions, and how much
# was read for it. The conditions are no part of WHERE: where few rows meet them, SQLite would read on to the
# end of the table, and hold the loop. A row is read when it is fetched, since nothing here needs sorting but
# ``ids``, which are of an index alone.
_ROWS = """SELECT json_array({place}), partition, key, etag,
  CASE WHEN name = ? AND {is_met} THEN {content} END, {size}
  FROM ({ids}) AS found CROSS JOIN rows ON rows.rowid = found.id"""
# The next rows of an index, which is named, since SQLite without statistics may sort a whole table instead.
_NEXT = f"""SELECT * FROM (SELECT rowid AS id, {{order}} FROM rows {{index}} WHERE name = ? AND {{bounds}}
  ORDER BY {{order}} LIMIT {_MAX_READ})"""
# The rows that were inserted last, first: SQLite counts the rowid up. Those of other tables are read as well.
_NEWEST = f"SELECT rowid AS id FROM rows {{where}} rowid < ? ORDER BY rowid DESC LIMIT {_MAX_READ}"
_BY_KEY = "(partition, key) >= (?, ?) AND (partition, key) <= (?, ?)"
_OF_ALL = f" ORDER BY partition, key LIMIT {_MAX_READ}"
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

    def now(self) -> datetime:
        return self._database.now()

    def get(self, partition: str, key: str) -> Row | None:
        found = self._database.rows(
            f"SELECT etag, content FROM rows WHERE {_AT}", (self._name, partition, key)
        )
        return _row(partition, key, _decoded(found[0][1]), found[0][0]) if found else None

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
        of_state = next(filter(_is_of_index, conditions), None)
        others = [condition for condition in conditions if condition is not of_state]
        if newest_first:
            ids, place, values = self._newest(of_state, after)
        else:
            ids, place, values = self._next(of_state, others, conditions, after)
        is_met, asked = _met(others)
        content = "content" if select is None or select else "'{}'"
        is_read = content == "content" or any(condition.name not in _COLUMNS for condition in others)
        sql = _ROWS.format(
            place=place, is_met=is_met, content=content, size="length(content)" if is_read else "0", ids=ids
        )
        found, is_end = self._database.read(partial(_fetched, sql, [self._name, *asked, *values], limit))
        rows = [
            _row(partition, key, _decoded(content, select), etag)
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
        """The statement, which changes no row where its condition does not hold, and the new etag."""
        at = (self._name, partition, change.key)
        values = change.values
        where, of_etag = (_AT, ()) if change.etag is None else (f"{_AT} AND etag = ?", (change.etag,))
        if change.kind == "delete":
            return (f"DELETE FROM rows WHERE {where}", (*at, *of_etag)), ""
        # it has the time of the change, as on Azure: a column for that would change the file's version
        etag = f'W/"{epoch_milliseconds(self.now())}.{os.urandom(8).hex()}"'
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

    def _next(
        self,
        of_state: Condition | None,
        others: Sequence[Condition],
        conditions: Sequence[Condition],
        after: str,
    ) -> tuple[str, str, Sequence[Any]]:
        """See ``_NEXT``: of the index whose order and range fit best; its order, and the values."""
        expired = [_term(c) for c in others if (c.name, c.operator) == ("expires", "lt")]
        is_by_expiry = expired and not (of_state or {PARTITION, KEY} & {c.name for c in others})
        place = _place(after, int, str, str) if is_by_expiry else _place(after, str, str)
        behind = (*place[:-1], place[-1] + _FIRST) if place else ()  # no row is between the place and this
        index = ""
        order = "partition, key"
        bounds = _BY_KEY
        ranges: list[tuple[Any, ...]]
        if is_by_expiry:
            index = "INDEXED BY rows_by_expiry"
            order = "expires, partition, key"
            bounds = f"(expires, partition, key) >= (?, ?, ?) AND {expired[0][0]}"
            ranges = [(*(behind or (-(2**62), "", "")), *expired[0][1])]
        else:
            first, last = _bounds(conditions)
            ranges = [(*max(first, behind), *last)]
        if of_state:
            index = "INDEXED BY rows_by_state"
            bounds = f"state = ? AND {_BY_KEY}"
            ranges = [(state, *ranges[0]) for state in dict.fromkeys(_values(of_state))]
        one = _NEXT.format(order=order, index=index, bounds=bounds)
        ids = " UNION ALL ".join([one] * len(ranges)) + ("" if len(ranges) == 1 else _OF_ALL)
        return f"SELECT id FROM ({ids})", order, [value for each in ranges for value in (self._name, *each)]

    def _newest(self, of_state: Condition | None, after: str) -> tuple[str, str, Sequence[Any]]:
        """See ``_NEWEST``: of all rows, or of those in unresolved states, which have an index."""
        states = _values(of_state) if of_state else ()
        marks = ", ".join("?" * len(states))
        where = f"INDEXED BY rows_by_state WHERE name = ? AND state IN ({marks}) AND" if states else "WHERE"
        before = _place(after, int) or [_MAX_INTEGER]
        of_states = (self._name, *states) if states else ()
        return _NEWEST.format(where=where), "rows.rowid", [*of_states, *before]


def _fetched(
    sql: str, values: Sequence[Any], limit: int, connection: sqlite3.Connection
) -> tuple[list[tuple[Any, ...]], bool]:
    """The rows until ``limit`` have a content, or ``_MAX_SIZE`` was read, and whether none is left."""
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
    """The place in an index that ``after`` names, [] for its beginning. Raises InvalidPlace."""
    if not after:
        return []
    with suppress(ValueError, RecursionError):
        place: list[Any] = json.loads(after)
        is_of_index = isinstance(place, list) and [type(value) for value in place] == [*kinds]
        if is_of_index and to_json(place) == after.encode() and _is_in_range(place[0]):
            return place
    raise InvalidPlace


def _is_in_range(value: str | int) -> bool:
    return isinstance(value, str) or abs(value) <= _MAX_INTEGER


def _is_of_index(condition: Condition) -> bool:
    is_of_state = condition.name == "state" and condition.operator in ("eq", "in")
    return is_of_state and {*_values(condition)} <= {*_INDEXED_STATES}


def _met(conditions: Sequence[Condition]) -> tuple[str, list[Any]]:
    """All of the conditions in SQL, and their values."""
    terms = [_term(condition) for condition in conditions]
    return " AND ".join([sql for sql, _ in terms]) or "TRUE", [
        value for _, values in terms for value in values
    ]


def _term(condition: Condition) -> tuple[str, list[Any]]:
    """The condition in SQL, and its values. A missing property is NULL, which meets none."""
    values: Sequence[Any] = _values(condition)
    is_time = isinstance(values[0], datetime)
    if is_time:
        values = [*map(epoch_milliseconds, values)]
    right = f"{_OPERATORS[condition.operator]} ({', '.join('?' * len(values))})"
    if condition.name in _COLUMNS:
        return f"{_COLUMNS[condition.name]} {right}", [*values]
    # a time is compared as a number: the text would have another order
    left = "CAST(substr(json_extract(content, ?), 2) AS INTEGER)" if is_time else "json_extract(content, ?)"
    return f"{left} {right}", [f'$."{condition.name}"', *_written(dict(enumerate(values))).values()]


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


def _row(partition: str, key: str, values: Mapping[str, Value], etag: str) -> Row:
    timed = _ETAG.match(etag)
    return Row(partition, key, values, etag, from_epoch(int(timed[1]) if timed else 0))


def _encoded(values: Mapping[str, Value]) -> str:
    return to_json(_written(values)).decode()


def _written(values: Mapping[Any, Value]) -> dict[Any, Any]:
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
    return written


def _decoded(content: str, names: Container[str] | None = None) -> dict[str, Value]:
    """The values, or those with these names."""
    return {
        name: _READERS[value[0]](value[1:]) if type(value) is str else value
        for name, value in json.loads(content).items()
        if names is None or name in names
    }
