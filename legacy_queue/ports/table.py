"""A table of rows, as Azure Table Storage has it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal, Protocol

# an int has 32 bits; a datetime is aware, in milliseconds
Value = str | int | bool | bytes | datetime

PARTITION = "PartitionKey"
KEY = "RowKey"  # as names in conditions
_MAX_VALUE = 64 * 1024
_MAX_ROW = 1024 * 1024  # bytes, two for each character
_VALID_KEY = r"[^/\\#?\x00-\x1f\x7f-\x9f]{1,512}"
_VALID_KEYS = re.compile(f"{_VALID_KEY}/{_VALID_KEY}")


@dataclass(frozen=True)
class Row:
    """A row and its version. Rows of a partition are ordered by their keys, as bytes."""

    partition: str
    key: str
    values: Mapping[str, Value]
    etag: str


@dataclass(frozen=True)
class Condition:
    """Rows whose property ``name`` compares so with ``value``; ``in`` takes a tuple of values."""

    name: str
    operator: Literal["eq", "lt", "le", "gt", "ge", "in"]
    value: Value | tuple[Value, ...]


@dataclass(frozen=True)
class Change:
    """``insert`` requires a missing row, ``put`` replaces any row, ``merge`` changes the given properties of
    an existing row, ``delete`` removes an existing row. ``etag`` is the version that merge and delete
    require; None for any.
    """

    kind: Literal["insert", "put", "merge", "delete"]
    key: str
    values: Mapping[str, Value]
    etag: str | None = None


@dataclass(frozen=True)
class RowPage:
    """Some of the rows, in the order of (partition, key) unless another was asked for.

    Where the conditions are about ``expires`` and no key, the storage may have another order.

    ``after`` is for the next page, in any process; None at the end. An empty page may not be the last.
    """

    rows: Sequence[Row]
    after: str | None


class Table(Protocol):
    """Keys have 1 to 512 characters: no slash, backslash, ``#``, ``?`` or control character. Batches of
    Azurite confuse keys that begin with a comma, or have a comma behind an apostrophe.

    A value has up to 64 KiB (a string 32,768 characters), a row up to 1 MiB. No value is None, and merge
    cannot remove a property. ``knows_age``: it can list the rows that were inserted last first.
    """

    knows_age: ClassVar[bool] = False

    def get(self, partition: str, key: str) -> Row | None:
        """The row as it is now."""

    def insert(self, partition: str, key: str, values: Mapping[str, Value]) -> str:
        """Store a new row; its etag. Raises AlreadyExists, also where a retry finds the row it wrote."""
        return self._change(partition, Change("insert", key, values))

    def put(self, partition: str, key: str, values: Mapping[str, Value]) -> str:
        """Store the row; replaces an existing row. Its etag. Safe to repeat."""
        return self._change(partition, Change("put", key, values))

    def merge(self, partition: str, key: str, values: Mapping[str, Value], etag: str | None = None) -> str:
        """Change these properties of a row and keep the others; its new etag.

        Raises Changed where the row does not exist or is not the version ``etag``; None for any version.
        """
        return self._change(partition, Change("merge", key, values, etag))

    def delete(self, partition: str, key: str, etag: str | None = None) -> None:
        """Delete the row; raises Changed where it exists in another version. Safe to repeat."""
        self._change(partition, Change("delete", key, {}, etag))

    def batch(self, partition: str, changes: Sequence[Change]) -> Sequence[str]:
        """Make all of 1 to 100 changes of different rows of a partition, up to 4 MiB in total, or none.

        Returns their etags, "" for a delete. Raises Changed where any row is not in the required state, also
        where a retry finds the rows it wrote.
        """

    def page(
        self,
        conditions: Sequence[Condition],
        after: str,
        limit: int,
        select: Sequence[str] | None = None,
        newest_first: bool = False,
    ) -> RowPage:
        """Up to ``limit`` (1..1000) rows that meet all conditions, which may name PARTITION and KEY.

        ``after`` is "" for the first page; raises InvalidPosition for a text that no page had. ``select``
        names the wanted properties; None for all. With ``newest_first`` the rows that were inserted last come
        first, if the table ``knows_age``.
        """

    def _change(self, partition: str, change: Change) -> str:
        """Make the change as the four methods above promise; the etag, "" for a delete."""


def check_key(partition: str, key: str) -> None:
    """Raise ValueError for an invalid key: keys are parts of URLs."""
    if not _VALID_KEYS.fullmatch(f"{partition}/{key}"):
        raise ValueError(f"{partition!r} {key!r} is not a valid key")


def check_changes(partition: str, changes: Sequence[Change]) -> None:
    """Raise ValueError or TypeError for an invalid batch."""
    if not 1 <= len({change.key for change in changes}) == len(changes) <= 100:
        raise ValueError("a batch has 1 to 100 changes of different rows")
    for change in changes:
        check_change(partition, change)


def check_change(partition: str, change: Change) -> None:
    """Raise ValueError or TypeError for an invalid key or invalid values."""
    check_key(partition, change.key)
    values: Mapping[str, Any] = change.values
    row_size = 0
    for name, value in values.items():
        kind = type(value)
        size = 2 * len(value) if kind is str else len(value) if kind is bytes else 8
        if size > _MAX_VALUE:
            raise ValueError(f"{name} has more than 64 KiB")
        if kind is int and not -(2**31) <= value < 2**31:
            raise ValueError(f"{value} has more than 32 bits")
        if kind is datetime and value.tzinfo is None:
            raise ValueError("a time has no time zone")
        if kind not in (str, bytes, bool, int, datetime):
            raise TypeError(f"a {kind.__name__} cannot be stored in a row")
        row_size += size
    if row_size > _MAX_ROW:
        raise ValueError("a row has up to 1 MiB")


def check_limit(limit: int) -> None:
    """Raise ValueError for an invalid page size."""
    if not 1 <= limit <= 1000:
        raise ValueError("a page has 1 to 1000 rows")
