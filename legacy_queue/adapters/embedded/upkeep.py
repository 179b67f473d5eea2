"""What keeps the file small and well, in native threads, so that no request waits for it.

Checkpoints write the WAL back and keep it short: a full disk can be left again with little space. What has
expired is removed, and its space goes back to the disk.
"""

import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import gevent
import structlog
from gevent import monkey

from legacy_queue.adapters.embedded.sqlite_connection import connect, in_transaction
from legacy_queue.adapters.embedded.storage_file import StorageFile
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.times import epoch_milliseconds
from legacy_queue.ports import Clock

log = structlog.get_logger()

Answer = TypeVar("Answer")

_INTERVAL = 1.0  # seconds
_PAUSE = 0.01  # seconds between two rounds while there is more to do: others write meanwhile
_BUSY_TIMEOUT = 1000  # milliseconds
_CHECKPOINT_AT, _MAX_WAL = 512 * 1024, 1024 * 1024  # bytes
_ROUND = 500  # rows of a kind that a round removes
_FREE_PAGES = 256  # given back in a round, and twice as many kept for the next rows
_LOW_SPACE = 64 * 1024 * 1024  # bytes
_BLOCKS_KEPT = timedelta(days=7)  # after its upload, until a list names the block
_ORPHANS_KEPT = timedelta(minutes=10)  # in real time: an upload needs them still, or a reader
_OLD_ORPHANS = "SELECT content FROM orphans WHERE since <= ? LIMIT ?"


class Upkeep:
    """Works for the file every second and when it is woken. Several processes may do so at once."""

    def __init__(self, file: StorageFile, clock: Clock, synchronous: str) -> None:
        self._file, self._clock, self._synchronous = file, clock, synchronous
        self._identity = _identity(file.path)
        self._wal = file.path.with_name(f"{file.path.name}-wal")
        self._wake, self._is_stopped = threading.Event(), False
        self._has_failed = self._is_low = False
        self._connection: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def is_behind(self) -> bool:
        """Whether a write should wait, since the WAL is too long. Wakes it where a checkpoint is due."""
        length = self._wal_length()
        if length > _CHECKPOINT_AT:
            self._wake.set()
        return length > _MAX_WAL and not self._has_failed

    def wake(self) -> None:
        """A disk is full: a checkpoint may free space."""
        self._wake.set()

    def stop(self) -> None:
        """Return once it works no more."""
        self._is_stopped = True
        self._wake.set()
        self._thread.join()

    def check_file(self) -> None:
        """Raises ServiceUnavailable if the file was removed or replaced."""
        if _identity(self._file.path) != self._identity:
            log.error("storage-file-removed", path=str(self._file.path))
            raise ServiceUnavailable("the file of the storage was removed: restart the server with a backup")

    def _run(self) -> None:
        has_more = False
        while not self._is_stopped:
            try:
                has_more = outside_loop(self._round)
                self._has_failed = False
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                has_more, self._has_failed = code == sqlite3.SQLITE_BUSY, code != sqlite3.SQLITE_BUSY
                if code not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL):  # requests log the latter
                    log.error("storage-upkeep-failed", error=getattr(error, "sqlite_errorname", None))
            self._look_at_space()
            self._wake.wait(_PAUSE if has_more else _INTERVAL)
            self._wake.clear()
        if self._connection:
            self._connection.close()

    def _round(self) -> bool:
        """Do a part of the work; whether there is more.

        It ends with a checkpoint, so that a power failure takes what was written since the last.
        """
        if self._connection is None:
            self._connection = connect(self._file.path, self._synchronous, _BUSY_TIMEOUT)
        db, now, wall = self._connection, self._clock.now(), self._clock.wall_time()
        try:
            self._remove_files(db, wall)
            has_more = in_transaction(db, lambda db: remove_expired(db, now, wall))
            (free,) = db.execute("PRAGMA freelist_count").fetchone()
            if free > 3 * _FREE_PAGES:
                db.executescript(f"PRAGMA incremental_vacuum({_FREE_PAGES})")  # execute would free one page
                has_more = True
        finally:  # also on a full disk, where it may be all that helps
            if self._wal_length():
                db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # most of it beside writers
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return has_more

    def _remove_files(self, db: sqlite3.Connection, wall: datetime) -> None:
        """Remove the files before their rows: a crash in between does no harm."""
        files = f"SELECT file FROM contents WHERE key IN ({_OLD_ORPHANS}) AND file IS NOT NULL"
        for (name,) in db.execute(files, _before(wall, _ORPHANS_KEPT)).fetchall():
            (self._file.artifacts / name).unlink(missing_ok=True)

    def _wal_length(self) -> int:
        with suppress(OSError):
            return self._wal.stat().st_size
        return 0

    def _look_at_space(self) -> None:
        with suppress(OSError):
            free = shutil.disk_usage(self._file.path.parent).free
            if free < _LOW_SPACE and not self._is_low:
                log.warning("storage-space-low", free_bytes=free, path=str(self._file.path.parent))
            self._is_low = free < _LOW_SPACE


def remove_expired(db: sqlite3.Connection, now: datetime, wall: datetime) -> bool:
    """Remove some expired messages and uncommitted blocks, and old orphans; whether there are more."""
    blocks = db.execute(
        "DELETE FROM blocks WHERE rowid IN "
        "(SELECT rowid FROM blocks WHERE place IS NULL AND added <= ? LIMIT ?) RETURNING content",
        _before(now, _BLOCKS_KEPT),
    ).fetchall()
    add_orphans(db, [content for (content,) in blocks], wall)
    orphans = _before(wall, _ORPHANS_KEPT)
    db.execute(f"DELETE FROM contents WHERE key IN ({_OLD_ORPHANS})", orphans)
    removed = db.execute(f"DELETE FROM orphans WHERE content IN ({_OLD_ORPHANS})", orphans).rowcount
    messages = db.execute(
        "DELETE FROM messages WHERE id IN (SELECT id FROM messages WHERE expires <= ? LIMIT ?)",
        _before(now, timedelta(0)),
    ).rowcount
    return _ROUND in (len(blocks), removed, messages)


def add_orphans(db: sqlite3.Connection, contents: list[int], wall: datetime) -> None:
    """No block names these contents now: they are removed later, unless one names them again before."""
    since = epoch_milliseconds(wall)
    db.executemany("INSERT OR REPLACE INTO orphans VALUES (?, ?)", [(key, since) for key in contents])


def outside_loop(act: Callable[[], Answer]) -> Answer:
    """The result of ``act`` from a native thread, where gevent has patched: other greenlets run meanwhile."""
    if not monkey.is_module_patched("threading"):
        return act()
    answer, error = gevent.get_hub().threadpool.apply(lambda: _outcome(act))
    if error:
        raise error
    returned: Answer = answer
    return returned


def _outcome(act: Callable[[], Answer]) -> tuple[Any, Exception | None]:
    """What it returns, or raises: gevent's threads would print a traceback."""
    try:
        return act(), None
    except (OSError, sqlite3.Error) as error:
        return None, error


def _before(time: datetime, kept: timedelta) -> tuple[int, int]:
    """The parameters of a statement that removes what is older than that."""
    return epoch_milliseconds(time - kept), _ROUND


def _identity(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None
