"""Keeps the file and its WAL small, with a connection and a thread of its own: no request waits for it.

Each process of a server does this once a second, and at once when the WAL has grown or the disk is full. A
round removes some expired messages and contents, gives free pages back to the disk, and then writes the WAL
back, in two steps:

1. A PASSIVE checkpoint does the long part beside readers and writers, and waits for nobody. If a reader still
   needs an old page, or another process is at it, the rest is left to the next round.
2. Once all is written back, a TRUNCATE checkpoint begins a new WAL. It holds up writers, but only for what
   was written since step 1.

Three facts follow, on which others rely, with ``synchronous`` normal:

- After a power failure the file has what the last round wrote back: so it loses about a second.
- A disk that fails is noticed here, since a commit waits for no sync. From then until a round has written
  everything back, this process refuses changes. Otherwise it would acknowledge what never reaches the disk.
- SQLite opens a file without its WAL in silence. So before step 2 the file gets the mark ``NEEDS_WAL``, and
  the first transaction of the new WAL deletes it: read without the WAL, the file still has the mark.

What is ugly, and stays: a crash between the two writes leaves the mark in a file whose WAL is empty. So a
start accepts an empty WAL, also one that somebody has emptied. And where a round can write back only a part
of a WAL, beside a reader, that part may take the mark out of the file, which still needs the rest.
"""

import shutil
import sqlite3
import threading
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import structlog

from legacy_queue.adapters.embedded.file_checks import artifact_path
from legacy_queue.adapters.embedded.file_watch import FileWatch
from legacy_queue.adapters.embedded.sqlite_connection import (
    VERSION,
    error_code,
    error_name,
    in_transaction,
    version_of,
)
from legacy_queue.adapters.embedded.storage_file import NEEDS_WAL, StorageFile
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.times import epoch_milliseconds, from_epoch
from legacy_queue.ports import Clock, Waiter

log = structlog.get_logger()

Result = TypeVar("Result")

_INTERVAL = 1.0  # seconds
_PAUSE = 0.01  # seconds between two rounds while there is more to do: others write meanwhile
# bytes by which the WAL grows until a checkpoint is due. On a disk that is nearly full it is short: writing
# it back may take as much again.
_WAL_GROWTH = 4 * 1024 * 1024
_SHORT_WAL_GROWTH = 512 * 1024
_CHECKED_AFTER = 8  # changes: then the length of the WAL is checked
_LONG_WAL = 64 * 1024 * 1024  # bytes, to warn of
MAX_REMOVED = 500  # rows of a kind that a round removes
REMOVE_MESSAGES = "DELETE FROM messages WHERE id IN (SELECT id FROM messages WHERE expires <= ? LIMIT ?)"
_FREE_PAGES = 256  # given back in a round, and twice as many kept for the next rows
_LOW_SPACE = 64 * 1024 * 1024  # bytes
_PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL)  # errors: requests log the latter
LAST_TIME = "last time"  # in meta: the queue's time at the last checkpoint that began a new WAL
_IS_AHEAD = "the clock was set back, or moved before: what waits for a time waits longer"


class Maintenance:
    """Works for the file every second, and when there is a reason. Several processes may do so at once."""

    def __init__(
        self,
        file: StorageFile,
        watch: FileWatch,
        clock: Clock,
        waiter: Waiter,
        connection: sqlite3.Connection,
    ) -> None:
        """``connection`` to the file is closed by ``stop``. Raises sqlite3.Error."""
        self._file = file
        self._watch = watch
        self._clock = clock
        self._waiter = waiter
        self._has_failed = False  # the last checkpoint
        self._last_time = clock.now()  # the latest that the queue has seen
        self._begun_wal = -1  # its length when nothing else is in it
        self._due_at = _SHORT_WAL_GROWTH  # the length at which a checkpoint is due
        self._changes = 0
        self._warned: set[str] = set()
        self._connection = connection
        before = self._connection.execute("SELECT value FROM meta WHERE name = ?", [LAST_TIME])
        for (milliseconds,) in before.fetchall():  # of an earlier start
            self._last_time = max(self._last_time, from_epoch(milliseconds))
        self._is_stopped = False
        self._has_reason = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def before_change(self) -> None:
        """Have a checkpoint made if the WAL is long: with its length grows how long writers wait for it.

        Raises ServiceUnavailable if the file was removed, or was of a newer version, at the last check, which
        comes every second, and while the disk does not take what was written.
        """
        if self._watch.is_given_up:
            raise ServiceUnavailable(
                "the file of the storage was removed, replaced, or brought forward by a newer server: restart"
            )
        if self._has_failed:
            raise ServiceUnavailable("the disk of the storage fails, try again")
        # SQLite's own checkpoint, after so many pages, is off: it would run in the loop
        self._changes += 1
        if not self._changes % _CHECKED_AFTER and _length(self._file.wal) > self._due_at:
            self._has_reason.set()

    def free_space(self) -> None:
        """A disk is full: make a checkpoint, which may free space."""
        self._has_reason.set()

    def stop(self) -> None:
        """Return once it works no more."""
        self._is_stopped = True
        self._has_reason.set()
        self._thread.join()

    def _run(self) -> None:
        has_more = False
        while not self._is_stopped:
            try:
                try:
                    has_more = self._watch.is_unchanged() and self._waiter.run_long(self._round)
                finally:
                    self._check_space()
            except Exception as error:  # noqa: BLE001 - the thread must go on
                has_more = error_code(error) == sqlite3.SQLITE_BUSY
                if error_code(error) not in _PASSING:
                    log.error("storage-upkeep-failed", error=error_name(error))
            self._waiter.wait(self._has_reason, _PAUSE if has_more else _INTERVAL)
            self._has_reason.clear()
        if self._watch.is_unchanged():
            # A process that was killed may have left the mark in file and WAL. The last close removes the
            # WAL, and a start would miss it.
            with suppress(sqlite3.Error):
                self._connection.execute("DELETE FROM meta WHERE name = ?", [NEEDS_WAL])
        self._connection.close()

    def _round(self) -> bool:
        """Do a part of the work; whether there is more.

        It ends with a checkpoint, so that a power failure takes what was written since the last.
        """
        db = self._connection
        if version_of(db) != VERSION:  # a newer server has brought the file forward, beside this process
            self._watch.give_up("storage-file-newer")
            return False
        now = self._clock.now()
        wall = self._clock.wall_time()
        self._last_time = max(self._last_time, now)
        behind = round((self._last_time - now).total_seconds())
        self._warn("storage-is-ahead", behind > 0, seconds=behind, why=_IS_AHEAD)
        try:
            has_more = in_transaction(db, lambda db: remove_expired(db, now, wall, self._file.artifacts))
            (free,) = db.execute("PRAGMA freelist_count").fetchone()
            if free > 3 * _FREE_PAGES:
                db.executescript(f"PRAGMA incremental_vacuum({_FREE_PAGES})")  # execute would free one page
                has_more = True
        finally:  # also on a full disk, where it may be all that helps
            if _length(self._file.wal) != self._begun_wal or self._has_failed:
                self._checkpoint(db, now)
        return has_more

    def _checkpoint(self, db: sqlite3.Connection, now: datetime) -> None:
        """Write back all that no reader needs, beside writers; where that is all, begin a new WAL.

        After an error of the disk, changes are refused until all is written back.
        """
        try:
            # PASSIVE waits for nobody, so that requests go on during the long part
            _, frames, done = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if done < frames:  # a reader needs the rest, or another process is at it
                return
            version = _version_of_others(db)
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, 1)", [NEEDS_WAL])
            try:
                # the rest is short; the new WAL begins at its start, and overwrites no change of a reader
                was_busy, *_ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                # the first write in a WAL waits for the disk: better here than in the loop
                db.execute("DELETE FROM meta WHERE name = ?", [NEEDS_WAL])
            if not was_busy:
                values = LAST_TIME, epoch_milliseconds(now)
                db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", values)
                length = _length(self._file.wal)
                # what another has written meanwhile is in this WAL, too: that needs a checkpoint
                self._begun_wal = length if _version_of_others(db) == version else -1
            self._has_failed = False
        except sqlite3.Error as error:
            self._has_failed |= error_code(error) not in _PASSING
            raise

    def _check_space(self) -> None:
        folder, free, is_low = least_space(self._file)
        self._warn("storage-space-low", is_low, free_bytes=free, path=str(folder))
        length = _length(self._file.wal)
        self._due_at = length + (_SHORT_WAL_GROWTH if is_low else _WAL_GROWTH)
        self._warn(
            "storage-wal-long", length > _LONG_WAL, bytes=length, why="a program reads the file for long"
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
    """Remove some expired messages and contents; whether there are more.

    Files go before the end of the transaction that removes their rows: a crash in between does no harm.
    """
    files = db.execute(
        "DELETE FROM contents WHERE content IN (SELECT content FROM contents WHERE until <= ? LIMIT ?)"
        " RETURNING file",
        (epoch_milliseconds(wall), MAX_REMOVED),
    ).fetchall()
    for (name,) in files:
        if artifacts and name:
            try:
                artifact_path(artifacts, name).unlink(missing_ok=True)
            except OSError as error:
                log.error("storage-artifact-left", path=f"{artifacts}/{name}", error=error_name(error))
    messages = db.execute(REMOVE_MESSAGES, (epoch_milliseconds(now), MAX_REMOVED)).rowcount
    return MAX_REMOVED in (len(files), messages)


def _version_of_others(db: sqlite3.Connection) -> int:
    """Another number once another connection has changed the file."""
    version: int = db.execute("PRAGMA data_version").fetchone()[0]
    return version


def _length(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def least_space(file: StorageFile) -> tuple[Path, int, bool]:
    """The folder of the file or of its artifacts, whichever has fewer bytes left, how many, and whether they
    are few; not if that is unknown.
    """
    free = {}
    for folder in (file.path.parent, file.artifacts):
        with suppress(OSError):
            free[folder] = shutil.disk_usage(folder).free
    folder = min(free, key=lambda one: free[one], default=file.path.parent)
    left = free.get(folder, _LOW_SPACE)
    return folder, left, left < _LOW_SPACE
