"""Events in Azure Table Storage."""

import json
from collections.abc import Sequence
from datetime import datetime
from itertools import takewhile
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.data.tables import TableClient

from legacy_queue.adapters.azure.client import LOST_RACE, unavailable_when_down
from legacy_queue.adapters.azure.entities import chunked, joined
from legacy_queue.adapters.azure.group_commit import GroupCommit
from legacy_queue.adapters.azure.rows import KEYS, between
from legacy_queue.adapters.event_ids import event_id, first_number, number_of
from legacy_queue.domain.events import Event
from legacy_queue.ports import Clock, EventLog

_PARTITION = "log"
_HEAD = "head"  # behind every id
_MOST_ROWS = 100  # in a batch
_MOST_BYTES = 2 * 1024 * 1024  # of events in a batch: in base64 and with headers well below Azure's 4 MiB


class AzureEventLog(EventLog):
    """One partition: a row for each event, under its id, and the row ``head`` with the last id.

    A batch of events moves the head, on its ETag. So they have one order for all processes, whatever their
    clocks say, and no event is ever stored before one that was read.
    """

    def __init__(self, table: TableClient, clock: Clock) -> None:
        self._table, self._clock = table, clock
        self._head: tuple[int, str] | None = None  # as this process left it
        self._commits = GroupCommit(self._store, len, _MOST_ROWS - 1, _MOST_BYTES)

    def append(self, events: Sequence[Event]) -> None:
        self._commits.add([_to_json(event) for event in events])

    def read(self, after: str, limit: int) -> Sequence[tuple[str, Event]]:
        rows = between(self._table, _PARTITION, event_id(number_of(after)), _HEAD, limit)
        return [(row["RowKey"], _from_json(joined("event", row))) for row in rows]

    def last(self) -> str:
        head = self._load_head()
        return event_id(head[0] if head else 0)

    def trim(self, before: datetime) -> None:
        while True:
            rows = between(self._table, _PARTITION, "", _HEAD, _MOST_ROWS, [*KEYS, "at"])
            old = list(takewhile(lambda row: row["at"] < before, rows))
            if not old:
                return
            try:
                with unavailable_when_down():
                    self._table.submit_transaction([("delete", row) for row in old])
            except HttpResponseError as error:
                if error.status_code not in LOST_RACE:
                    raise

    def _store(self, events: Sequence[bytes]) -> None:
        now = self._clock.now()
        while True:
            head = self._head or self._load_head()
            number = head[0] if head else first_number(now)
            rows: list[Any] = [
                (
                    "create",
                    {
                        "PartitionKey": _PARTITION,
                        "RowKey": event_id(number + index),
                        "at": now,
                        **chunked("event", event),
                    },
                )
                for index, event in enumerate(events, 1)
            ]
            number += len(events)
            self._head = None
            try:
                with unavailable_when_down():
                    metadata = self._table.submit_transaction([_moved(head, number), *rows])
            except HttpResponseError as error:
                if error.status_code not in LOST_RACE:
                    raise
                continue
            self._head = number, str(metadata[0]["etag"])
            return

    def _load_head(self) -> tuple[int, str] | None:
        try:
            with unavailable_when_down():
                row = self._table.get_entity(_PARTITION, _HEAD)
        except ResourceNotFoundError:
            return None
        return number_of(row["last"]), str(row.metadata["etag"])


def _moved(head: tuple[int, str] | None, number: int) -> Any:
    """The change that makes this number the last one."""
    row = {"PartitionKey": _PARTITION, "RowKey": _HEAD, "last": event_id(number)}
    if head is None:
        return "create", row
    return "update", row, {"etag": head[1], "match_condition": MatchConditions.IfNotModified}


def _to_json(event: Event) -> bytes:
    wire = {
        "exchange": event.exchange,
        "routingKey": event.routing_key,
        "routes": event.routes,
        "payload": event.payload,
    }
    return json.dumps(wire, separators=(",", ":")).encode()


def _from_json(text: bytes) -> Event:
    wire = json.loads(text)
    return Event(wire["exchange"], wire["routingKey"], tuple(wire["routes"]), wire["payload"])
