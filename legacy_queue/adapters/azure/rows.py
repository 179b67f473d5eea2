"""Rows of a table in the order of their keys: in pages, between two keys, and until they expire.

A row that cannot be read is logged once, and keeps nobody from the others.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

import structlog
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceModifiedError
from azure.data.tables import TableClient, TableEntity

from legacy_queue.adapters.azure.client import unavailable_when_down
from legacy_queue.adapters.recent import Recent
from legacy_queue.domain.ids import TASK_ID
from legacy_queue.ports import Corrupt, Expiring

log = structlog.get_logger()

Item = TypeVar("Item")

_UNREADABLE = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)
_logged: Recent[tuple[str, str, str], bool] = Recent(1000)  # rows, and the versions of them
_LARGEST_PAGE = 1000  # Azure refuses to be asked for more
KEYS = ["PartitionKey", "RowKey"]


def page(
    table: TableClient,
    query: str,
    parameters: Mapping[str, Any],
    after: str,
    limit: int,
    select: list[str] | None = None,
) -> tuple[list[TableEntity], str | None]:
    """Up to ``limit`` of the rows that match, and where the next page begins, None at the end: one operation.

    ``after`` is such an answer, of any process, or "" for the beginning. An empty page may not be the last.
    """
    with unavailable_when_down():
        pages: Any = table.query_entities(
            query, parameters=dict(parameters), results_per_page=min(limit, _LARGEST_PAGE), select=select
        ).by_page(json.loads(after) if after else None)
        found = list(next(pages, ()))
    return found, json.dumps(pages.continuation_token) if pages.continuation_token else None


def read(row: TableEntity, convert: Callable[[TableEntity], Item]) -> Item:
    """What ``convert`` makes of the row; raises Corrupt where it cannot, which is logged once."""
    try:
        return convert(row)
    except _UNREADABLE as error:
        _log_once("row-corrupt", row, error)
        raise Corrupt(f"the row {row['PartitionKey']} {row['RowKey']} cannot be read") from error


def readable(rows: Iterable[TableEntity], convert: Callable[[TableEntity], Item]) -> Iterator[Item]:
    """What ``convert`` makes of the rows, without those that it cannot."""
    for row in rows:
        try:
            yield read(row, convert)
        except Corrupt:
            continue


def slugid_in(key: str) -> str:
    """The taskId or taskGroupId that a key holds; raises ValueError for what is none."""
    if not re.fullmatch(TASK_ID, key):
        raise ValueError("a key holds no slugid")
    return key


def between(
    table: TableClient,
    partition: str,
    first: str,
    end: str,
    limit: int,
    convert: Callable[[TableEntity], Item],
    select: list[str] | None = None,
) -> list[Item]:
    """The first ``limit`` readable rows of the partition with keys between these two, neither included."""
    with unavailable_when_down():
        found: Iterator[TableEntity] = table.query_entities(
            "PartitionKey eq @partition and RowKey gt @first and RowKey lt @end",
            parameters={"partition": partition, "first": first, "end": end},
            results_per_page=min(limit, _LARGEST_PAGE),
            select=select,
        )
        return list(islice(readable(found, convert), limit))


def _log_once(event: str, row: TableEntity, error: Exception) -> None:
    version = str(row["PartitionKey"]), str(row["RowKey"]), str(row.metadata["etag"])
    if not _logged.get(version):
        _logged.put(version, True)
        log.error(event, partition=version[0], row=version[1], why=type(error).__name__)


class ExpiringRows(Expiring):
    """All rows of the table that have a property ``expires``."""

    _EXPIRED = "expires lt @now"

    def __init__(self, table: TableClient) -> None:
        self._table = table

    def remove_expired(self, now: datetime, after: str, limit: int) -> str | None:
        expired, further = page(self._table, self._EXPIRED, {"now": now}, after, limit, KEYS)
        for row in expired:
            try:
                with unavailable_when_down():
                    self._table.delete_entity(
                        row, etag=row.metadata["etag"], match_condition=MatchConditions.IfNotModified
                    )
            except ResourceModifiedError:
                continue
            except HttpResponseError as error:
                _log_once("row-not-removed", row, error)
                continue
            self._forget(row["PartitionKey"])
        return further

    def _forget(self, partition: str) -> None:
        """A row of this partition is gone: what this process remembers of it goes too."""
