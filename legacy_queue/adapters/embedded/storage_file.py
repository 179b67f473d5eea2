"""The file of embedded storage: where it is, who may use it, and made or checked before it is served.

A server locks ``storage.lock`` until its last process has ended. With the lock it says, by ``SERVED`` in it,
that a file was there: a start that finds this and no file refuses to begin with an empty one.

A start must not lose changes in silence, and SQLite says nothing if a WAL is missing, or is of another file.
So two facts are read in the file alone, before SQLite opens it:

- ``NEEDS_WAL`` in ``meta``: the last changes are in the WAL. ``Maintenance`` writes this into the file when
  it begins a new WAL, and deletes it in that WAL. Without the WAL it is still there.
- The file format in the header: a backup has that of a file without a WAL. A WAL beside it was left by the
  file that was there before, and SQLite would write it into the backup.
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

SERVED = b"served\n"  # in the lock, once the file was made
NEEDS_WAL = "needs its wal"  # in meta
_BUSY_TIMEOUT = 5000  # milliseconds, while another program reads or writes
_MOUNTS = Path("/proc/self/mountinfo")
_READ_VERSION = 18  # the byte of a file's header. Source: sqlite.org/fileformat2.html, "File format version"
_WITHOUT_WAL = b"\x01"


class StorageFile:
    """``<folder>/storage.sqlite``, and beside it ``artifacts/`` and ``storage.lock`` of its server.

    Where ``storage.sqlite`` is a link, the lock is beside its target: two links to one file are one storage.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._name = folder / "storage.sqlite"
        self.path = self._name.resolve()  # SQLite puts its other files beside it
        self.wal, self.shared_memory, self._journal = (
            self.path.with_name(f"{self.path.name}-{kind}") for kind in ("wal", "shm", "journal")
        )
        self.artifacts = folder / "artifacts"
        self.lock_path = self.path.with_name("storage.lock")
        self._lock: int | None = None
        self._prepared: FileIdentity = None

    @property
    def is_missing(self) -> bool:
        """Whether there is no file, or an empty one. Raises OSError where that cannot be seen."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return not self.path.stat().st_size
        return True

    def require(self) -> None:
        """Raises UnusableStorage if no server has made the file, if it lacks its WAL, or is not ours."""
        with translated(self.path):
            if self.is_missing:
                raise UnusableStorage(
                    f"there is no {self.path}: start `legacy-queue serve` with this --data-dir first"
                )
            self._check_owner()
            self._check_wal()

    def lock(self) -> list[str]:
        """Be the only server of this file until this process and its forks end; raises UnusableStorage.

        Returns the names of what earlier servers of a file have left beside it.
        """
        with translated(self.path):
            make_private(self.folder)
            self._check_owner()
            left = [path.name for path in (self.wal, self.shared_memory) if path.exists()]
            with suppress(OSError):  # an empty folder may be a disk that was mounted for the first start
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
        """Make the file or check it; raises UnusableStorage, and then the file is as it was."""
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
                # Without a WAL even a reader would make one, and change the file of another program; beside
                # one, the file alone would be read as it was before its last changes.
                has_wal = self.wal.exists()
                with closing(read_only(self.path, alone=not has_wal)) as connection:
                    check_contents(connection, self.path)
                    if has_wal:
                        self._say_what_was_dropped(connection)
            # SQLite gives its other files this mode
            os.close(private_opener(str(self.path), os.O_CREAT | os.O_RDWR))
            tighten(self.path)
            with closing(connect(self.path, busy_timeout=_BUSY_TIMEOUT)) as connection:
                create_tables(connection)
                # closed, it writes the WAL back and removes it: the file needs none then
                forget_wal(connection)
            make_private(self.artifacts)
            self._prepared = identity(self.path)
            if self._lock is not None:
                os.write(self._lock, SERVED)

    def signing_key(self) -> bytes:
        """The random key that signs URLs, as old as the file, which was prepared; raises UnusableStorage."""
        self.require()
        with translated(self.path), closing(read_only(self.path)) as connection:
            return signing_key(connection)

    def finish(self) -> None:
        """Write the WAL back, once no process serves the file; raises UnusableStorage, as on a full disk."""
        # SQLite opens by name: it would write into a file that somebody has just put there. The WAL and the
        # shared memory are no part of this: the last process that ended has removed both.
        if identity(self.path) != self._prepared:
            raise UnusableStorage(
                f"{self.path} was removed or replaced while it was served: {FROM_BACKUP}, or start "
                "what is there"
            )
        with translated(self.path):
            self._check_wal()
            with closing(connect(self.path, busy_timeout=_BUSY_TIMEOUT)) as connection:
                forget_wal(connection)
                # a full disk must be noticed also where there is nothing else to write
                connection.execute("INSERT OR REPLACE INTO meta VALUES ('ended', ?)", [time.time()])
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _check_owner(self) -> None:
        """Raises OSError."""
        for folder in {self.folder, self.path.parent, self.artifacts}:
            with suppress(FileNotFoundError):
                check_folder(folder)
        for path in (self._name, self.wal, self.shared_memory, self._journal, self.lock_path):
            check_file(path)
        if not self.is_missing and self.path.stat().st_nlink > 1:
            raise UnusableStorage(
                f"{self.path} has a second name (a hard link), under which another server may use it: copy it"
            )

    def _check_wal(self) -> None:
        """Raises UnusableStorage if the file was left without its WAL, or beside that of another file."""
        if self.wal.exists():
            with self.path.open("rb") as file:
                file.seek(_READ_VERSION)
                is_backup = file.read(1) == _WITHOUT_WAL
            if is_backup and self.wal.stat().st_size:
                raise UnusableStorage(
                    f"{self.wal} is of another file than the backup beside it: remove it, and "
                    f"{self.shared_memory.name}"
                )
            return
        names: list[str] = []
        # a damaged file has another sentence
        with suppress(sqlite3.Error), closing(read_only(self.path, alone=True)) as alone:
            names = [name for (name,) in alone.execute("SELECT name FROM meta")]
        if NEEDS_WAL in names:
            raise UnusableStorage(
                f"{self.wal} was removed with the last changes in it: {FROM_BACKUP}, or {INSTEAD}; to go on "
                "without these changes, make an empty file of that name"
            )

    def _say_what_was_dropped(self, connection: sqlite3.Connection) -> None:
        """Log it where SQLite cannot read all of the WAL that a killed server has left.

        ``connection`` has read: what SQLite takes from the WAL is in the shared memory.
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
                why=f"the last changes cannot be read, and are lost: go on without them, or {FROM_BACKUP}",
            )


def forget_wal(connection: sqlite3.Connection) -> None:
    """From now on the file does not say that it needs its WAL."""
    connection.execute("DELETE FROM meta WHERE name = ?", [NEEDS_WAL])
