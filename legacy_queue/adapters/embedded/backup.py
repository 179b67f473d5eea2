"""Makes a backup. It is a data directory that a server can start from, so there is nothing to restore.

The server keeps running meanwhile. SQLite copies the file as it was at one moment. After that, this module
copies the artifacts that the copy names. They still exist, because a server keeps files for ten minutes after
it stops needing them.

If the copy is interrupted, nobody must mistake the rest for a backup. So the copied file gets its final name
last. Until then, this process holds the folder's lock, in which it has noted that a server started there. So
a server refuses to start there: while the copy is made, because the folder is in use; after a crash, because
its file is missing.
"""

import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from legacy_queue.adapters.embedded.file_checks import artifact_path
from legacy_queue.adapters.embedded.sqlite_connection import read_only
from legacy_queue.adapters.embedded.storage_file import SERVED, StorageFile, forget_wal
from legacy_queue.ports import Progress
from legacy_queue.ports.account import UnusableStorage
from legacy_queue.private_folder import lock_private, private_opener

_PAGES = 1000  # how many are copied between two calls of Progress


def back_up(
    source: StorageFile, folder: Path, beside: Sequence[str] = (), show: Progress = lambda *_: None
) -> None:
    """Make a data directory with the storage as it is now. ``folder`` must not exist yet.

    ``beside`` are the paths, in the data directory, of other files that a server needs. They may be missing.
    If the copy fails, the folder is removed. Raises UnusableStorage.
    """
    source.require()
    target = StorageFile(folder.absolute())  # SQLite gives some relative names a special meaning
    try:
        with ExitStack() as undo:
            target.folder.mkdir(0o700)
            undo.callback(shutil.rmtree, target.folder)
            lock = lock_private(target.lock_path)
            undo.callback(os.close, lock)
            os.write(lock, SERVED)
            new = target.path.with_name(f"{target.path.name}.new")
            names = _copy(source.path, new, show)
            target.artifacts.mkdir(0o700)
            for done, name in enumerate(names):
                show(done, len(names), "artifacts")
                with suppress(FileNotFoundError):  # the file is not written yet, or was removed meanwhile
                    _copy_file(artifact_path(source.artifacts, name), target.artifacts / name)
            for name in beside:
                with suppress(FileNotFoundError):
                    _copy_file(source.folder / name, target.folder / name)
            new.rename(target.path)
            undo.pop_all()
            os.close(lock)
    except FileExistsError:
        raise UnusableStorage(f"{target.folder} exists: expected the name of a new folder") from None
    except (OSError, sqlite3.Error) as error:
        raise UnusableStorage(f"{source.folder} could not be copied to {target.folder}: {error}") from error


def _copy(source: Path, target: Path, show: Progress) -> set[str]:
    """Copy the file and its WAL into one file without a WAL. Returns the names of its artifacts."""
    os.close(private_opener(str(target), os.O_CREAT | os.O_EXCL | os.O_RDWR))
    with closing(read_only(source)) as file, closing(sqlite3.connect(target, isolation_level=None)) as copy:
        # otherwise SQLite starts the copy again if the server changes the file meanwhile
        file.execute("BEGIN")
        file.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        file.backup(copy, pages=_PAGES, progress=lambda _, left, total: show(total - left, total, "pages"))
        file.rollback()
        forget_wal(copy)  # the server may just have started a new WAL
        # so that a start refuses the WAL of another file
        copy.execute("PRAGMA journal_mode = DELETE").fetchall()
        return {name for (name,) in copy.execute("SELECT file FROM contents WHERE file IS NOT NULL")}


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file, but not a link. Return when the copy is on the disk. Raises OSError."""
    with open(source, "rb", opener=private_opener) as file:
        target.parent.mkdir(0o700, exist_ok=True)
        with open(target, "xb", opener=private_opener) as copy:
            shutil.copyfileobj(file, copy)
            copy.flush()
            os.fsync(copy.fileno())
