"""Watches whether the storage files are still those that the server started with.

SQLite opens its files by name, and not all at once. If somebody has removed the WAL or the shared memory, a
process or a thread that starts later would create it again. Then two processes would write one file without
seeing each other's changes. So the server remembers device and inode of the three files before it forks. Each
process compares them before it opens the files, and every second after that.
"""

import os
from contextlib import suppress
from pathlib import Path

import structlog

from legacy_queue.adapters.embedded.file_checks import translated
from legacy_queue.private_folder import private_opener

log = structlog.get_logger()

FileIdentity = tuple[int, int] | None  # device and inode; None for a missing file


class FileWatch:
    """The identities of the file, its WAL and its shared memory, before any process has opened them."""

    def __init__(self, path: Path, wal: Path, shared_memory: Path) -> None:
        """Raises UnusableStorage."""
        self._paths = (path, wal, shared_memory)
        self.is_given_up = False
        with translated(path):
            # SQLite would create them only when the first process opens the file
            for made in (wal, shared_memory):
                os.close(private_opener(str(made), os.O_CREAT | os.O_RDWR))
        self._first = self._identities()

    def is_unchanged(self) -> bool:
        """Return whether the files are still the same. Once they were not, this is always False."""
        if not self.is_given_up and self._identities() != self._first:
            self.give_up("storage-file-removed")
        return not self.is_given_up

    def give_up(self, event: str) -> None:
        """Log the event. After this, this process never changes the file again."""
        log.error(event, path=str(self._paths[0]))
        self.is_given_up = True

    def _identities(self) -> list[FileIdentity]:
        return [identity(path) for path in self._paths]


def identity(path: Path) -> FileIdentity:
    """Return what identifies a file: a rename keeps it, and a new file of that name has another."""
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None
