"""What was told while there is no broker, readable for a while."""

import json
import re
from collections.abc import Sequence
from datetime import datetime
from itertools import takewhile

from legacy_queue.domain.events import EXCHANGES, Event
from legacy_queue.domain.times import epoch_milliseconds
from legacy_queue.ports import Changed, Clock, Corrupt
from legacy_queue.ports.table import Change, Row, Table
from legacy_queue.stores.group_commit import GroupCommit
from legacy_queue.stores.rows import between, chunked, joined, of_kind, read

_ID = re.compile(r"[0-9]{16}", re.ASCII)
_PARTITION = "log"
_HEAD = "head"  # behind every id
_MAX_ROWS = 100  # in a batch
_MAX_BYTES = 2 * 1024 * 1024  # of events in a batch: in base64 and with headers well below Azure's 4 MiB


class EventLog:
    """One partition: a row for each event, under its id, and the row ``head`` with the last id.

    A batch of events moves the head, on its ETag. So they have one order for all processes, whatever their
    clocks say, and no event is ever stored before one that was read. Ids are numbers that are given out one
    after the other, ordered as text; the first of a log is its time of birth, so that those of a log that was
    lost are older than all of its own.
    """

    def __init__(self, table: Table, clock: Clock) -> None:
        self._table, self._clock = table, clock
        self._head: tuple[int, str] | None = None  # as this process left it
        self._commits = GroupCommit(self._store, len, _MAX_ROWS - 1, _MAX_BYTES)

    def append(self, events: Sequence[Event]) -> None:
        """Add them, in this order, behind what this process added before."""
        self._commits.add([_to_json(event) for event in events])

    def read(self, after: str, limit: int) -> Sequence[tuple[str, Event]]:
        """Up to ``limit`` events behind the one with the id ``after``, each with its id, oldest first.

        Raises ValueError for what is no id.
        """
        return between(self._table, _PARTITION, _event_id(_number_of(after)), _HEAD, limit, _event)

    def last(self) -> str:
        """An id that everything from now on comes behind."""
        head = self._load_head()
        return _event_id(head[0] if head else 0)

    def trim(self, before: datetime) -> None:
        """Forget what is older."""
        while True:
            rows = between(self._table, _PARTITION, "", _HEAD, _MAX_ROWS, lambda row: row, ["at"])
            old = list(takewhile(lambda row: _is_before(before, row.values.get("at")), rows))
            if not old:
                return
            try:
                self._table.batch(_PARTITION, [Change("delete", row.key, {}) for row in old])
            except Changed:  # another process was faster
                continue

    def _store(self, events: Sequence[bytes]) -> None:
        now = self._clock.now()
        while True:
            head = self._head or self._load_head()
            number = head[0] if head else epoch_milliseconds(now) * 1000
            rows = [
                Change("insert", _event_id(number + index), {"at": now, **chunked("event", event)})
                for index, event in enumerate(events, 1)
            ]
            number += len(events)
            moved = {"last": _event_id(number)}
            change = Change("merge", _HEAD, moved, head[1]) if head else Change("insert", _HEAD, moved)
            self._head = None
            try:
                etags = self._table.batch(_PARTITION, [change, *rows])
            except Changed:
                continue
            self._head = number, etags[0]
            return

    def _load_head(self) -> tuple[int, str] | None:
        row = self._table.get(_PARTITION, _HEAD)
        if row is None:
            return None
        try:
            number = read(row, lambda row: _number_of(of_kind(str, row.values["last"])))
        except Corrupt:
            number = epoch_milliseconds(self._clock.now()) * 1000  # behind all that there are
        return number, row.etag


def _event_id(number: int) -> str:
    return f"{number:016}"


def _number_of(text: str) -> int:
    """The inverse of ``_event_id``; 0, which is before all of them, for an empty text."""
    if text and not _ID.fullmatch(text):
        raise ValueError(f"{text!r} is not the id of an event: an id is 16 digits")
    return int(text or "0")


def _to_json(event: Event) -> bytes:
    wire = {
        "exchange": event.exchange,
        "routingKey": event.routing_key,
        "routes": event.routes,
        "payload": event.payload,
    }
    return json.dumps(wire, separators=(",", ":")).encode()


def _event(row: Row) -> tuple[str, Event]:
    wire = json.loads(joined("event", row.values))
    routes = tuple(of_kind(str, route) for route in of_kind(list, wire["routes"]))
    if wire["exchange"] not in EXCHANGES:
        raise ValueError("there is no such exchange")
    _number_of(row.key)
    return row.key, Event(
        wire["exchange"], of_kind(str, wire["routingKey"]), routes, of_kind(dict, wire["payload"])
    )


def _is_before(time: datetime, at: object) -> bool:
    """Whether an event of that time is old; one of no time is."""
    return not isinstance(at, datetime) or at < time
