"""Keeps the file and its WAL small. It has its own connection and thread, so that no request waits for it.

Each server process does a round of this work once a second, and at once when the WAL has grown or the disk is
full. A round removes some expired messages and contents, gives free pages back to the disk, and then writes
the WAL back into the file, in two steps:

1. A PASSIVE checkpoint does the long part while others read and write. It waits for nobody. If a reader still
   needs an old page, or another process is making a checkpoint, the next round does the rest.
2. When everything is written back, a TRUNCATE checkpoint starts a new WAL. Writers wait for it, but it only
   has to write what has changed since step 1.

With ``synchronous`` normal, three facts follow, and other modules rely on them:

- After a power failure, the file has what the last round wrote back. So about the last second is lost.
- A commit does not wait for the disk, so a failing disk is noticed here. Then this process refuses changes
  until a round has written everything back. Otherwise it would acknowledge changes that never reach the disk.
- If the WAL is missing, SQLite opens the file without an error. So before step 2 the file gets the mark
  ``NEEDS_WAL``. The first transaction in the new WAL deletes the mark. A file that is read without its WAL
  still has the mark.

What is ugly, and why it stays: a crash between these two writes leaves the mark in a file whose WAL is empty.
So a start accepts an empty WAL, even if somebody emptied it. And if a reader lets a round write back only a
part of the WAL, this part may remove the mark from the file although it still needs the rest of the WAL.
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
_PAUSE = 0.01  # seconds between two rounds while there is more to do, so that others can write
# A checkpoint is due when the WAL has grown by this many bytes. On a disk that is nearly full it comes
# earlier, because writing the WAL back may need the same space again.
_WAL_GROWTH = 4 * 1024 * 1024
_SHORT_WAL_GROWTH = 512 * 1024
_CHECKED_AFTER = 8  # after this many changes, the length of the WAL is checked
_LONG_WAL = 64 * 1024 * 1024  # bytes: a longer WAL is worth a warning
MAX_REMOVED = 500  # how many rows of each kind a round removes
REMOVE_MESSAGES = "DELETE FROM messages WHERE id IN (SELECT id FROM messages WHERE expires <= ? LIMIT ?)"
_FREE_PAGES = 256  # how many a round gives back; twice as many are kept for new rows
_LOW_SPACE = 64 * 1024 * 1024  # bytes
_PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL)  # errors that pass; requests log that the disk is full
LAST_TIME = "last time"  # in meta: the queue's time when the last new WAL was started
_IS_AHEAD = (
    "the clock was set back, or an earlier server had moved it: whatever waits for a time waits longer"
)


class Maintenance:
    """Does the rounds for the file. Several processes may do so at the same time."""

    def __init__(
        self,
        file: StorageFile,
        watch: FileWatch,
        clock: Clock,
        waiter: Waiter,
        connection: sqlite3.Connection,
    ) -> None:
        """``stop`` closes the ``connection``. Raises sqlite3.Error."""
        self._file = file
        self._watch = watch
        self._clock = clock
        self._waiter = waiter
        self._has_failed = False  # whether the last checkpoint failed
        self._last_time = clock.now()  # the latest time that the queue has seen
        self._begun_wal = -1  # the length of a WAL that has nothing but its first transaction
        self._due_at = _SHORT_WAL_GROWTH  # the length of the WAL at which a checkpoint is due
        self._changes = 0
        self._warned: set[str] = set()
        self._connection = connection
        before = self._connection.execute("SELECT value FROM meta WHERE name = ?", [LAST_TIME])
        for (milliseconds,) in before.fetchall():  # from an earlier start
            self._last_time = max(self._last_time, from_epoch(milliseconds))
        self._is_stopped = False
        self._has_reason = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def before_change(self) -> None:
        """Ask for a checkpoint if the WAL is long, because writers wait longer for a longer WAL.

        Raises ServiceUnavailable if the last check, which is made every second, found that the file was
        removed or is of a newer version. Raises it also as long as the disk fails.
        """
        if self._watch.is_given_up:
            raise ServiceUnavailable(
                "the storage file was removed, replaced, or migrated by a newer server: restart this server"
            )
        if self._has_failed:
            raise ServiceUnavailable("the disk of the storage fails, try again")
        # SQLite's automatic checkpoint is off, because it would run in the event loop
        self._changes += 1
        if not self._changes % _CHECKED_AFTER and _length(self._file.wal) > self._due_at:
            self._has_reason.set()

    def free_space(self) -> None:
        """Make a checkpoint now, because the disk is full and this may free space."""
        self._has_reason.set()

    def stop(self) -> None:
        """End the work. Returns when it has ended."""
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
            # A process that was killed may have left the mark in the file and in the WAL. The last close
            # removes the WAL, and then a start would report it missing.
            with suppress(sqlite3.Error):
                self._connection.execute("DELETE FROM meta WHERE name = ?", [NEEDS_WAL])
        self._connection.close()

    def _round(self) -> bool:
        """Do a part of the work. Returns whether there is more.

        It ends with a checkpoint, so that a power failure loses only what was written after it.
        """
        db = self._connection
        if version_of(db) != VERSION:  # a newer server has migrated the file while this process was running
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
                # execute would free only one page
                db.executescript(f"PRAGMA incremental_vacuum({_FREE_PAGES})")
                has_more = True
        finally:  # also on a full disk, where this may be the only thing that helps
            if _length(self._file.wal) != self._begun_wal or self._has_failed:
                self._checkpoint(db, now)
        return has_more

    def _checkpoint(self, db: sqlite3.Connection, now: datetime) -> None:
        """Write back everything that no reader needs. If that was the whole WAL, start a new one.

        After an error of the disk, changes are refused until everything is written back.
        """
        try:
            # PASSIVE waits for nobody, so requests go on during the long part
            _, frames, done = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if done < frames:  # a reader needs the rest, or another process is making a checkpoint
                return
            version = _version_of_others(db)
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, 1)", [NEEDS_WAL])
            try:
                # the rest is short; no reader needs the old WAL, so the new one may overwrite it
                was_busy, *_ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                # the first write into a WAL waits for the disk, so it is made here and not in the event loop
                db.execute("DELETE FROM meta WHERE name = ?", [NEEDS_WAL])
            if not was_busy:
                values = LAST_TIME, epoch_milliseconds(now)
                db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", values)
                length = _length(self._file.wal)
                # if another process has written meanwhile, its change is in this WAL and needs a checkpoint
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
            "storage-wal-long",
            length > _LONG_WAL,
            bytes=length,
            why="a program has been reading the file for a long time",
        )

    def _warn(self, event: str, is_so: bool, **fields: Any) -> None:
        """Log it once. Log it again only if it was not so in between."""
        if is_so and event not in self._warned:
            self._warned.add(event)
            log.warning(event, **fields)
        elif not is_so:
            self._warned.discard(event)


def remove_expired(
    db: sqlite3.Connection, now: datetime, wall: datetime, artifacts: Path | None = None
) -> bool:
    """Remove some expired messages and contents. Returns whether there are more.

    Files are removed before the transaction that removes their rows ends. A crash in between does no harm.
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
    """Return a number that changes when another connection changes the file."""
    version: int = db.execute("PRAGMA data_version").fetchone()[0]
    return version


def _length(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def least_space(file: StorageFile) -> tuple[Path, int, bool]:
    """Return which folder has less space left, that of the file or of the artifacts; how many bytes; and
    whether that is too little. It is not too little if the space is unknown.
    """
    free = {}
    for folder in (file.path.parent, file.artifacts):
        with suppress(OSError):
            free[folder] = shutil.disk_usage(folder).free
    folder = min(free, key=lambda one: free[one], default=file.path.parent)
    left = free.get(folder, _LOW_SPACE)
    return folder, left, left < _LOW_SPACE
