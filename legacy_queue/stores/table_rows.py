"""Reads rows of a table: converts them, in pages or between two keys, and removes them when they expire.

A corrupt row is logged once and left out.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

import structlog

from legacy_queue.cooperation import let_others_run, yielding
from legacy_queue.domain.ids import TASK_ID
from legacy_queue.domain.json_bytes import from_json, to_json
from legacy_queue.ports import Changed, Corrupt
from legacy_queue.ports.table import KEY, PARTITION, Change, Condition, Row, Table, Value

log = structlog.get_logger()

Item = TypeVar("Item")
Kind = TypeVar("Kind")

_UNREADABLE = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)
_MAX_PAGE = 1000
_YIELD_AFTER = 50  # rows; a task of a few KiB takes up to 100 µs
_CHUNK = 64 * 1024  # bytes, Azure's limit for a property
_CHUNKS = "chunks"
KEYS_ONLY: Sequence[str] = ()  # no properties of a row


def page(
    table: Table,
    conditions: Sequence[Condition],
    after: str,
    limit: int,
    convert: Callable[[Row], Item],
    select: Sequence[str] | None = None,
    newest_first: bool = False,
) -> tuple[list[Item], str | None]:
    """Returns up to ``limit`` (1..1000) converted rows, and the ``after`` of the next page, None at the end.

    ``after`` is "" for the first page. A page may be empty and not be the last. See ``Table.page``.
    """
    rows = table.page(conditions, after, limit, select, newest_first)
    items = []
    for row in yielding(rows.rows, _YIELD_AFTER):
        with suppress(Corrupt):
            items.append(read(row, convert))
    return items, rows.after


def between(
    table: Table,
    partition: str,
    first: str,
    end: str,
    limit: int,
    convert: Callable[[Row], Item],
    select: Sequence[str] | None = None,
    conditions: Sequence[Condition] = (),
) -> list[Item]:
    """Returns the first ``limit`` readable rows of the partition with ``first`` < key < ``end``."""
    keys = (Condition(PARTITION, "eq", partition), Condition(KEY, "gt", first), Condition(KEY, "lt", end))
    return first_of(table, [*keys, *conditions], limit, convert, select)


def first_of(
    table: Table,
    conditions: Sequence[Condition],
    limit: int,
    convert: Callable[[Row], Item],
    select: Sequence[str] | None = None,
) -> list[Item]:
    """Returns the first ``limit`` readable rows that meet the conditions."""
    items: list[Item] = []
    after: str | None = ""
    while after is not None and len(items) < limit:
        more, after = page(table, conditions, after, min(limit, _MAX_PAGE), convert, select)
        items += more
    return items[:limit]


def read(row: Row, convert: Callable[[Row], Item]) -> Item:
    """Returns the converted row. If it cannot be converted, logs it once and raises Corrupt."""
    try:
        if row.values.get(_CHUNKS, 1) == 1:
            return convert(row)
        let_others_run()  # a row of a megabyte takes 20 ms
        item = convert(row)
        let_others_run()
        return item
    except _UNREADABLE as error:
        _log_once(row.partition, row.key, row.etag, type(error).__name__)
        raise Corrupt(f"the row {row.partition} {row.key} cannot be read") from error


@lru_cache(1000)
def _log_once(partition: str, key: str, _version: str, why: str) -> None:
    log.error("row-corrupt", partition=partition, row=key, why=why)


def slugid_in(key: str) -> str:
    """Returns the key, if it is a taskId or taskGroupId. Raises ValueError."""
    if not re.fullmatch(TASK_ID, key):
        raise ValueError("a key is not a slugid")
    return key


def of_kind(kind: type[Kind], value: object) -> Kind:
    """Returns the value if it has that type. Raises TypeError."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"a {type(value).__name__} instead of {kind.__name__}")
    return value


def properties(row: Row, **kinds: type) -> tuple[Any, ...]:
    """Returns the properties of the row that have these names and types. Raises KeyError, TypeError."""
    return tuple(of_kind(kind, row.values[name]) for name, kind in kinds.items())


def json_values(name: str, value: Mapping[str, Any]) -> dict[str, Value]:
    """Returns the value as JSON, in properties ``<name>0``, ``<name>1``, ... of 64 KiB, and their number.

    A merge cannot remove a property. Because of the number, a shorter value can be merged over a longer one.
    """
    content = to_json(dict(value))
    chunks = [content[start : start + _CHUNK] for start in range(0, len(content), _CHUNK)]
    return {**{f"{name}{number}": chunk for number, chunk in enumerate(chunks)}, _CHUNKS: len(chunks)}


def json_in(name: str, row: Row) -> dict[str, Any]:
    """Returns the value that ``json_values`` has stored under that name."""
    (count,) = properties(row, **{_CHUNKS: int})
    content = b"".join(of_kind(bytes, row.values[f"{name}{number}"]) for number in range(count))
    return of_kind(dict, from_json(content))


class ExpiringRows:
    """Removes the expired rows of a table: those with a property ``expires`` that meet the conditions."""

    def __init__(self, table: Table, conditions: Sequence[Condition] = ()) -> None:
        self._table = table
        self._conditions = conditions

    def on_removed(self, partition: str) -> None:
        """Called after rows of that partition are removed. A store with a cache must forget them here."""

    def remove_expired(self, now: datetime, after: str, limit: int) -> str | None:
        """Remove up to ``limit`` (1..100) rows that expired before ``now``.

        Returns the next ``after``, or None at the end. ``after`` is "" for the first call. If a row changes
        meanwhile, it stays, and so do the others of its partition until the next pass. Safe to repeat, and in
        several processes at the same time.
        """
        expired = self._table.page(
            [Condition("expires", "lt", now), *self._conditions], after, limit, KEYS_ONLY
        )
        partitions = defaultdict(list)
        for row in expired.rows:
            partitions[row.partition].append(row)
        for partition, rows in partitions.items():
            with suppress(Changed):
                if len(rows) == 1:
                    self._table.delete(partition, rows[0].key, rows[0].etag)
                else:
                    deletions = [Change("delete", row.key, {}, row.etag) for row in rows]
                    self._table.batch(partition, deletions)
                self.on_removed(partition)
        return expired.after
