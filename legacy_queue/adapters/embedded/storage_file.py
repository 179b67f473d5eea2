"""The file of embedded storage: locked, made or checked, and brought to this version before it is served."""

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import structlog

from legacy_queue.adapters.embedded.schema import APPLICATION_ID, VERSION
from legacy_queue.adapters.embedded.sqlite_connection import connect, create_tables
from legacy_queue.ports.account import UnusableStorage
from legacy_queue.private_folder import InUse, lock_private, tighten

log = structlog.get_logger()

_CHECK_TIMEOUT = 0.5  # seconds for quick_check: a larger file is checked in part
_CHECK_INTERVAL = 10_000  # instructions of SQLite between two looks at the time
_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = {
    "9p",
    "afs",
    "ceph",
    "cifs",
    "fuse.glusterfs",
    "fuse.sshfs",
    "lustre",
    "ncpfs",
    "nfs",
    "nfs4",
    "smb3",
}
_CLOCK_SKEW = 60  # seconds
LAST_TIME = "last time"  # of the queue, in meta
_UNWRITABLE = "{path} cannot be written: make it and its folder writable, or use another --data-dir"
_DAMAGED = "{path} is damaged ({error}): put a backup in its place, or use another --data-dir"
_SENTENCES = {
    sqlite3.SQLITE_READONLY: _UNWRITABLE,
    sqlite3.SQLITE_CANTOPEN: _UNWRITABLE,
    sqlite3.SQLITE_FULL: "{path} cannot be written: its disk is full, free 2 MB at least",
    sqlite3.SQLITE_IOERR: "{path} cannot be read or written ({error}): its disk is full, or fails",
    sqlite3.SQLITE_BUSY: "{path} is locked by another program: end that, or use another --data-dir",
    sqlite3.SQLITE_NOTADB: "{path} is no SQLite file: put a backup in its place, or use another --data-dir",
}


class StorageFile:
    """``<folder>/storage.sqlite``, and beside it ``artifacts/`` and ``storage.lock`` of its server."""

    def __init__(self, folder: Path) -> None:
        self.path = (folder / "storage.sqlite").resolve()  # SQLite puts its other files beside it
        self.artifacts, self._lock_path = folder / "artifacts", folder / "storage.lock"

    @property
    def is_missing(self) -> bool:
        """Whether there is no file, or an empty one."""
        with suppress(OSError):
            return not self.path.stat().st_size
        return True

    def require(self) -> None:
        """Raises UnusableStorage if no server has made the file."""
        if self.is_missing:
            raise UnusableStorage(
                f"there is no {self.path}: start `legacy-queue serve` with this --data-dir first"
            )

    def lock(self) -> None:
        """Be the only server of this file until this process and its forks end; raises UnusableStorage."""
        with self._translated():
            try:
                lock_private(self._lock_path)  # never closed
            except InUse as holder:
                raise UnusableStorage(
                    f"{self._lock_path.parent} is in use by process {holder}: stop it, or choose another "
                    "--data-dir"
                ) from None

    def prepare(self) -> None:
        """Make the file or check it, and bring it to this version; raises UnusableStorage."""
        mounts = _MOUNTS.read_text(errors="replace") if _MOUNTS.exists() else ""
        if kind := network_file_system(self.path.parent, mounts):
            raise UnusableStorage(
                f"{self.path} would be on a network file system ({kind}), where SQLite loses data: "
                "choose a --data-dir on a disk of this machine, or --storage azure for several machines"
            )
        with self._translated():
            # SQLite gives its other files this mode
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            tighten(self.path)
        with self._opened() as connection:
            self._check(connection)
            create_tables(connection)
            last = connection.execute("SELECT value FROM meta WHERE name = ?", [LAST_TIME]).fetchone()
            if last and last[0] / 1000 > time.time() + _CLOCK_SKEW:
                ahead = round(last[0] / 1000 - time.time())
                log.warning(
                    "storage-is-ahead", seconds=ahead, why="its clock was moved: new tasks come first"
                )

    def signing_key(self) -> bytes:
        """The random key that signs URLs, as old as the file; raises UnusableStorage."""
        self.require()
        with self._opened() as connection:
            (key,) = connection.execute("SELECT value FROM meta WHERE name = 'signing key'").fetchone()
            return bytes(key)

    def finish(self) -> None:
        """Write the WAL back, once no process serves the file; raises UnusableStorage, as on a full disk."""
        if self.is_missing:
            raise UnusableStorage(f"{self.path} was removed while it was served: put a backup in its place")
        with self._opened() as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('ended', ?)", [time.time()])
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def back_up(self, target: Path) -> None:
        """Copy the file to ``target`` and its artifacts beside that, while it is served.

        Neither may exist; what fails leaves neither. Raises UnusableStorage.
        """
        self.require()
        target = target.absolute()  # SQLite takes some names for other things
        folder = target.with_name(f"{target.name}-artifacts")
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            folder.mkdir(0o700)
        except OSError as error:
            raise UnusableStorage(f"{error.filename} cannot be made: {error.strerror}") from error
        try:
            self._copy_to(target, folder)
        except (OSError, sqlite3.Error) as error:
            target.unlink()
            shutil.rmtree(folder)
            raise UnusableStorage(f"{self.path} could not be copied to {target}: {error}") from error

    def _copy_to(self, target: Path, folder: Path) -> None:
        with closing(connect(self.path)) as source, closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
            files = copy.execute("SELECT file FROM contents WHERE file IS NOT NULL").fetchall()
        for (name,) in files:
            with suppress(FileNotFoundError):  # not written yet, or removed since
                shutil.copyfile(self.artifacts / name, folder / name)
                tighten(folder / name)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with self._translated(), closing(connect(self.path, busy_timeout=5000)) as connection:
            yield connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Errors of the file become UnusableStorage."""
        try:
            yield
        except OSError as error:
            raise UnusableStorage(
                f"{self.path} cannot be written and read: {error.strerror}; use another --data-dir"
            ) from error
        except (sqlite3.Error, TypeError) as error:  # TypeError: a row is missing
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            sentence = _SENTENCES.get(code, _DAMAGED)
            raise UnusableStorage(sentence.format(path=self.path, error=error)) from error

    def _check(self, connection: sqlite3.Connection) -> None:
        (kind,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if kind != APPLICATION_ID and (kind or tables):
            raise UnusableStorage(f"{self.path} is a file of another program: choose another --data-dir")
        if version not in (0, VERSION):
            raise UnusableStorage(
                f"{self.path} was written by another version of legacy-queue: use that, or another --data-dir"
            )
        end = time.monotonic() + _CHECK_TIMEOUT
        connection.set_progress_handler(lambda: time.monotonic() > end, _CHECK_INTERVAL)
        try:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:  # at the end of that time
                raise
            found = "ok"
        connection.set_progress_handler(None, 0)
        if found != "ok":
            raise sqlite3.DatabaseError(found)


def network_file_system(folder: Path, mountinfo: str) -> str | None:
    """The type of the folder's file system, if that is on another machine. Source: proc(5), mountinfo."""
    longest, found = 0, ""
    for line in mountinfo.splitlines():
        before, _, behind = line.partition(" - ")
        mounted = Path(before.split()[4].encode().decode("unicode_escape"))
        if folder.resolve().is_relative_to(mounted) and len(mounted.parts) >= longest:
            longest, found = len(mounted.parts), behind.split()[0]
    return found if found in _NETWORK else None
