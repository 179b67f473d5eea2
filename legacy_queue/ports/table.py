"""A table of rows, as in Azure Table Storage."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal, Protocol

# an int has 32 bits; a datetime is aware and in milliseconds
Value = str | int | bool | bytes | datetime

PARTITION = "PartitionKey"
KEY = "RowKey"  # their names in conditions
_MAX_VALUE = 64 * 1024
_MAX_ROW = 1024 * 1024  # bytes, two for each character
_VALID_KEY = r"[^/\\#?\x00-\x1f\x7f-\x9f]{1,512}"
_VALID_KEYS = re.compile(f"{_VALID_KEY}/{_VALID_KEY}")


@dataclass(frozen=True)
class Row:
    """A row and its version. The rows of a partition are ordered by the bytes of their keys."""

    partition: str
    key: str
    values: Mapping[str, Value]
    etag: str


@dataclass(frozen=True)
class Condition:
    """Selects the rows whose property ``name`` compares with ``value`` this way. ``in`` takes a tuple."""

    name: str
    operator: Literal["eq", "lt", "le", "gt", "ge", "in"]
    value: Value | tuple[Value, ...]


@dataclass(frozen=True)
class Change:
    """A change of one row.

    ``insert`` requires that the row does not exist, ``put`` replaces the row if it exists, ``merge`` changes
    the given properties of an existing row, ``delete`` removes an existing row. ``etag`` is the version that
    merge and delete require; None means any version.
    """

    kind: Literal["insert", "put", "merge", "delete"]
    key: str
    values: Mapping[str, Value]
    etag: str | None = None


@dataclass(frozen=True)
class RowPage:
    """Some of the rows, in the order of (partition, key) unless the caller asked for another order.

    If the conditions are about ``expires`` and not about a key, the storage may use another order.

    Pass ``after`` to get the next page, in any process. It is None on the last page. An empty page need not
    be the last.
    """

    rows: Sequence[Row]
    after: str | None


class Table(Protocol):
    """A table. Keys have 1 to 512 characters, but no slash, backslash, ``#``, ``?`` or control character.

    Do not begin a key with a comma or put a comma after an apostrophe: batches of Azurite confuse such keys.
    A value has up to 64 KiB (a string 32,768 characters), a row up to 1 MiB. No value is None, and merge
    cannot remove a property. If ``knows_age`` is set, the table can list the newest rows first.
    """

    knows_age: ClassVar[bool] = False

    def get(self, partition: str, key: str) -> Row | None:
        """Returns the row, or None if it does not exist."""

    def insert(self, partition: str, key: str, values: Mapping[str, Value]) -> str:
        """Store a new row and return its etag.

        Raises AlreadyExists, also if a retry finds the row that the first attempt wrote.
        """
        return self._change(partition, Change("insert", key, values))

    def put(self, partition: str, key: str, values: Mapping[str, Value]) -> str:
        """Store the row, replace an existing one, and return its etag. Safe to repeat."""
        return self._change(partition, Change("put", key, values))

    def merge(self, partition: str, key: str, values: Mapping[str, Value], etag: str | None = None) -> str:
        """Change these properties of a row, keep the others, and return its new etag.

        Raises Changed if the row does not exist or is not the version ``etag``. None means any version.
        """
        return self._change(partition, Change("merge", key, values, etag))

    def delete(self, partition: str, key: str, etag: str | None = None) -> None:
        """Delete the row. Raises Changed if it exists in another version. Safe to repeat."""
        self._change(partition, Change("delete", key, {}, etag))

    def batch(self, partition: str, changes: Sequence[Change]) -> Sequence[str]:
        """Make all of these changes or none: 1 to 100, of different rows of a partition, up to 4 MiB in
        total.

        Returns their etags, "" for a delete. Raises Changed if a row is not in the required state, also if a
        retry finds the rows that the first attempt wrote.
        """

    def page(
        self,
        conditions: Sequence[Condition],
        after: str,
        limit: int,
        select: Sequence[str] | None = None,
        newest_first: bool = False,
    ) -> RowPage:
        """Returns up to ``limit`` (1..1000) rows that meet all conditions, which may name PARTITION and KEY.

        Pass "" as ``after`` for the first page. Raises InvalidPosition if ``after`` is not from a page of
        this storage. ``select`` names the wanted properties; None means all. With ``newest_first``, and if
        the table ``knows_age``, the rows that were inserted last come first.
        """

    def _change(self, partition: str, change: Change) -> str:
        """Make the change as the four methods above promise. Returns the etag, "" for a delete."""


def check_key(partition: str, key: str) -> None:
    """Raises ValueError if a key is invalid. Keys are parts of URLs."""
    if not _VALID_KEYS.fullmatch(f"{partition}/{key}"):
        raise ValueError(f"{partition!r} {key!r} is not a valid key")


def check_changes(partition: str, changes: Sequence[Change]) -> None:
    """Raises ValueError or TypeError if the batch is invalid."""
    if not 1 <= len({change.key for change in changes}) == len(changes) <= 100:
        raise ValueError("a batch has 1 to 100 changes of different rows")
    for change in changes:
        check_change(partition, change)


def check_change(partition: str, change: Change) -> None:
    """Raises ValueError or TypeError if the key or a value is invalid."""
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
    """Raises ValueError if the page size is invalid."""
    if not 1 <= limit <= 1000:
        raise ValueError("a page has 1 to 1000 rows")
