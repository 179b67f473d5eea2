"""Events in Azure Table Storage."""

import json
from collections.abc import Sequence
from datetime import datetime
from itertools import takewhile
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.data.tables import TableClient, TableEntity

from legacy_queue.adapters.azure.client import LOST_RACE, unavailable_when_down
from legacy_queue.adapters.azure.entities import chunked, joined, of_kind
from legacy_queue.adapters.azure.group_commit import GroupCommit
from legacy_queue.adapters.azure.rows import KEYS, between, read
from legacy_queue.adapters.event_ids import event_id, first_number, number_of
from legacy_queue.domain.events import EXCHANGES, Event
from legacy_queue.ports import Clock, Corrupt, EventLog

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
        return between(self._table, _PARTITION, event_id(number_of(after)), _HEAD, limit, _event)

    def last(self) -> str:
        head = self._load_head()
        return event_id(head[0] if head else 0)

    def trim(self, before: datetime) -> None:
        while True:
            rows = between(self._table, _PARTITION, "", _HEAD, _MOST_ROWS, _as_it_is, [*KEYS, "at"])
            old = list(takewhile(lambda row: _is_before(before, row.get("at")), rows))
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
        try:
            number = read(row, lambda row: number_of(of_kind(str, row["last"])))
        except Corrupt:
            number = first_number(self._clock.now())  # behind all that there are
        return number, str(row.metadata["etag"])


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


def _event(row: TableEntity) -> tuple[str, Event]:
    wire = json.loads(joined("event", row))
    routes = tuple(of_kind(str, route) for route in of_kind(list, wire["routes"]))
    if wire["exchange"] not in EXCHANGES:
        raise ValueError("there is no such exchange")
    event_id(number_of(row["RowKey"]))
    payload = of_kind(dict, wire["payload"])
    return row["RowKey"], Event(wire["exchange"], of_kind(str, wire["routingKey"]), routes, payload)


def _as_it_is(row: TableEntity) -> TableEntity:
    return row


def _is_before(time: datetime, at: object) -> bool:
    """Whether an event of that time is old; one of no time is."""
    return not isinstance(at, datetime) or at < time
