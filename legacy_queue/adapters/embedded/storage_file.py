"""The file of embedded storage. It is created or checked before a server uses it.

A server locks ``storage.lock`` until its last process has ended, and writes ``SERVED`` into it when the file
exists. If a start finds ``SERVED`` but no file, it refuses to start with an empty one.

A start must not lose changes without an error. But SQLite does not notice if the WAL is missing or belongs to
another file. So a start reads two facts from the file itself before SQLite opens it with its WAL:

- ``NEEDS_WAL`` in ``meta`` means that the last changes are in the WAL. ``Maintenance`` writes this mark into
  the file when it starts a new WAL, and deletes it again in that WAL. If the WAL is missing, the file still
  has the mark.
- The file format in the header: a backup has the format of a file without a WAL. A WAL next to a backup is
  left over from the file that was there before, and SQLite would write it into the backup.
"""

import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

import structlog

from legacy_queue.adapters.embedded.file_checks import (
    FROM_BACKUP,
    INSTEAD,
    check_contents,
    network_file_system,
    signing_key,
    translated,
)
from legacy_queue.adapters.embedded.file_watch import FileIdentity, identity
from legacy_queue.adapters.embedded.sqlite_connection import (
    connect,
    create_tables,
    read_only,
)
from legacy_queue.adapters.embedded.wal import read_wal, readable_frames
from legacy_queue.ports.account import UnusableStorage
from legacy_queue.private_folder import (
    InUse,
    check_file,
    check_folder,
    lock_private,
    make_private,
    private_opener,
    read_private,
    tighten,
)

log = structlog.get_logger()

SERVED = b"served\n"  # in the lock when the file exists
NEEDS_WAL = "needs its wal"  # in meta
_BUSY_TIMEOUT = 5000  # milliseconds to wait while another program reads or writes
_MOUNTS = Path("/proc/self/mountinfo")
# the byte in the header with the read version. Source: sqlite.org/fileformat2.html, "File format version"
_READ_VERSION = 18
_WITHOUT_WAL = b"\x01"


class StorageFile:
    """The file ``<folder>/storage.sqlite`` with ``artifacts/`` and its server's ``storage.lock`` next to it.

    If ``storage.sqlite`` is a link, the lock is next to its target, because two links to one file are one
    storage.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._name = folder / "storage.sqlite"
        self.path = self._name.resolve()  # SQLite puts its other files next to the target
        self.wal, self.shared_memory, self._journal = (
            self.path.with_name(f"{self.path.name}-{kind}") for kind in ("wal", "shm", "journal")
        )
        self.artifacts = folder / "artifacts"
        self.lock_path = self.path.with_name("storage.lock")
        self._lock: int | None = None
        self._prepared: FileIdentity = None

    @property
    def is_missing(self) -> bool:
        """Whether the file is missing or empty. Raises OSError if that cannot be determined."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return not self.path.stat().st_size
        return True

    def require(self) -> None:
        """Raises UnusableStorage if the file is missing, lacks its WAL, or another user can change it."""
        with translated(self.path):
            if self.is_missing:
                raise UnusableStorage(
                    f"{self.path} does not exist: start `legacy-queue serve` with this --data-dir first"
                )
            self._check_owner()
            self._check_wal()

    def lock(self) -> list[str]:
        """Lock the file for this server until this process and its forks end. Raises UnusableStorage.

        Returns the names of other files that earlier servers left next to it.
        """
        with translated(self.path):
            make_private(self.folder)
            self._check_owner()
            left = [path.name for path in (self.wal, self.shared_memory) if path.exists()]
            with suppress(OSError):  # an empty folder may be a disk that is mounted for the first start
                has_artifacts = any(path.is_file() for path in self.artifacts.iterdir())
                left += [self.artifacts.name] if has_artifacts else []
            with suppress(OSError):
                left += [self.lock_path.name] if SERVED in read_private(self.lock_path) else []
            try:
                self._lock = lock_private(self.lock_path)  # never closed
            except InUse as holder:
                raise UnusableStorage(
                    f"{self.lock_path.parent} is in use by process {holder}: stop it, or choose another "
                    "--data-dir"
                ) from None
        return left

    def prepare(self) -> None:
        """Create the file, or check it. Raises UnusableStorage, and then leaves the file as it was."""
        mounts = _MOUNTS.read_text(errors="replace") if _MOUNTS.exists() else ""
        if kind := network_file_system(self.path.parent, mounts):
            raise UnusableStorage(
                f"{self.path} would be on a network file system ({kind}), where SQLite loses data: "
                "choose a --data-dir on a disk of this machine, or --storage azure for several machines"
            )
        with translated(self.path):
            self._check_owner()
            if not self.is_missing:
                self._check_wal()
                # If there is no WAL, read the file alone: otherwise even a reader would create a WAL, perhaps
                # for a file of another program. If there is one, read both: the file alone lacks the last
                # changes.
                has_wal = self.wal.exists()
                with closing(read_only(self.path, alone=not has_wal)) as connection:
                    check_contents(connection, self.path)
                    if has_wal:
                        self._say_what_was_dropped(connection)
            # SQLite gives its other files the same mode
            os.close(private_opener(str(self.path), os.O_CREAT | os.O_RDWR))
            tighten(self.path)
            with closing(connect(self.path, busy_timeout=_BUSY_TIMEOUT)) as connection:
                create_tables(connection)
                # closing it writes the WAL back and removes it, so the file needs no WAL then
                forget_wal(connection)
            make_private(self.artifacts)
            self._prepared = identity(self.path)
            if self._lock is not None:
                os.write(self._lock, SERVED)

    def signing_key(self) -> bytes:
        """Return the random key that signs URLs. It is made with the file. Raises UnusableStorage."""
        self.require()
        with translated(self.path), closing(read_only(self.path)) as connection:
            return signing_key(connection)

    def finish(self) -> None:
        """Write the WAL back when no process uses the file. Raises UnusableStorage, as on a full disk."""
        # SQLite opens files by name, so it would write into a file that somebody has just put there. The WAL
        # and the shared memory need no check: the last process has removed both.
        if identity(self.path) != self._prepared:
            raise UnusableStorage(
                f"{self.path} was removed or replaced while a server used it: {FROM_BACKUP}, or start with "
                "the file that is there now"
            )
        with translated(self.path):
            self._check_wal()
            with closing(connect(self.path, busy_timeout=_BUSY_TIMEOUT)) as connection:
                forget_wal(connection)
                # write something, so that a full disk is noticed even if nothing else is left to write
                connection.execute("INSERT OR REPLACE INTO meta VALUES ('ended', ?)", [time.time()])
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _check_owner(self) -> None:
        """Raises OSError if another user owns or can change one of the files or folders.

        Raises UnusableStorage if the file has a second name.
        """
        for folder in {self.folder, self.path.parent, self.artifacts}:
            with suppress(FileNotFoundError):
                check_folder(folder)
        for path in (self._name, self.wal, self.shared_memory, self._journal, self.lock_path):
            check_file(path)
        if not self.is_missing and self.path.stat().st_nlink > 1:
            raise UnusableStorage(
                f"{self.path} has a second name (a hard link), which another server may use: copy the file"
            )

    def _check_wal(self) -> None:
        """Raises UnusableStorage if the file's WAL is missing, or belongs to another file."""
        if self.wal.exists():
            with self.path.open("rb") as file:
                file.seek(_READ_VERSION)
                is_backup = file.read(1) == _WITHOUT_WAL
            if is_backup and self.wal.stat().st_size:
                raise UnusableStorage(
                    f"{self.wal} does not belong to the backup next to it: remove it and "
                    f"{self.shared_memory.name}"
                )
            return
        names: list[str] = []
        # another check reports a damaged file
        with suppress(sqlite3.Error), closing(read_only(self.path, alone=True)) as alone:
            names = [name for (name,) in alone.execute("SELECT name FROM meta")]
        if NEEDS_WAL in names:
            raise UnusableStorage(
                f"{self.wal} was removed with the last changes in it: {FROM_BACKUP}, or {INSTEAD}; to go on "
                "without these changes, create an empty file of that name"
            )

    def _say_what_was_dropped(self, connection: sqlite3.Connection) -> None:
        """Log it if SQLite cannot read the whole WAL that a killed server left.

        ``connection`` must have read something, because then the shared memory says what SQLite takes from
        the WAL.
        """
        (page_size,) = connection.execute("PRAGMA page_size").fetchone()
        wal = read_wal(self.wal, page_size)
        readable = readable_frames(self.shared_memory)
        if dropped := wal.dropped(readable):
            log.error(
                "storage-wal-damaged",
                path=str(self.wal),
                lost_changes=dropped,
                frames=len(wal.frames),
                readable_frames=readable,
                why=f"the last changes cannot be read and are lost: go on without them, or {FROM_BACKUP}",
            )


def forget_wal(connection: sqlite3.Connection) -> None:
    """Remove the mark that the file needs its WAL."""
    connection.execute("DELETE FROM meta WHERE name = ?", [NEEDS_WAL])
