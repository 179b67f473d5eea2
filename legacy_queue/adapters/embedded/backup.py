"""A backup is a data directory: a server starts from it, and there is nothing to restore.

It is made while the server goes on. SQLite copies the file as it was at one moment. Then follow the artifacts
that are named in the copy: a server keeps their files for ten minutes after it needs them no more.

What is half done must not be taken for a backup, whatever ends this: the copy gets its name last. Until then
the folder has the lock of a server that has begun, which this process holds. So a start there is refused:
while the copy is made since the folder is in use, and after a crash since its file is missing.
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

_PAGES = 1000  # copied between two calls of Progress


def back_up(
    source: StorageFile, folder: Path, beside: Sequence[str] = (), show: Progress = lambda *_: None
) -> None:
    """Make the folder, which must not exist, a data directory with the storage as it is now.

    ``beside`` are paths in the data directory of further files that a server needs; they may be missing. What
    fails leaves no folder. Raises UnusableStorage.
    """
    source.require()
    target = StorageFile(folder.absolute())  # SQLite takes some names for other things
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
                with suppress(FileNotFoundError):  # not written yet, or removed since
                    _copy_file(artifact_path(source.artifacts, name), target.artifacts / name)
            for name in beside:
                with suppress(FileNotFoundError):
                    _copy_file(source.folder / name, target.folder / name)
            new.rename(target.path)
            undo.pop_all()
            os.close(lock)
    except FileExistsError:
        raise UnusableStorage(f"{target.folder} exists: name a folder that does not") from None
    except (OSError, sqlite3.Error) as error:
        raise UnusableStorage(f"{source.folder} could not be copied to {target.folder}: {error}") from error


def _copy(source: Path, target: Path, show: Progress) -> set[str]:
    """Copy the file with its WAL into one file, which has no WAL; the names of its artifacts."""
    os.close(private_opener(str(target), os.O_CREAT | os.O_EXCL | os.O_RDWR))
    with closing(read_only(source)) as file, closing(sqlite3.connect(target, isolation_level=None)) as copy:
        file.execute("BEGIN")  # otherwise a change by the server between two steps begins the copy anew
        file.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        file.backup(copy, pages=_PAGES, progress=lambda _, left, total: show(total - left, total, "pages"))
        file.rollback()
        forget_wal(copy)  # the server may just have begun a new one
        copy.execute("PRAGMA journal_mode = DELETE").fetchall()  # so a start refuses a WAL of another file
        return {name for (name,) in copy.execute("SELECT file FROM contents WHERE file IS NOT NULL")}


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file, and no link; return once the copy is on the disk. Raises OSError."""
    with open(source, "rb", opener=private_opener) as file:
        target.parent.mkdir(0o700, exist_ok=True)
        with open(target, "xb", opener=private_opener) as copy:
            shutil.copyfileobj(file, copy)
            copy.flush()
            os.fsync(copy.fileno())
