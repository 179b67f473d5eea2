"""A queue of messages in the file. Source: docs/explanation/azurite.md#queue.

Each message is a row. ``visible`` is the time when workers may receive it. It is 0 if nobody has hidden the
message, so that a clock that is set back does not hide it. ``receipt`` belongs to the last lease; older
leases are stale. ``rank`` orders the visible messages. It is the time of the last put, receive or update in
nanoseconds, made unique.

A poll first reads which messages are visible. Most polls find none. Then they are a single statement that
takes no lock and writes nothing; an UPDATE that finds nothing would cost 70 % more. If there are messages,
one UPDATE takes those that no other process has taken meanwhile. So two processes never receive the same
message, and a process that dies leaves nothing half-done.

What is ugly, and why it stays: an expired message stays in the table until somebody deletes it, and the index
by visibility does not show that it has expired. If a poll skipped such messages, it could read thousands of
them at once. So a poll finds as many messages as it may take. If one of them has expired, it deletes some
hundred expired messages and looks again.
"""

import base64
import json
import os
import secrets
import sqlite3
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import MAXYEAR, UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

from legacy_queue.adapters.embedded.database import Database
from legacy_queue.adapters.embedded.maintenance import MAX_REMOVED, REMOVE_MESSAGES
from legacy_queue.adapters.url_signer import UrlSigner
from legacy_queue.domain.json_bytes import to_json
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.times import epoch_milliseconds, from_epoch, whole_seconds
from legacy_queue.ports import Clock
from legacy_queue.ports.queue import (
    MAX_COUNT,
    LeaseLost,
    Queue,
    QueuedMessage,
    QueueNotFound,
    ShownMessages,
    SignedUrls,
    check_text,
)

# the expiry of a message that never expires
_NEVER = epoch_milliseconds(datetime(MAXYEAR, 12, 31, tzinfo=UTC))
_PLUS_AND_SLASH = b"\xfb\xff\xbf"  # "+/+/" in base64, if it begins at a multiple of three bytes
_COLUMNS = "id, receipt, text, inserted, expires, visible, dequeued"
_ALWAYS = 0  # a message without a delay is visible whatever happens to the clock
# Finds the ids of the first visible messages, with or without a delay; each kind in the order of the index. A
# single NULL means that there are none, and no row means that the queue does not exist.
_VISIBLE = f"""SELECT id FROM queues LEFT JOIN (
    SELECT * FROM (SELECT id, rank FROM messages WHERE queue = ? AND visible = {_ALWAYS}
      ORDER BY rank LIMIT ?)
    UNION ALL
    SELECT * FROM (SELECT id, rank FROM messages WHERE queue = ? AND visible > {_ALWAYS} AND visible <= ?
      ORDER BY visible, rank LIMIT ?)
  ) ON TRUE WHERE name = ? ORDER BY rank LIMIT ?"""
# Each message of a poll has a place, from 0. It keeps the messages in order, and makes their receipts differ:
# four digits in front of base64 are still base64.
_TAKE = f"""UPDATE messages
  SET receipt = printf('%04d', place) || ?, visible = ?, dequeued = dequeued + 1, rank = ? + place
  FROM (SELECT key AS place, value AS found FROM json_each(?))
  WHERE id = found AND visible <= ? AND expires > ? RETURNING {_COLUMNS}"""
_LEASED = "id = ? AND queue = ? AND receipt = ? AND expires > ?"


class EmbeddedMessages(ShownMessages):
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def text(self, queue: str, message_id: str) -> str | None:
        found = self._database.rows(
            "SELECT text FROM messages WHERE id = ? AND queue = ? AND expires > ?",
            (_storable(message_id), queue, epoch_milliseconds(self._clock.now())),
        )
        return found[0][0] if found else None

    def page(self, after: str, limit: int) -> tuple[Sequence[tuple[str, str]], str | None]:
        # the + keeps SQLite from using the index by expiry, whose rows it would have to sort
        sql = "SELECT id, queue, text FROM messages WHERE id > ? AND +expires > ? ORDER BY id LIMIT ?"
        found = self._database.rows(sql, (after, epoch_milliseconds(self._clock.now()), limit))
        return [(queue, text) for _, queue, text in found], found[-1][0] if len(found) == limit else None


class EmbeddedQueue(Queue):
    def __init__(self, name: str, database: Database, clock: Clock, signer: UrlSigner) -> None:
        self.name = name
        self._database = database
        self._clock = clock
        self._signer = signer

    def create(self, metadata: Mapping[str, str]) -> None:
        self._database.change(
            "INSERT OR REPLACE INTO queues VALUES (?, ?)", (self.name, json.dumps(dict(metadata)))
        )

    def metadata(self) -> Mapping[str, str]:
        found = self._database.rows("SELECT metadata FROM queues WHERE name = ?", (self.name,))
        if not found:
            raise QueueNotFound
        metadata: Mapping[str, str] = json.loads(found[0][0])
        return metadata

    def put(self, text: str, hidden_for: timedelta, time_to_live: timedelta | None = None) -> MessageLease:
        check_text(text)
        now = self._now()
        rank = self._database.rank()
        expires = _NEVER if time_to_live is None else now + time_to_live // timedelta(seconds=1) * 1000
        # a UUID that begins with the time, so that messages that are used together are stored together
        message_id = uuid.UUID(int=(rank >> 4 << 64 | secrets.randbits(64)) % 2**128, version=4)
        lease = MessageLease(str(message_id), _receipt())
        if not self._database.change(
            "INSERT INTO messages SELECT ?, name, ?, ?, ?, ?, ?, 0, ? FROM queues WHERE name = ?",
            (
                lease.message_id,
                lease.receipt,
                text,
                now,
                expires,
                _visible(now, hidden_for),
                rank,
                self.name,
            ),
        ):
            raise QueueNotFound
        return lease

    def receive(self, count: int, hidden_for: timedelta) -> Sequence[QueuedMessage]:
        now = self._now()
        hidden_until = now + _milliseconds(hidden_for)
        asked = (self.name, count, self.name, now, count, self.name, count)
        while found := self._database.rows(_VISIBLE, asked):
            if found[0][0] is None:
                return []
            ids = to_json([message_id for (message_id,) in found]).decode()
            values = _receipt(), hidden_until, self._database.rank(count), ids, now, now
            taken = self._database.change_rows(_TAKE, values)
            # some have expired, and perhaps many after them, or another process took them
            if len(taken) < len(found):
                self._database.change(REMOVE_MESSAGES, (now, MAX_REMOVED))
            if taken:
                # SQLite may return them in any order, but their receipts begin with their places
                return [_message(now, row) for row in sorted(taken, key=itemgetter(1))]
        raise QueueNotFound

    def messages(self) -> list[QueuedMessage]:
        """Return up to 5,000 messages, visible or hidden, by visibility. Raises QueueNotFound."""
        self._require()
        now = self._now()
        sql = (
            f"SELECT {_COLUMNS} FROM messages WHERE queue = ? AND expires > ? ORDER BY visible, rank LIMIT ?"
        )
        return [_message(now, found) for found in self._database.rows(sql, (self.name, now, MAX_COUNT))]

    def peek(self) -> Sequence[QueuedMessage]:
        now = self._clock.now()
        return [
            replace(
                message,
                lease=MessageLease(message.lease.message_id, ""),
                next_visible=message.next_visible
                if message.next_visible and message.next_visible > now
                else None,
            )
            for message in self.messages()
        ]

    def update(self, lease: MessageLease, text: str, hidden_for: timedelta) -> MessageLease:
        check_text(text)
        now = self._now()
        renewed = MessageLease(lease.message_id, _receipt())
        end = now + _milliseconds(hidden_for)
        if not self._database.change(
            f"UPDATE messages SET text = ?, receipt = ?, visible = ?, rank = ? WHERE {_LEASED}",
            # Azure refuses to hide a message until it expires
            (text, renewed.receipt, _visible(now, hidden_for), self._database.rank(), *self._key(lease), end),
        ):
            self._require()
            raise LeaseLost
        return renewed

    def delete(self, lease: MessageLease) -> None:
        if not self._database.change(
            f"DELETE FROM messages WHERE {_LEASED}", (*self._key(lease), self._now())
        ):
            self._require()
            raise LeaseLost

    def count(self) -> int:
        self._require()
        sql = "SELECT count(*) FROM (SELECT 1 FROM messages WHERE queue = ? AND expires > ? LIMIT ?)"
        return int(self._database.rows(sql, (self.name, self._now(), MAX_COUNT))[0][0])

    def remove(self) -> None:
        def delete(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM queues WHERE name = ?", (self.name,))
            db.execute("DELETE FROM messages WHERE queue = ?", (self.name,))

        self._database.transaction(delete)

    def signed_urls(
        self, start: datetime, expiry: datetime, hidden_for: timedelta, caller: str = ""
    ) -> SignedUrls:
        return self._signer.queue_urls(self.name, start, expiry, hidden_for, caller)

    def _key(self, lease: MessageLease) -> tuple[str, str, str]:
        return _storable(lease.message_id), self.name, _storable(lease.receipt)

    def _require(self) -> None:
        if not self._database.rows("SELECT 1 FROM queues WHERE name = ?", (self.name,)):
            raise QueueNotFound

    def _now(self) -> int:
        return epoch_milliseconds(self._clock.now())


def _storable(text: str) -> str:
    """Replace lone surrogates. Text from JSON may have them, but SQLite cannot store them."""
    return text.encode(errors="replace").decode()


def _visible(now: int, hidden_for: timedelta) -> int:
    """Return when a message becomes visible."""
    return now + _milliseconds(hidden_for) if hidden_for else _ALWAYS


def _milliseconds(duration: timedelta) -> int:
    """Return milliseconds of whole seconds, rounded up as in Azure."""
    return whole_seconds(duration) * 1000


def _receipt() -> str:
    """Return unique, unguessable base64 with ``+``, ``/`` and ``=``, like some receipts of Azure."""
    return base64.b64encode(os.urandom(6) + _PLUS_AND_SLASH + os.urandom(14)).decode()


def _message(now: int, row: Sequence[Any]) -> QueuedMessage:
    """Make a message from a row of ``_COLUMNS``."""
    message_id, receipt, text, inserted, expires, visible, dequeued = row
    lease = MessageLease(message_id, receipt)
    next_visible = from_epoch(visible or now)
    return QueuedMessage(lease, text, from_epoch(inserted), from_epoch(expires), next_visible, dequeued)
