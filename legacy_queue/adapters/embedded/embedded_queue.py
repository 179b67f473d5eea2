"""A queue of messages in the file. Source: docs/explanation/azurite.md#queue."""

import base64
import hmac
import json
import os
import secrets
import sqlite3
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import MAXYEAR, UTC, datetime, timedelta
from typing import Any

from legacy_queue.adapters.embedded.database import Database
from legacy_queue.adapters.signing import UrlSigner
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.times import epoch_milliseconds, from_epoch, whole_seconds
from legacy_queue.ports import Clock
from legacy_queue.ports.queue import (
    MAX_COUNT,
    LeaseLost,
    MessageNotFound,
    PopReceiptMismatch,
    Queue,
    QueuedMessage,
    QueueNotFound,
    ShownMessages,
    SignedUrls,
    check_text,
)

_NEVER = epoch_milliseconds(datetime(MAXYEAR, 12, 31, tzinfo=UTC))  # of a message that does not expire
_PLUS_AND_SLASH = b"\xfb\xff\xbf"  # "+/+/" in base64, where it begins at a multiple of three bytes
_REMOVED = 500  # expired messages at once
_COLUMNS = "id, receipt, text, inserted, expires, visible, dequeued"
_ALWAYS = 0  # when a message without a delay is visible, whatever becomes of the clock
# the ids of the first visible messages of both kinds, each found in the order of an index
_VISIBLE = f"""SELECT id FROM (
    SELECT * FROM (SELECT id, rank FROM messages WHERE queue = ? AND visible = {_ALWAYS}
      ORDER BY rank LIMIT ?)
    UNION ALL
    SELECT * FROM (SELECT id, rank FROM messages WHERE queue = ? AND visible > {_ALWAYS} AND visible <= ?
      ORDER BY visible, rank LIMIT ?)
  ) ORDER BY rank LIMIT ?"""
_ANY_VISIBLE = "SELECT 1 FROM messages WHERE queue = ? AND visible <= ? LIMIT 1"
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
        # the sign keeps SQLite from the index by expiry, which it would have to sort
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
        # a UUID that begins with the time: the messages that are used together are stored together
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
        visible = now + _milliseconds(hidden_for)

        def first(count: int) -> tuple[Any, ...]:
            return self.name, count, self.name, now, count, count

        def take(db: sqlite3.Connection) -> list[Any]:
            update = (
                "UPDATE messages SET receipt = ?, visible = ?, dequeued = dequeued + 1, rank = ? "
                f"WHERE id = ? AND expires > ? RETURNING {_COLUMNS}"
            )
            found = db.execute(_VISIBLE, first(count)).fetchall()
            taken = []
            for (message_id,) in found:
                values = _receipt(), visible, self._database.rank(), message_id, now
                taken += db.execute(update, values).fetchall()
            if len(taken) < len(found):  # others have expired, and maybe many behind them
                remove = f"DELETE FROM messages WHERE id IN ({_VISIBLE}) AND expires <= ?"
                db.execute(remove, (*first(_REMOVED), now))
            return taken

        while self._database.rows(_ANY_VISIBLE, (self.name, now)):  # an empty queue costs no write
            if taken := self._database.transaction(take):
                return [_message(now, message) for message in taken]
        self._require()
        return []

    def messages(self) -> list[QueuedMessage]:
        """The messages, visible or not, in the order of visibility; up to 5,000. Raises QueueNotFound."""
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
            raise self._refusal(lease)
        return renewed

    def delete(self, lease: MessageLease) -> None:
        if not self._database.change(
            f"DELETE FROM messages WHERE {_LEASED}", (*self._key(lease), self._now())
        ):
            raise self._refusal(lease)

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

    def _refusal(self, lease: MessageLease) -> LeaseLost:
        """Why a lease does not hold."""
        self._require()
        message_id, _, receipt = self._key(lease)
        found = self._database.rows(
            "SELECT receipt FROM messages WHERE id = ? AND queue = ? AND expires > ?",
            (message_id, self.name, self._now()),
        )
        if not found:
            return MessageNotFound()
        is_leased = hmac.compare_digest(found[0][0].encode(), receipt.encode())
        return LeaseLost() if is_leased else PopReceiptMismatch()

    def _require(self) -> None:
        if not self._database.rows("SELECT 1 FROM queues WHERE name = ?", (self.name,)):
            raise QueueNotFound

    def _now(self) -> int:
        return epoch_milliseconds(self._clock.now())


def _storable(text: str) -> str:
    """Text from JSON may have lone surrogates, which no stored text has."""
    return text.encode(errors="replace").decode()


def _visible(now: int, hidden_for: timedelta) -> int:
    """From when on a message is visible."""
    return now + _milliseconds(hidden_for) if hidden_for else _ALWAYS


def _milliseconds(duration: timedelta) -> int:
    """Azure counts in whole seconds, rounded up."""
    return whole_seconds(duration) * 1000


def _receipt() -> str:
    """Unique, unguessable base64 with ``+``, ``/`` and ``=``, which receipts of Azure may have."""
    return base64.b64encode(os.urandom(6) + _PLUS_AND_SLASH + os.urandom(14)).decode()


def _message(now: int, row: Sequence[Any]) -> QueuedMessage:
    """The message of a row of ``_COLUMNS``."""
    message_id, receipt, text, inserted, expires, visible, dequeued = row
    lease = MessageLease(message_id, receipt)
    next_visible = from_epoch(visible or now)
    return QueuedMessage(lease, text, from_epoch(inserted), from_epoch(expires), next_visible, dequeued)
