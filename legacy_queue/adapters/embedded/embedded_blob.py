"""Blobs. Properties and small contents are in the storage file; contents above 64 KiB are separate files.

A content that no blob names has a time ``until``, and is removed then. So a crash during an upload does not
leave a file for long, and whoever reads a blob while it is replaced can read it to its end.
"""

import json
import os
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile

import structlog

from legacy_queue.adapters.embedded.database import Database
from legacy_queue.adapters.embedded.file_checks import artifact_path
from legacy_queue.adapters.embedded.sqlite_connection import error_name
from legacy_queue.adapters.url_signer import UrlSigner
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.times import epoch_milliseconds, from_epoch
from legacy_queue.ports import Clock
from legacy_queue.ports.blob import (
    DEFAULTS,
    BlobAlreadyExists,
    BlobContainer,
    BlobProperties,
    BlockCountExceedsLimit,
    BlockList,
    Blocks,
    ConditionNotMet,
    InvalidBlobOrBlock,
    InvalidBlockList,
    WriteOptions,
    Written,
)
from legacy_queue.private_folder import make_private, private_opener

log = structlog.get_logger()

_MAX_INSIDE = 64 * 1024  # bytes of a content that is stored in the storage file
_CHUNK = 256 * 1024  # bytes read at once
_UNNAMED_KEPT = timedelta(minutes=10)  # an upload or a reader may still need the content
_BLOCKS_KEPT = timedelta(days=7)  # an uploaded block is kept this long until a list names it

_COMMITTED = """SELECT contents.id, content
  FROM json_each((SELECT contents FROM blobs WHERE name = ?)) AS listed
  JOIN contents ON content = listed.value ORDER BY listed.key"""
_UNCOMMITTED = (
    "SELECT id, content FROM contents WHERE blob = ? AND id IS NOT NULL AND until > ? ORDER BY content"
)

# Finds a client's block id of another length. Ids with a dot are from stores.Blobs, which may write a whole
# blob although a client has uploaded blocks.
_OTHER_LENGTH = f"""SELECT id FROM ({_UNCOMMITTED}) WHERE length(id) <> length(?)
  AND instr(id, '.') = 0 AND instr(?, '.') = 0 LIMIT 1"""
_FOUND = """SELECT length, type, encoding, modified, blobs.etag, contents, md5, metadata FROM blobs
  LEFT JOIN described ON described.name = blobs.name AND described.etag = blobs.etag WHERE blobs.name = ?"""


class EmbeddedBlobContainer(BlobContainer):
    """A container.

    Its contents are unnamed (no ``id``), uncommitted blocks (``id`` and ``until``), or in a blob.
    """

    max_blocks = 2000  # because a list is one transaction

    def __init__(self, name: str, database: Database, clock: Clock, signer: UrlSigner) -> None:
        self.name = name
        self._database = database
        self._clock = clock
        self._signer = signer

    def put(
        self,
        name: str,
        content: bytes,
        content_type: str,
        encoding: str | None,
        options: WriteOptions = DEFAULTS,
    ) -> Written:
        uploaded = self._upload(name, content)

        def listed(db: sqlite3.Connection) -> list[int]:
            self._assign(db, uploaded, "", None)
            return [uploaded]

        return self._commit(name, listed, content_type, encoding, options)

    def put_block(self, name: str, block_id: str, content: bytes) -> None:
        uploaded = self._upload(name, content)

        def stage(db: sqlite3.Connection) -> None:
            db.execute(
                "UPDATE contents SET id = NULL, until = ? WHERE blob = ? AND id = ? AND until IS NOT NULL",
                (self._after(_UNNAMED_KEPT), self._key(name), block_id),
            )
            if db.execute(_OTHER_LENGTH, (self._key(name), self._after(), block_id, block_id)).fetchone():
                raise InvalidBlobOrBlock
            sql = f"SELECT count(*) FROM ({_UNCOMMITTED})"
            (count,) = db.execute(sql, (self._key(name), self._after())).fetchone()
            if count >= self.max_blocks:
                raise BlockCountExceedsLimit
            self._assign(db, uploaded, block_id, self._after(_BLOCKS_KEPT))

        self._database.transaction(stage)

    def put_block_list(
        self,
        name: str,
        blocks: Blocks,
        content_type: str,
        encoding: str | None,
        options: WriteOptions = DEFAULTS,
    ) -> Written:
        if len(blocks) > self.max_blocks:
            raise InvalidBlockList(f"expected up to {self.max_blocks} blocks")

        def listed(db: sqlite3.Connection) -> list[int]:
            committed = dict(db.execute(_COMMITTED, (self._key(name),)).fetchall())
            uncommitted = dict(db.execute(_UNCOMMITTED, (self._key(name), self._after())).fetchall())
            where = {
                "Committed": committed,
                "Uncommitted": uncommitted,
                "Latest": {**committed, **uncommitted},
            }
            try:
                return [where[kind][block_id] for kind, block_id in blocks]
            except KeyError as error:
                raise InvalidBlockList(*error.args) from None

        return self._commit(name, listed, content_type, encoding, options)

    def describe(self, name: str, wanted: BlobProperties) -> Written:
        etag = _new_etag()
        now = self._clock.now()

        def change(db: sqlite3.Connection) -> None:
            described = wanted.content_type, wanted.content_encoding, epoch_milliseconds(now), etag
            if not db.execute(
                "UPDATE blobs SET type = ?, encoding = ?, modified = ?, etag = ? WHERE name = ? AND etag = ?",
                (*described, self._key(name), wanted.etag),
            ).rowcount:
                raise ConditionNotMet
            self._describe(db, name, etag, wanted.md5, wanted.metadata)

        self._database.transaction(change)
        return Written(etag, now)

    def block_list(self, name: str) -> BlockList | None:
        committed = self._database.rows(_COMMITTED, (self._key(name),))
        uncommitted = self._database.rows(_UNCOMMITTED, (self._key(name), self._after()))
        if not committed and not uncommitted and self.properties(name) is None:
            return None
        return BlockList(
            [block_id for block_id, _ in committed if block_id], [block_id for block_id, _ in uncommitted]
        )

    def discard_blocks(self, after: str, limit: int, is_over: Callable[[str], bool]) -> str | None:
        sql = (
            "SELECT DISTINCT substr(blob, ?) AS name FROM contents"
            " WHERE until > ? AND id IS NOT NULL AND blob GLOB ? AND name > ? ORDER BY name LIMIT ?"
        )
        values = len(self._key("")) + 1, self._after(), self._key("*"), after, limit
        names = [name for (name,) in self._database.rows(sql, values)]
        for name in filter(is_over, names):
            self._database.change(
                "UPDATE contents SET id = NULL, until = ?"
                " WHERE blob = ? AND id IS NOT NULL AND until IS NOT NULL",
                (self._after(_UNNAMED_KEPT), self._key(name)),
            )
        return names[-1] if len(names) == limit else None

    def properties(self, name: str) -> BlobProperties | None:
        found = self._found(name)
        return found[0] if found else None

    def read(self, name: str) -> tuple[BlobProperties, Iterator[bytes]] | None:
        found = self._found(name)
        return (found[0], self._chunks(found[1])) if found else None

    def delete(self, name: str) -> None:
        def delete(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM blobs WHERE name = ?", (self._key(name),))
            self._describe(db, name, "", None, {})
            self._release(db, name)

        self._database.transaction(delete)

    def empty(self, db: sqlite3.Connection) -> None:
        """Remove all blobs and blocks in this transaction."""
        db.execute("DELETE FROM blobs")
        db.execute("DELETE FROM described")
        db.execute("UPDATE contents SET id = NULL, until = ?", (self._after(_UNNAMED_KEPT),))

    def upload_url(self, name: str, start: datetime, expiry: datetime) -> str:
        return self._signer.upload_url(self.name, name, start, expiry)

    def download_url(self, name: str, start: datetime, expiry: datetime) -> str:
        return self._signer.download_url(self.name, name, start, expiry)

    def _key(self, name: str) -> str:
        return f"{self.name}/{name}"

    def _after(self, duration: timedelta = timedelta(0)) -> int:
        """Return the real time after ``duration``. A moved clock must not remove what is still in use."""
        return epoch_milliseconds(self._clock.wall_time() + duration)

    def _found(self, name: str) -> tuple[BlobProperties, Sequence[int]] | None:
        for found in self._database.rows(_FOUND, (self._key(name),)):
            length, content_type, encoding, modified, etag, contents, md5, metadata = found
            properties = BlobProperties(
                length,
                content_type,
                encoding,
                from_epoch(modified),
                etag,
                md5,
                json.loads(metadata) if metadata else {},
            )
            return properties, json.loads(contents)
        return None

    def _describe(
        self, db: sqlite3.Connection, name: str, etag: str, md5: str | None, metadata: Mapping[str, str]
    ) -> None:
        """Store MD5 and metadata. Most blobs have neither, and so no row here."""
        if md5 or metadata:
            values = self._key(name), etag, md5, json.dumps(metadata)
            db.execute("INSERT OR REPLACE INTO described VALUES (?, ?, ?, ?)", values)
        else:
            db.execute("DELETE FROM described WHERE name = ?", (self._key(name),))

    def _commit(
        self,
        name: str,
        listed: Callable[[sqlite3.Connection], list[int]],
        content_type: str,
        encoding: str | None,
        options: WriteOptions,
    ) -> Written:
        blob = self._key(name)
        etag = _new_etag()
        now = self._clock.now()

        def commit(db: sqlite3.Connection) -> None:
            if options.is_new or options.replaces:
                found = db.execute("SELECT etag FROM blobs WHERE name = ?", (blob,)).fetchone()
                if options.is_new and found:
                    raise BlobAlreadyExists
                if options.replaces and found != (options.replaces,):
                    raise ConditionNotMet
            contents = json.dumps(listed(db))
            self._release(db, name, but=contents)
            db.execute(
                "UPDATE contents SET until = NULL WHERE until IS NOT NULL"
                " AND content IN (SELECT value FROM json_each(?))",
                (contents,),
            )
            db.execute(
                "INSERT OR REPLACE INTO blobs SELECT ?, ifnull(sum(length), 0), ?, ?, ?, ?, ?"
                " FROM json_each(?) JOIN contents ON content = value",
                (blob, content_type, encoding, epoch_milliseconds(now), etag, contents, contents),
            )
            self._describe(db, name, etag, options.md5, options.metadata)

        self._database.transaction(commit)
        return Written(etag, now)

    def _upload(self, name: str, content: bytes) -> int:
        """Store a content and return its number. If no blob names it soon, it is removed again."""
        folder = self._database.file and self._database.file.artifacts
        file = uuid.uuid4().hex if folder and len(content) > _MAX_INSIDE else None
        sql = (
            "INSERT INTO contents (blob, length, file, data, until) VALUES (?, ?, ?, ?, ?) RETURNING content"
        )
        data = None if file else bytes(content)
        values = (self._key(name), len(content), file, data, self._after(_UNNAMED_KEPT))
        [(uploaded,)] = self._database.change_rows(sql, values)
        if folder and file:  # write the file after its row, so that a crash does not leave it for long
            path = folder / file
            self._write_file(lambda: _write(path, content))
        return int(uploaded)

    def check(self) -> None:
        """Return if another artifact can be written. The folder of artifacts may be on its own disk."""
        if self._database.file:
            folder = self._database.file.artifacts
            self._write_file(lambda: _try_to_write(folder))

    def _write_file(self, write: Callable[[], None]) -> None:
        try:
            self._database.waiter.run_long(write)
        except OSError as error:
            log.error("storage-failed", error=error_name(error), what="artifacts")
            raise ServiceUnavailable("artifacts cannot be written now, try again") from error

    def _assign(self, db: sqlite3.Connection, uploaded: int, block_id: str, until: int | None) -> None:
        sql = "UPDATE contents SET id = ?, until = ? WHERE content = ?"
        if not db.execute(sql, (block_id, until, uploaded)).rowcount:
            raise ServiceUnavailable("the upload took too long, try again")

    def _release(self, db: sqlite3.Connection, name: str, but: str = "[]") -> None:
        """Let all contents and blocks of the blob expire, except these."""
        db.execute(
            "UPDATE contents SET id = NULL, until = ? WHERE blob = ? AND (until IS NULL OR id IS NOT NULL)"
            " AND content NOT IN (SELECT value FROM json_each(?))",
            (self._after(_UNNAMED_KEPT), self._key(name), but),
        )

    def _chunks(self, contents: Sequence[int]) -> Iterator[bytes]:
        gone = ServiceUnavailable("the blob changed while it was read, try again")
        for content in contents:
            found = self._database.rows("SELECT data, file FROM contents WHERE content = ?", (content,))
            if not found:
                raise gone
            data, name = found[0]
            if name is None or self._database.file is None:
                yield data
                continue
            try:
                path = artifact_path(self._database.file.artifacts, name)
                with open(path, "rb", buffering=0, opener=private_opener) as file:
                    read = partial(file.read, _CHUNK)
                    while chunk := self._database.waiter.run_long(read):
                        yield chunk
            except FileNotFoundError:
                raise gone from None
            except OSError as error:
                raise ServiceUnavailable("the artifact cannot be read now, try again") from error


def _new_etag() -> str:
    return f'"0x{uuid.uuid4().hex[:15].upper()}"'


def _try_to_write(folder: Path) -> None:
    """Write as much as the shortest content in a file, into a file without a name, which no crash leaves."""
    _make(folder)
    with TemporaryFile(dir=folder) as file:
        file.write(bytes(_MAX_INSIDE + 1))


def _make(folder: Path) -> None:
    if not folder.exists():
        make_private(folder)


def _write(path: Path, content: bytes) -> None:
    """Write a new file. Return when the file and its name are on the disk."""
    _make(path.parent)
    try:
        with open(path, "xb", opener=private_opener) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)  # a part of a file is useless and takes up space
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
