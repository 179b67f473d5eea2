"""The storage account in a file or in memory."""

import base64
import json
import secrets
import sqlite3
from collections.abc import Iterator, Mapping

from legacy_queue.adapters.clock import SystemWaiter
from legacy_queue.adapters.embedded.database import Database
from legacy_queue.adapters.embedded.embedded_blob import EmbeddedBlobContainer
from legacy_queue.adapters.embedded.embedded_queue import EmbeddedMessages, EmbeddedQueue
from legacy_queue.adapters.embedded.embedded_table import EmbeddedTable
from legacy_queue.adapters.embedded.maintenance import LAST_TIME, least_space
from legacy_queue.adapters.embedded.storage_file import StorageFile
from legacy_queue.adapters.url_signer import UrlSigner
from legacy_queue.ports import Clock, Observe, Waiter, ignore
from legacy_queue.ports.account import SigningEndpoint, StorageAccount

_NAME = "embedded"


class EmbeddedAccount(StorageAccount):
    """An embedded account. Its queues have URLs below ``<queue_url>/embedded``.

    Its blobs have URLs below ``<blob_url>/embedded/<prefix>-artifacts``; ``blob_url`` is ``queue_url`` by
    default. If ``file`` is None, everything is in the memory of this process and ends with it.
    """

    def __init__(
        self,
        file: StorageFile | None,
        clock: Clock,
        queue_url: str,
        prefix: str,
        *,
        blob_url: str | None = None,
        synchronous: str = "normal",
        key: bytes | None = None,
        observe: Observe = ignore,
        waiter: Waiter | None = None,
    ) -> None:
        """``key`` signs URLs. By default it is the key in the file, or a new one. Raises UnusableStorage.

        The file must have been prepared. It is opened at the first operation.
        """
        key = key or (file.signing_key() if file else secrets.token_bytes(64))
        text = base64.b64encode(key).decode()
        self.public_queues, self.public_blobs = (
            SigningEndpoint(f"{url.rstrip('/')}/{_NAME}", _NAME, text, is_own=True)
            for url in (queue_url, blob_url or queue_url)
        )
        self.endpoints = {"queue": self.public_queues.url, "table": None, "blob": self.public_blobs.url}
        self._database = Database(file, clock, waiter or SystemWaiter(), synchronous, observe)
        self._clock = clock
        self.container: EmbeddedBlobContainer = EmbeddedBlobContainer(
            f"{prefix}-artifacts", self._database, clock, UrlSigner(self.public_blobs)
        )
        self.version = self._database.version if file else None
        self.shown_messages = EmbeddedMessages(self._database, clock)
        self._tables: dict[str, EmbeddedTable] = {}

    def table(self, name: str) -> EmbeddedTable:
        return self._tables.setdefault(name, EmbeddedTable(self._database, name))

    def queue(self, name: str) -> EmbeddedQueue:
        return EmbeddedQueue(name, self._database, self._clock, UrlSigner(self.public_queues))

    def queues(self, prefix: str) -> Iterator[tuple[str, Mapping[str, str]]]:
        sql = "SELECT name, metadata FROM queues WHERE name BETWEEN ? AND ? ORDER BY name"
        for name, metadata in self._database.rows(sql, (prefix, prefix + chr(0x10FFFF))):
            yield name, json.loads(metadata)

    def check(self) -> None:
        self._database.check()
        self.container.check()

    def warning(self) -> str:
        file = self._database.file
        if file is None:
            return ""
        folder, free, is_low = least_space(file)
        return f"The disk is almost full: {folder} has {free >> 20} MiB left." if is_low else ""

    def empty(self) -> None:
        """Remove all rows, queues, messages and blobs, but keep the key."""

        def empty(db: sqlite3.Connection) -> None:
            for name in ("rows", "queues", "messages"):
                db.execute(f"DELETE FROM {name}")
            db.execute("DELETE FROM meta WHERE name = ?", [LAST_TIME])
            self.container.empty(db)

        self._database.transaction(empty)

    def close(self) -> None:
        self._database.close()
