"""Whether the files that a process writes are still the ones that the server has begun with.

SQLite opens its files by name, and not all at once: a process that begins later, or a thread of one, would
make a WAL or a shared memory anew that somebody has removed. Then two processes would write one file, and
neither would see the changes of the other. So the server remembers device and inode of the three files before
it forks, and each process looks before it opens them, and every second from then on.
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
    """The file, its WAL and its shared memory, as they are before any process has opened them."""

    def __init__(self, path: Path, wal: Path, shared_memory: Path) -> None:
        """Raises UnusableStorage."""
        self._paths = (path, wal, shared_memory)
        self.is_given_up = False
        with translated(path):
            for made in (wal, shared_memory):  # SQLite would make them when the first process opens the file
                os.close(private_opener(str(made), os.O_CREAT | os.O_RDWR))
        self._first = self._identities()

    def is_unchanged(self) -> bool:
        """Whether the files are those of the beginning; once they are not, never again."""
        if not self.is_given_up and self._identities() != self._first:
            self.give_up("storage-file-removed")
        return not self.is_given_up

    def give_up(self, event: str) -> None:
        """Log the event; this process changes the file no more."""
        log.error(event, path=str(self._paths[0]))
        self.is_given_up = True

    def _identities(self) -> list[FileIdentity]:
        return [identity(path) for path in self._paths]


def identity(path: Path) -> FileIdentity:
    """What a file keeps when it is renamed, and its successor of the same name does not have."""
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None
