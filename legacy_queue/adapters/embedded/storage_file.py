"""The file of embedded storage: locked, and made or checked before it is served; copied, and put back."""

import errno
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import structlog

from legacy_queue.adapters.embedded.schema import APPLICATION_ID, FIRST_VERSION
from legacy_queue.adapters.embedded.sqlite_connection import (
    VERSION,
    connect,
    create_tables,
    error_code,
    read_only,
    version_of,
)
from legacy_queue.adapters.embedded.wal import read_wal, readable_frames
from legacy_queue.ports import Progress
from legacy_queue.ports.account import UnusableStorage
from legacy_queue.private_folder import (
    InUse,
    NotOurs,
    check_file,
    check_folder,
    lock_private,
    make_private,
    private_opener,
    read_private,
    tighten,
)

log = structlog.get_logger()

_BUSY_TIMEOUT = 5000  # milliseconds, while another program reads or writes
_PAGES = 1000  # copied between two calls of Progress
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
_SERVED = b"served\n"  # in the lock, once the file was made
# in meta
NEEDS_WAL = "needs its wal"  # see Upkeep
_IS_BACKUP = "backup"  # nobody has written to this copy yet
_FOREIGN_NAMES = """SELECT count(*) FROM contents WHERE file IS NOT NULL
  AND (typeof(file) <> 'text' OR length(file) <> 32 OR file GLOB '*[^0-9a-f]*')"""
_RESTORE = "restore a backup with `legacy-queue restore FILE`"
_UNWRITABLE = "{path} cannot be opened or written: make it and its folder writable, or {instead}"
_DAMAGED = "{path} is damaged ({error}): {mend}"
_SENTENCES = {
    sqlite3.SQLITE_READONLY: _UNWRITABLE,
    sqlite3.SQLITE_CANTOPEN: _UNWRITABLE,
    sqlite3.SQLITE_FULL: "{path} cannot be written: its disk is full, free 2 MB at least",
    sqlite3.SQLITE_IOERR: "{path} cannot be read or written ({error}): its disk is full, or fails",
    sqlite3.SQLITE_BUSY: "{path} is locked by another program: end that, or {instead}",
    sqlite3.SQLITE_NOTADB: "{path} is no SQLite file: {mend}",
}

Identity = tuple[int, int] | None  # device and inode


class StorageFile:
    """``<folder>/storage.sqlite``, and beside it ``artifacts/`` and ``storage.lock`` of its server.

    Where ``storage.sqlite`` is a link, the lock is beside its target: two links to one file are one storage.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = folder / "storage.sqlite"
        self.path = self._name.resolve()  # SQLite puts its other files beside it
        self.wal, self._shm, self._journal = (
            self.path.with_name(f"{self.path.name}-{kind}") for kind in ("wal", "shm", "journal")
        )
        self.artifacts = folder / "artifacts"
        self._lock_path = self.path.with_name("storage.lock")
        self._lock: int | None = None
        self._prepared: Identity = None
        self._watched: list[Identity] = []
        self.is_given_up = False

    @property
    def is_missing(self) -> bool:
        """Whether there is no file, or an empty one. Raises OSError where that cannot be seen."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return not self.path.stat().st_size
        return True

    def require(self) -> None:
        """Raises UnusableStorage if no server has made the file, if it lacks its WAL, or is not ours."""
        with self._translated():
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
        with self._translated():
            make_private(self._folder)
            self._check_owner()
            left = [path.name for path in (self.wal, self._shm) if path.exists()]
            with suppress(OSError):  # an empty folder may be a disk that was mounted for the first start
                has_artifacts = any(path.is_file() for path in self.artifacts.iterdir())
                left += [self.artifacts.name] if has_artifacts else []
            with suppress(OSError):
                left += [self._lock_path.name] if _SERVED in read_private(self._lock_path) else []
            try:
                self._lock = lock_private(self._lock_path)  # never closed
            except InUse as holder:
                raise UnusableStorage(
                    f"{self._lock_path.parent} is in use by process {holder}: stop it, or choose another "
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
        with self._translated():
            self._check_owner()
            if not self.is_missing:
                self._check_wal()
                # Without a WAL even a reader would make one, and change the file of another program; beside
                # one, the file alone would be read as it was before its last changes.
                has_wal = self.wal.exists()
                with closing(read_only(self.path, alone=not has_wal)) as connection:
                    self._check(connection)
                    if has_wal:
                        self._say_what_was_dropped(connection)
            # SQLite gives its other files this mode
            os.close(private_opener(str(self.path), os.O_CREAT | os.O_RDWR))
            tighten(self.path)
            with closing(connect(self.path, busy_timeout=_BUSY_TIMEOUT)) as connection:
                create_tables(connection)
                # closed, it writes the WAL back and removes it: the file needs none then
                _begin(connection)
            make_private(self.artifacts)
            self._prepared = _identity(self.path)
            if self._lock is not None:
                os.write(self._lock, _SERVED)

    def signing_key(self) -> bytes:
        """The random key that signs URLs, as old as the file; raises UnusableStorage."""
        self.require()
        with self._translated(), closing(read_only(self.path)) as connection:
            version = version_of(connection)
            _check_version(version, self.path, _instead(None))
            if version < VERSION:
                raise UnusableStorage(
                    f"{self.path} is of an earlier version of legacy-queue: start `legacy-queue serve` of "
                    "this one first, which brings the file forward"
                )
            return _signing_key(connection)

    def watch(self) -> None:
        """Remember which file, WAL and shared memory these are, before any process has opened them.

        A process that finds others must not write: it would not see the changes of those before it. Raises
        UnusableStorage.
        """
        with self._translated():
            for path in (self.wal, self._shm):  # SQLite would make them when the first process opens the file
                os.close(private_opener(str(path), os.O_CREAT | os.O_RDWR))
        self._watched = self._identities()

    def look(self) -> bool:
        """Whether file, WAL and shared memory are those of ``watch``; once they are not, never again."""
        if not self.is_given_up and self._identities() != self._watched:
            self.give_up("storage-file-removed")
        return not self.is_given_up

    def give_up(self, event: str) -> None:
        """Log the event; this process changes the file no more."""
        log.error(event, path=str(self.path))
        self.is_given_up = True

    def _identities(self) -> list[Identity]:
        return [_identity(path) for path in (self.path, self.wal, self._shm)]

    def finish(self) -> None:
        """Write the WAL back, once no process serves the file; raises UnusableStorage, as on a full disk."""
        # SQLite opens by name: it would write into a backup that somebody has just put there. The WAL and the
        # shared memory are no part of this: the last process that ended has removed both.
        if _identity(self.path) != self._prepared:
            raise UnusableStorage(
                f"{self.path} was removed or replaced while it was served: {_RESTORE}, or start what is there"
            )
        with self._translated():
            self._check_wal()
            with closing(connect(self.path, busy_timeout=_BUSY_TIMEOUT)) as connection:
                _begin(connection)
                # a full disk must be noticed also where there is nothing else to write
                connection.execute("INSERT OR REPLACE INTO meta VALUES ('ended', ?)", [time.time()])
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def back_up(self, target: Path, show: Progress = lambda *_: None) -> None:
        """Copy the file to ``target`` and its artifacts beside that, while it is served.

        Neither may exist; what fails leaves neither. Raises UnusableStorage.
        """
        self.require()
        target = target.absolute()  # SQLite takes some names for other things
        folder = artifacts_of(target)
        with ExitStack() as undo:
            try:
                os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
                undo.callback(target.unlink)
                folder.mkdir(0o700)
                undo.callback(shutil.rmtree, folder)
            except OSError as error:
                raise UnusableStorage(f"{error.filename} cannot be made: {error.strerror}") from error
            with _copying(self.path, target), closing(read_only(self.path)) as file:
                _copy_artifacts(_copy(file, target, show), self.artifacts, folder, show)
            undo.pop_all()

    def restore(self, source: Path, show: Progress = lambda *_: None) -> int:
        """Put a backup, or this file as it is, in the place of the file and its WAL; and its artifacts.

        Returns how many artifacts are missing. Raises UnusableStorage, and then the file is as it was.
        """
        with self._translated(source):
            _check_backup(source)
        self.lock()
        source = source.resolve()
        alone = not _wal_of(source).exists()
        new = self.path.with_name(f"{self.path.name}.new")
        with (
            self._translated(source),
            closing(read_only(source, alone=alone)) as file,
            ExitStack() as undo,
        ):
            if not version_of(file):
                raise UnusableStorage(f"{source} is no backup: name another")
            self._check(file, source)
            undo.callback(new.unlink, missing_ok=True)
            with _copying(source, self.path):
                new.unlink(missing_ok=True)
                os.close(private_opener(str(new), os.O_CREAT | os.O_EXCL | os.O_RDWR))
                names = _copy(file, new, show)
                if not self.artifacts.exists():  # of an earlier start, a later one would say
                    undo.callback(shutil.rmtree, self.artifacts, ignore_errors=True)
                make_private(self.artifacts)
                _copy_artifacts(names - _names(self.artifacts), artifacts_of(source), self.artifacts, show)
                # A crash behind this line leaves the new file beside the WAL of the old one, which SQLite
                # would take for its own: by the mark of a backup a start refuses that.
                new.replace(self.path)
                undo.pop_all()
                for path in (self.wal, self._shm, self._journal):
                    path.unlink(missing_ok=True)
        found = _names(self.artifacts)
        for name in found - names:
            with suppress(OSError):
                (self.artifacts / name).unlink()
        return len(names - found)

    @contextmanager
    def _translated(self, path: Path | None = None) -> Iterator[None]:
        """Errors of the file, or of the backup that is restored, become UnusableStorage."""
        instead = _instead(path)
        mend = instead if path else f"{_RESTORE}, or {instead}"
        path = path or self.path
        try:
            yield
        except NotOurs as error:
            raise UnusableStorage(f"{error.filename} is not used: {error.strerror}; {instead}") from error
        except OSError as error:
            raise UnusableStorage(
                f"{path} cannot be written and read: {error.strerror}; {instead}"
            ) from error
        except sqlite3.Error as error:
            sentence = _SENTENCES.get(error_code(error), _DAMAGED)
            said = sentence.format(path=path, error=error, instead=instead, mend=mend)
            raise UnusableStorage(" ".join(said.split())) from error

    def _check_owner(self) -> None:
        """Raises OSError."""
        for folder in {self._folder, self.path.parent, self.artifacts}:
            with suppress(FileNotFoundError):
                check_folder(folder)
        for path in (self._name, self.wal, self._shm, self._journal, self._lock_path):
            check_file(path)
        if not self.is_missing and self.path.stat().st_nlink > 1:
            raise UnusableStorage(
                f"{self.path} has a second name (a hard link), under which another server may use it: copy it"
            )

    def _check_wal(self) -> None:
        """Raises UnusableStorage if the file was left without its WAL, or beside that of another file."""
        names: list[str] = []
        # The marks are those of the file alone: in the WAL, the first change has taken them back. An error is
        # that of a checkpoint that a kill has cut off: then the WAL is there.
        with suppress(sqlite3.Error), closing(read_only(self.path, alone=True)) as file:
            names = [name for (name,) in file.execute("SELECT name FROM meta")]
        if not self.wal.exists() and NEEDS_WAL in names:
            raise UnusableStorage(
                f"{self.wal} was removed with the last changes in it: {_RESTORE}, or begin anew with another "
                f"--data-dir; `legacy-queue restore {self.path}` goes on without them"
            )
        if _IS_BACKUP in names and self.wal.exists() and self.wal.stat().st_size:
            raise UnusableStorage(f"{self.wal} is of another file than the backup beside it: {_RESTORE}")

    def _say_what_was_dropped(self, connection: sqlite3.Connection) -> None:
        """Log it where SQLite cannot read all of the WAL that a killed server has left.

        ``connection`` has read: what SQLite takes from the WAL is in the shared memory.
        """
        (page_size,) = connection.execute("PRAGMA page_size").fetchone()
        wal = read_wal(self.wal, page_size)
        readable = readable_frames(self._shm)
        if dropped := wal.dropped(readable):
            log.error(
                "storage-wal-damaged",
                path=str(self.wal),
                lost_changes=dropped,
                frames=len(wal.frames),
                readable_frames=readable,
                why=f"the last changes cannot be read, and are lost: go on without them, or {_RESTORE}",
            )

    def _check(self, connection: sqlite3.Connection, path: Path | None = None) -> None:
        instead = _instead(path)
        path = path or self.path
        (kind,) = connection.execute("PRAGMA application_id").fetchone()
        version = version_of(connection)
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if kind != APPLICATION_ID and (kind or tables):
            raise UnusableStorage(f"{path} is a file of another program: {instead}")
        if tables:
            _check_version(version, path, instead)
            _signing_key(connection)
            _check_names(connection)
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
            raise sqlite3.DatabaseError(found.rpartition("***")[2])


def _instead(source: Path | None) -> str:
    """What to use instead of the file, or of the backup ``source``."""
    return "name another backup" if source else "use another --data-dir"


def _signing_key(connection: sqlite3.Connection) -> bytes:
    """Raises sqlite3.Error."""
    for (key,) in connection.execute("SELECT value FROM meta WHERE name = 'signing key'"):
        return bytes(key)
    raise sqlite3.DatabaseError("its signing key is missing")


def _check_names(connection: sqlite3.Connection) -> None:
    """Raises sqlite3.Error if the file of an artifact would be outside of the folder for artifacts."""
    (foreign,) = connection.execute(_FOREIGN_NAMES).fetchone()
    if foreign:
        raise sqlite3.DatabaseError(f"{foreign} files of artifacts are not named by 32 hex digits")


def _check_version(version: int, path: Path, instead: str) -> None:
    """Raises UnusableStorage for tables that can be neither used nor brought forward."""
    if version < FIRST_VERSION:
        raise UnusableStorage(
            f"{path} was written before the first release of legacy-queue: let its tasks end with the "
            f"version that wrote it, and {instead}"
        )
    if version > VERSION:
        raise UnusableStorage(
            f"{path} was written by a newer version of legacy-queue: its tables have version {version}, and "
            f"this program knows {VERSION} at most. Use that version, or {instead}"
        )


def artifact_path(folder: Path, name: object) -> Path:
    """The file of a content in that folder; raises FileNotFoundError for any other name than ours.

    The name comes from the storage, which may be a backup that somebody else has made.
    """
    if not isinstance(name, str) or not re.fullmatch("[0-9a-f]{32}", name):
        raise FileNotFoundError(errno.ENOENT, "the file of an artifact has 32 hex digits", repr(name))
    return folder / name


def artifacts_of(backup: Path) -> Path:
    """The folder with the artifacts of a backup."""
    return backup.with_name(f"{backup.name}-artifacts")


def _begin(connection: sqlite3.Connection) -> None:
    """What the file said of its WAL holds no more."""
    connection.execute("DELETE FROM meta WHERE name IN (?, ?)", [NEEDS_WAL, _IS_BACKUP])


def _copy(file: sqlite3.Connection, target: Path, show: Progress) -> set[str]:
    """Copy the file with its WAL to an empty file, a backup; the names of its artifacts."""
    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        file.execute("BEGIN")  # otherwise a change by the server between two steps begins the copy anew
        file.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        file.backup(copy, pages=_PAGES, progress=lambda _, left, total: show(total - left, total, "pages"))
        file.rollback()
        _begin(copy)
        copy.execute("INSERT INTO meta VALUES (?, 1)", [_IS_BACKUP])
        return {name for (name,) in copy.execute("SELECT file FROM contents WHERE file IS NOT NULL")}


def _check_backup(path: Path) -> None:
    """Raises OSError for what another user may have written, and for what is no file."""
    for file in (path, _wal_of(path.resolve())):
        check_file(file)
    with suppress(FileNotFoundError):
        check_folder(artifacts_of(path.resolve()))


def _wal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


@contextmanager
def _copying(source: Path, target: Path) -> Iterator[None]:
    """What fails becomes UnusableStorage."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise UnusableStorage(f"{source} could not be copied to {target}: {error}") from error


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _copy_artifacts(names: set[str], source: Path, target: Path, show: Progress) -> None:
    for done, name in enumerate(names):
        show(done, len(names), "artifacts")
        with suppress(FileNotFoundError):  # not written yet, or removed since
            path = artifact_path(source, name)
            if path.is_symlink():  # to a file of any kind
                raise OSError(errno.ELOOP, "it is a link", str(path))
            shutil.copyfile(path, target / name)
            tighten(target / name)


def _identity(path: Path) -> Identity:
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


def network_file_system(folder: Path, mountinfo: str) -> str | None:
    """The type of the folder's file system, if that is on another machine. Source: proc(5), mountinfo."""
    longest = 0
    found = ""
    for line in mountinfo.splitlines():
        before, _, behind = line.partition(" - ")
        mounted = Path(before.split()[4].encode().decode("unicode_escape"))
        if folder.resolve().is_relative_to(mounted) and len(mounted.parts) >= longest:
            longest = len(mounted.parts)
            found = behind.split()[0]
    return found if found in _NETWORK else None
