"""What keeps the file small and well, in native threads, so that no request waits for it.

Checkpoints write the WAL back and keep it short: a full disk can be left again with little space. What has
expired is removed, and its space goes back to the disk.
"""

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import gevent
import structlog
from gevent import monkey

from legacy_queue.adapters.embedded.sqlite_connection import connect, in_transaction
from legacy_queue.adapters.embedded.storage_file import LAST_TIME, StorageFile
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.times import epoch_milliseconds
from legacy_queue.ports import Clock

log = structlog.get_logger()

Answer = TypeVar("Answer")

_INTERVAL = 1.0  # seconds
_PAUSE = 0.01  # seconds between two rounds while there is more to do: others write meanwhile
# bytes of the WAL for which a checkpoint is due; at twice as many, writes wait for it. On a disk that is
# nearly full it is short: writing it back may take as much again.
_WAL, _SHORT_WAL = 4 * 1024 * 1024, 512 * 1024
_PACE_AFTER = 8  # changes: then the length of the WAL is looked at
_PACE_TIMEOUT, _PACE_PAUSE = 1.0, 0.002  # seconds, for a checkpoint
_UNBOUNDED_WAL = 64 * 1024 * 1024  # bytes, to warn of
_ROUND = 500  # rows of a kind that a round removes
_FREE_PAGES = 256  # given back in a round, and twice as many kept for the next rows
_LOW_SPACE = 64 * 1024 * 1024  # bytes
BLOCKS_KEPT = timedelta(days=7)  # after its upload, until a list names the block
_ORPHANS_KEPT = timedelta(minutes=10)  # in real time: an upload needs them still, or a reader
_OLD_ORPHANS = "SELECT content FROM orphans WHERE since <= ? LIMIT ?"


class Upkeep:
    """Works for the file every second and when it is woken. Several processes may do so at once."""

    def __init__(self, file: StorageFile, clock: Clock, synchronous: str) -> None:
        self._file, self._clock, self._synchronous = file, clock, synchronous
        self._wal = file.path.with_name(f"{file.path.name}-wal")
        self._identity = self._identities()
        self._begun_wal = 0  # its length when nothing else is in it
        self._checkpoint_at = _SHORT_WAL
        self._changes, self._is_behind = 0, False
        self._wake, self._is_stopped = threading.Event(), False
        self._is_removed = self._is_blocked = False
        self._warned: set[str] = set()
        self._connection: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def pace(self) -> None:
        """Before a change: wait for a checkpoint where the WAL has grown faster than it was written back.

        Raises ServiceUnavailable if the file was removed at the last look, which is taken every second.
        """
        self._refuse_removed()
        self._changes += 1
        if self._changes % _PACE_AFTER and not self._is_behind:
            return
        end = time.monotonic() + _PACE_TIMEOUT
        while (length := _length(self._wal)) > self._checkpoint_at:
            self._wake.set()
            self._is_behind = length > 2 * self._checkpoint_at and not self._is_blocked
            if not self._is_behind or time.monotonic() > end:
                return
            time.sleep(_PACE_PAUSE)  # and other changes, which look too
        self._is_behind = False

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
        self._look_at_file()
        self._refuse_removed()

    def _refuse_removed(self) -> None:
        if self._is_removed:
            raise ServiceUnavailable("the file of the storage was removed: restart the server with a backup")

    def _look_at_file(self) -> None:
        if not self._is_removed and self._identities() != self._identity:
            log.error("storage-file-removed", path=str(self._file.path))
            self._is_removed = True

    def _identities(self) -> list[tuple[int, int] | None]:
        """Of the file and of its WAL, which is there as long as any process has the file open."""
        return [_identity(path) for path in (self._file.path, self._wal)]

    def _run(self) -> None:
        has_more = False
        while not self._is_stopped:
            try:
                has_more = outside_loop(self._round)
            except Exception as error:  # noqa: BLE001 - the thread must go on
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                has_more = code == sqlite3.SQLITE_BUSY
                self._is_blocked = self._is_blocked or not has_more
                if code not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL):  # requests log the latter
                    log.error("storage-upkeep-failed", error=_name(error))
            self._look_at_file()
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
            self._connection = connect(self._file.path, self._synchronous)
        db, now, wall = self._connection, self._clock.now(), self._clock.wall_time()
        try:
            has_more = in_transaction(db, lambda db: remove_expired(db, now, wall, self._file.artifacts))
            (free,) = db.execute("PRAGMA freelist_count").fetchone()
            if free > 3 * _FREE_PAGES:
                db.executescript(f"PRAGMA incremental_vacuum({_FREE_PAGES})")  # execute would free one page
                has_more = True
        finally:  # also on a full disk, where it may be all that helps
            if _length(self._wal) != self._begun_wal:
                self._checkpoint(db, now)
        return has_more

    def _checkpoint(self, db: sqlite3.Connection, now: datetime) -> None:
        """Write back all that no reader needs, beside writers; where that is all, begin a new WAL."""
        _, frames, done = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        self._is_blocked = done < frames
        if self._is_blocked:
            return
        was_busy, *_ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if not was_busy:
            # the first write in a WAL waits for the disk: better here than in the loop
            values = LAST_TIME, epoch_milliseconds(now)
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", values)
            self._begun_wal = _length(self._wal)

    def _look_at_space(self) -> None:
        folder, free = str(self._file.path.parent), _LOW_SPACE
        with suppress(OSError):
            free = shutil.disk_usage(folder).free
        is_low = free < _LOW_SPACE
        self._checkpoint_at = _SHORT_WAL if is_low else _WAL
        self._warn("storage-space-low", is_low, free_bytes=free, path=folder)
        length = _length(self._wal)
        self._warn(
            "storage-wal-long", length > _UNBOUNDED_WAL, bytes=length, why="a program reads the file for long"
        )

    def _warn(self, event: str, is_so: bool, **fields: Any) -> None:
        """Log it once, and again only after it was not so."""
        if is_so and event not in self._warned:
            self._warned.add(event)
            log.warning(event, **fields)
        elif not is_so:
            self._warned.discard(event)


def remove_expired(
    db: sqlite3.Connection, now: datetime, wall: datetime, artifacts: Path | None = None
) -> bool:
    """Remove some expired messages and uncommitted blocks, and old orphans; whether there are more.

    Files go before the end of the transaction that removes their rows: a crash in between does no harm.
    """
    blocks = db.execute(
        "DELETE FROM blocks WHERE rowid IN "
        "(SELECT rowid FROM blocks WHERE place IS NULL AND added < ? LIMIT ?) RETURNING content",
        _before(now, BLOCKS_KEPT),
    ).fetchall()
    add_orphans(db, [content for (content,) in blocks], wall)
    orphans = _before(wall, _ORPHANS_KEPT)
    removed = db.execute(
        f"DELETE FROM contents WHERE key IN ({_OLD_ORPHANS}) RETURNING file", orphans
    ).fetchall()
    db.execute(f"DELETE FROM orphans WHERE content IN ({_OLD_ORPHANS})", orphans)
    for (name,) in removed:
        if artifacts and name:
            _remove(artifacts / name)
    messages = db.execute(
        "DELETE FROM messages WHERE id IN (SELECT id FROM messages WHERE expires <= ? LIMIT ?)",
        _before(now, timedelta(0)),
    ).rowcount
    return _ROUND in (len(blocks), len(removed), messages)


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
    except Exception as error:  # noqa: BLE001 - raised by the caller
        return None, error


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.error("storage-artifact-left", path=str(path), error=_name(error))


def _before(now: datetime, kept: timedelta) -> tuple[int, int]:
    """The parameters of a statement that removes what is older than that."""
    return epoch_milliseconds(now - kept), _ROUND


def _length(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _identity(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


def _name(error: Exception) -> str:
    return str(getattr(error, "sqlite_errorname", type(error).__name__))
