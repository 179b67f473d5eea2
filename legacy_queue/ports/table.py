"""A table of rows, as Azure Table Storage has it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Value = (
    str | int | bool | float | bytes | datetime
)  # an int has 32 bits; a datetime is aware, in milliseconds

PARTITION, KEY = "PartitionKey", "RowKey"  # as names in conditions


@dataclass(frozen=True)
class Row:
    """A row and its version. Rows of a partition are ordered by their keys, as bytes."""

    partition: str
    key: str
    values: Mapping[str, Value]
    etag: str


@dataclass(frozen=True)
class Condition:
    """Rows that have the property ``name``, with a value that compares so; ``in`` takes a tuple of values."""

    name: str
    operator: Literal["eq", "lt", "le", "gt", "ge", "in"]
    value: Value | tuple[Value, ...]


@dataclass(frozen=True)
class Change:
    """A part of a batch. ``insert`` needs that the row is not there, ``put`` writes over what there is,
    ``merge`` changes the named properties of a row that is there, ``delete`` removes one that is there.
    ``etag``: of the only version that merge and delete accept; None for any.
    """

    kind: Literal["insert", "put", "merge", "delete"]
    key: str
    values: Mapping[str, Value]
    etag: str | None = None


@dataclass(frozen=True)
class Page:
    """Some of the rows that were asked for, in the order of (partition, key).

    ``after`` continues, in any process; None at the end. An empty page may not be the last.
    """

    rows: Sequence[Row]
    after: str | None


class Table(ABC):
    """Keys have 1 to 512 characters: no slash, backslash, ``#``, ``?`` or control character. Azurite's
    batches take a key that begins with a comma, or has one behind an apostrophe, for another key.

    A value has up to 64 KiB (a string 32,768 characters), a row up to 1 MiB. No value is None, and merge
    cannot remove a property.

    Every method may raise ServiceUnavailable. Then the caller does not know whether it happened.
    """

    @abstractmethod
    def get(self, partition: str, key: str) -> Row | None:
        """The row as it is now."""

    @abstractmethod
    def insert(self, partition: str, key: str, values: Mapping[str, Value]) -> str:
        """Store a row that was not there; its etag. Raises AlreadyExists, also after a retry of a write."""

    @abstractmethod
    def put(self, partition: str, key: str, values: Mapping[str, Value]) -> str:
        """Store a row in place of what is there, if anything is; its etag. Safe to repeat."""

    @abstractmethod
    def merge(self, partition: str, key: str, values: Mapping[str, Value], etag: str | None = None) -> str:
        """Change these properties of a row and leave the others; its new etag.

        Raises Changed where the row is gone or is not the version ``etag``; None is any version.
        """

    @abstractmethod
    def delete(self, partition: str, key: str, etag: str | None = None) -> None:
        """The row is not there any more; raises Changed where it is, in another version. Safe to repeat."""

    @abstractmethod
    def batch(self, partition: str, changes: Sequence[Change]) -> Sequence[str]:
        """All of 1 to 100 changes of different rows of a partition, together up to 4 MiB, or none.

        Answers their etags, "" for a delete. Raises Changed where any of them finds another state than it
        needs: a row that is there already, is gone, or is another version. A retry of a batch that was
        written finds that too.
        """

    @abstractmethod
    def page(
        self,
        conditions: Sequence[Condition],
        after: str,
        limit: int,
        select: Sequence[str] | None = None,
    ) -> Page:
        """Up to ``limit`` (1..1000) of the rows that meet all conditions, which PARTITION and KEY may be in.

        Begins where ``after`` says, "" being the beginning. ``select`` names the properties that are wanted;
        None wants all.
        """
