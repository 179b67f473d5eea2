"""Checks a file of embedded storage, and says in a sentence what is wrong with it."""

import errno
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from legacy_queue.adapters.embedded.schema import APPLICATION_ID, FIRST_VERSION
from legacy_queue.adapters.embedded.sqlite_connection import VERSION, error_code, version_of
from legacy_queue.ports.account import UnusableStorage
from legacy_queue.private_folder import NotOurs

FROM_BACKUP = "start from a backup with --data-dir"
INSTEAD = "use another --data-dir"
_CHECK_TIMEOUT = 0.5  # seconds for quick_check; of a large file only a part is checked in this time
_CHECK_INTERVAL = 10_000  # SQLite instructions between two looks at the time
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
_FOREIGN_NAMES = """SELECT count(*) FROM contents WHERE file IS NOT NULL
  AND (typeof(file) <> 'text' OR length(file) <> 32 OR file GLOB '*[^0-9a-f]*')"""
_UNWRITABLE = f"{{path}} cannot be opened or written: make the file and its folder writable, or {INSTEAD}"
_DAMAGED = f"{{path}} is damaged ({{error}}): {FROM_BACKUP}, or {INSTEAD}"
_SENTENCES = {
    sqlite3.SQLITE_READONLY: _UNWRITABLE,
    sqlite3.SQLITE_CANTOPEN: _UNWRITABLE,
    sqlite3.SQLITE_FULL: "{path} cannot be written because its disk is full: free at least 2 MB",
    sqlite3.SQLITE_IOERR: "{path} cannot be read or written ({error}): its disk is full or fails",
    sqlite3.SQLITE_BUSY: f"{{path}} is locked by another program: end that program, or {INSTEAD}",
    sqlite3.SQLITE_NOTADB: f"{{path}} is not a SQLite file: {FROM_BACKUP}, or {INSTEAD}",
}


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn errors of the file into UnusableStorage, with a sentence that says what to do."""
    try:
        yield
    except NotOurs as error:
        raise UnusableStorage(f"{error.filename} is not used: {error.strerror}; {INSTEAD}") from error
    except OSError as error:
        raise UnusableStorage(f"{path} cannot be written and read: {error.strerror}; {INSTEAD}") from error
    except sqlite3.Error as error:
        sentence = _SENTENCES.get(error_code(error), _DAMAGED)
        raise UnusableStorage(" ".join(sentence.format(path=path, error=error).split())) from error


def check_contents(connection: sqlite3.Connection, path: Path) -> None:
    """Raises UnusableStorage if another program made the file, and sqlite3.Error if it is damaged."""
    (kind,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if kind != APPLICATION_ID and (kind or tables):
        raise UnusableStorage(f"{path} is a file of another program: {INSTEAD}")
    if tables:
        _check_version(version_of(connection), path)
        signing_key(connection)
        _check_names(connection)
    end = time.monotonic() + _CHECK_TIMEOUT
    connection.set_progress_handler(lambda: time.monotonic() > end, _CHECK_INTERVAL)
    try:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:  # the time for the check is over
            raise
        found = "ok"
    connection.set_progress_handler(None, 0)
    if found != "ok":
        raise sqlite3.DatabaseError(found.rpartition("***")[2])


def _check_version(version: int, path: Path) -> None:
    """Raises UnusableStorage if this version can neither use nor migrate the tables."""
    if version < FIRST_VERSION:
        raise UnusableStorage(
            f"{path} was written before the first release of legacy-queue: let its tasks end with the "
            f"version that wrote it, then {INSTEAD}"
        )
    if version > VERSION:
        raise UnusableStorage(
            f"{path} was written by a newer version of legacy-queue: its tables have version {version}, and "
            f"this program knows at most {VERSION}. Use the newer version, or {INSTEAD}"
        )


def signing_key(connection: sqlite3.Connection) -> bytes:
    """Return the key in the file that signs URLs. Raises sqlite3.Error."""
    for (key,) in connection.execute("SELECT value FROM meta WHERE name = 'signing key'"):
        return bytes(key)
    raise sqlite3.DatabaseError("its signing key is missing")


def artifact_path(folder: Path, name: object) -> Path:
    """Return the path of a content's file. Raises FileNotFoundError for a name that this program does not
    make.

    The name comes from the storage, which may be a backup that somebody else has made.
    """
    if not isinstance(name, str) or not re.fullmatch("[0-9a-f]{32}", name):
        raise FileNotFoundError(
            errno.ENOENT, "expected 32 hex digits as the file name of an artifact", repr(name)
        )
    return folder / name


def _check_names(connection: sqlite3.Connection) -> None:
    """Raises sqlite3.Error if the file of an artifact could be outside of the folder for artifacts."""
    (foreign,) = connection.execute(_FOREIGN_NAMES).fetchone()
    if foreign:
        raise sqlite3.DatabaseError(f"the names of {foreign} artifact files do not consist of 32 hex digits")


def network_file_system(folder: Path, mountinfo: str) -> str | None:
    """Return the type of the folder's file system if it is on another machine. Source: proc(5), mountinfo."""
    longest = 0
    found = ""
    for line in mountinfo.splitlines():
        before, _, behind = line.partition(" - ")
        mounted = Path(before.split()[4].encode().decode("unicode_escape"))
        if folder.resolve().is_relative_to(mounted) and len(mounted.parts) >= longest:
            longest = len(mounted.parts)
            found = behind.split()[0]
    return found if found in _NETWORK else None
