"""Blobs: properties and blocks in the file, contents of more than 64 KB in files of their own.

A content is written and synced before a block names it, and removed after its last block, so that a crash
leaves neither a block without its content nor, for long, a content without a block.
"""

import os
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

from legacy_queue.adapters.embedded.database import Database
from legacy_queue.adapters.embedded.upkeep import BLOCKS_KEPT, add_orphans, outside_loop
from legacy_queue.adapters.signing import UrlSigner
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.times import epoch_milliseconds, from_epoch
from legacy_queue.ports import Clock
from legacy_queue.ports.blob import (
    BlobAlreadyExists,
    BlobContainer,
    BlobProperties,
    BlockList,
    Blocks,
    InvalidBlockList,
    Written,
)
from legacy_queue.private_folder import make_private, private_opener

_MAX_INSIDE = 64 * 1024  # bytes of a content that is stored in the file itself
_CHUNK = 256 * 1024  # bytes read at once
_MAX_BLOCKS = 2000  # of a blob: a list is one transaction
_OF_BLOB = "blob = ? AND (place IS NOT NULL OR added >= ?) ORDER BY place, rowid"

# rowid, or None for a new one; id, empty in a blob that was put whole; length; key of its content
_Block = tuple[int | None, str, int, int]


class EmbeddedBlobContainer(BlobContainer):
    def __init__(self, name: str, database: Database, clock: Clock, signer: UrlSigner) -> None:
        self.name = name
        self._database = database
        self._clock = clock
        self._signer = signer

    def put(
        self, name: str, content: bytes, content_type: str, encoding: str | None, *, is_new: bool = False
    ) -> Written:
        block = None, "", len(content), self._add_content(content)

        def adopted(db: sqlite3.Connection) -> list[_Block]:
            _adopt(db, block[-1])
            return [block]

        return self._commit(name, adopted, content_type, encoding, is_new)

    def put_block(self, name: str, block_id: str, content: bytes) -> None:
        blob, key, now = self._key(name), self._add_content(content), epoch_milliseconds(self._clock.now())

        def stage(db: sqlite3.Connection) -> None:
            self._remove_blocks(db, "blob = ? AND place IS NULL AND id = ?", blob, block_id)
            _adopt(db, key)
            row = blob, None, block_id, len(content), now, key
            db.execute("INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?)", row)

        self._database.transaction(stage)

    def put_block_list(
        self, name: str, blocks: Blocks, content_type: str, encoding: str | None, *, is_new: bool = False
    ) -> Written:
        if len(blocks) > _MAX_BLOCKS:
            raise InvalidBlockList(f"up to {_MAX_BLOCKS} blocks are accepted")

        def listed(db: sqlite3.Connection) -> list[_Block]:
            sql = f"SELECT place IS NULL, rowid, id, length, content FROM blocks WHERE {_OF_BLOB}"
            found = db.execute(sql, self._current(name)).fetchall()
            committed = {block[1]: block for is_new, *block in found if not is_new and block[1]}
            uncommitted = {block[1]: block for is_new, *block in found if is_new}
            latest = {**committed, **uncommitted}
            where = {"Committed": committed, "Uncommitted": uncommitted, "Latest": latest}
            try:
                return [(*where[kind][block_id],) for kind, block_id in blocks]
            except KeyError as error:
                raise InvalidBlockList(*error.args) from None

        return self._commit(name, listed, content_type, encoding, is_new)

    def block_list(self, name: str) -> BlockList | None:
        found = self._database.rows(f"SELECT place, id FROM blocks WHERE {_OF_BLOB}", self._current(name))
        if not found and self.properties(name) is None:
            return None
        committed = [block_id for place, block_id in found if place is not None and block_id]
        return BlockList(committed, [block_id for place, block_id in found if place is None])

    def properties(self, name: str) -> BlobProperties | None:
        sql = "SELECT length, type, encoding, modified, etag FROM blobs WHERE name = ?"
        for length, content_type, encoding, modified, etag in self._database.rows(sql, (self._key(name),)):
            return BlobProperties(length, content_type, encoding, from_epoch(modified), etag)
        return None

    def read(self, name: str) -> tuple[BlobProperties, Iterator[bytes]] | None:
        found = self._database.rows(
            "SELECT blobs.length, type, encoding, modified, etag, content FROM blobs "
            "LEFT JOIN blocks ON blob = name AND place IS NOT NULL WHERE name = ? ORDER BY place",
            (self._key(name),),
        )
        if not found:
            return None
        length, content_type, encoding, modified, etag, _ = found[0]
        properties = BlobProperties(length, content_type, encoding, from_epoch(modified), etag)
        return properties, self._chunks([content for *_, content in found if content is not None])

    def delete(self, name: str) -> None:
        def delete(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM blobs WHERE name = ?", (self._key(name),))
            self._remove_blocks(db, "blob = ?", self._key(name))

        self._database.transaction(delete)

    def upload_url(self, name: str, start: datetime, expiry: datetime) -> str:
        return self._signer.upload_url(self.name, name, start, expiry)

    def download_url(self, name: str, start: datetime, expiry: datetime) -> str:
        return self._signer.download_url(self.name, name, start, expiry)

    def _key(self, name: str) -> str:
        return f"{self.name}/{name}"

    def _current(self, name: str) -> tuple[str, int]:
        """The parameters of _OF_BLOB, which leaves out blocks that have expired."""
        return self._key(name), epoch_milliseconds(self._clock.now() - BLOCKS_KEPT)

    def _commit(
        self,
        name: str,
        listed: Callable[[sqlite3.Connection], list[_Block]],
        content_type: str,
        encoding: str | None,
        is_new: bool,
    ) -> Written:
        blob, etag, now = self._key(name), f'"0x{uuid.uuid4().hex[:15].upper()}"', self._clock.now()

        def commit(db: sqlite3.Connection) -> None:
            if is_new and db.execute("SELECT 1 FROM blobs WHERE name = ?", (blob,)).fetchone():
                raise BlobAlreadyExists
            blocks, modified = listed(db), epoch_milliseconds(now)
            stored = dict(db.execute("SELECT rowid, content FROM blocks WHERE blob = ?", (blob,)).fetchall())
            moved, added = [], []
            for place, (rowid, block_id, length, content) in enumerate(blocks):
                if stored.pop(rowid, None) is None:  # new, or listed twice
                    added.append((blob, place, block_id, length, modified, content))
                else:
                    moved.append((place, rowid))
            db.executemany("DELETE FROM blocks WHERE rowid = ?", [(rowid,) for rowid in stored])
            add_orphans(db, [*{*stored.values()} - {block[-1] for block in blocks}], self._clock.wall_time())
            db.executemany("UPDATE blocks SET place = ?1 WHERE rowid = ?2 AND place IS NOT ?1", moved)
            db.executemany("INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?)", added)
            length = sum(block[2] for block in blocks)
            row = blob, length, content_type, encoding, modified, etag
            db.execute("INSERT OR REPLACE INTO blobs VALUES (?, ?, ?, ?, ?, ?)", row)

        self._database.transaction(commit)
        return Written(etag, now)

    def _add_content(self, content: bytes) -> int:
        """The key of the stored content, an orphan that is kept for some minutes."""
        file, is_inside = self._database.file, len(content) <= _MAX_INSIDE
        name = None if is_inside or file is None else uuid.uuid4().hex
        row = (None, name) if name else (bytes(content), None)

        def add(db: sqlite3.Connection) -> int:
            (key,) = db.execute(
                "INSERT INTO contents (data, file) VALUES (?, ?) RETURNING key", row
            ).fetchone()
            add_orphans(db, [key], self._clock.wall_time())
            return int(key)

        key = self._database.transaction(add)
        if file and name:
            try:
                outside_loop(lambda: _write(file.artifacts / name, content))
            except OSError as error:
                raise ServiceUnavailable("the artifact cannot be written now, try again") from error
        return key

    def _remove_blocks(self, db: sqlite3.Connection, where: str, *values: str) -> None:
        removed = db.execute(f"DELETE FROM blocks WHERE {where} RETURNING content", values).fetchall()
        add_orphans(db, [content for (content,) in removed], self._clock.wall_time())

    def _chunks(self, contents: list[int]) -> Iterator[bytes]:
        gone = ServiceUnavailable("the blob changed while it was read, try again")
        for key in contents:
            found = self._database.rows("SELECT data, file FROM contents WHERE key = ?", (key,))
            if not found:
                raise gone
            data, name = found[0]
            if name is None:
                yield data
                continue
            assert self._database.file  # noqa: S101
            path = self._database.file.artifacts / name
            try:
                with open(path, "rb", buffering=0) as content:
                    read = partial(content.read, _CHUNK)
                    while chunk := outside_loop(read):
                        yield chunk
            except FileNotFoundError:
                raise gone from None


def _adopt(db: sqlite3.Connection, content: int) -> None:
    """A block names the content from now on; raises ServiceUnavailable if it is no orphan any more."""
    if not db.execute("DELETE FROM orphans WHERE content = ?", (content,)).rowcount:
        raise ServiceUnavailable("the upload took too long, try again")


def _write(path: Path, content: bytes) -> None:
    """Return once the new file is on the disk, with its name."""
    if not path.parent.exists():
        make_private(path.parent)
    try:
        with open(path, "xb", buffering=0, opener=private_opener) as file:
            view = memoryview(content)
            while view:
                view = view[file.write(view) or 0 :]
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)  # what does not fit leaves room for what does
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
