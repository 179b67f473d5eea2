"""Rows of a table in the order of their keys: in pages, between two keys, and until they expire."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import ResourceModifiedError
from azure.data.tables import TableClient, TableEntity

from legacy_queue.adapters.azure.client import unavailable_when_down
from legacy_queue.ports import Expiring

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


def between(
    table: TableClient, partition: str, first: str, end: str, limit: int, select: list[str] | None = None
) -> list[TableEntity]:
    """The first ``limit`` rows of the partition with keys between these two, neither of them included."""
    with unavailable_when_down():
        found: Iterator[TableEntity] = table.query_entities(
            "PartitionKey eq @partition and RowKey gt @first and RowKey lt @end",
            parameters={"partition": partition, "first": first, "end": end},
            results_per_page=min(limit, _LARGEST_PAGE),
            select=select,
        )
        return list(islice(found, limit))


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
            self._forget(row["PartitionKey"])
        return further

    def _forget(self, partition: str) -> None:
        """A row of this partition is gone: what this process remembers of it goes too."""
