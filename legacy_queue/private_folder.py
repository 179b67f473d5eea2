"""Private folders and files: only their owner may read them.

Files of another user, and folders in which every user may write, such as /tmp, stay as they are.
"""

import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from filelock import lock_descriptor

UMASK = stat.S_IRWXG | stat.S_IRWXO  # takes all permissions of others
_LOCK_INTERVAL = 0.02  # seconds between two attempts


class InUse(Exception):
    """Another process holds the lock; the message is its id."""


def make_private(folder: Path) -> None:
    """Create the folder and its missing parents with mode 0700; an existing folder gets that mode.

    Raises OSError.
    """
    folder = folder.resolve()
    for path in reversed([folder, *folder.parents]):
        if not path.is_dir():
            path.mkdir(0o700, exist_ok=True)
    tighten(folder)


def tighten(path: Path) -> None:
    """Take the permissions of others from a file or folder; ignores links and missing files."""
    with suppress(FileNotFoundError):
        status = path.lstat()
        is_ours = status.st_uid == os.geteuid() and not status.st_mode & stat.S_ISVTX
        if is_ours and not stat.S_ISLNK(status.st_mode) and status.st_mode & UMASK:
            path.chmod(stat.S_IMODE(status.st_mode) & ~UMASK)


def private_opener(path: str, flags: int) -> int:
    """For ``open``: a new file has mode 0600."""
    return os.open(path, flags, 0o600)


def write_private(path: Path, text: str) -> None:
    """Write a file; a new file has mode 0600."""
    with open(path, "w", opener=private_opener) as file:
        file.write(text)


def lock_private(path: Path, timeout: float = 0) -> int:
    """The descriptor of the file, locked as long as any process has it open. Makes its folder private.

    Waits ``timeout`` seconds for another process. Raises InUse, OSError.
    """
    make_private(path.parent)
    lock = private_opener(str(path), os.O_CREAT | os.O_RDWR)
    end = time.monotonic() + timeout
    while not lock_descriptor(lock, blocking=False):
        if time.monotonic() > end:
            holder = os.read(lock, 32).decode(errors="replace").strip()
            os.close(lock)
            raise InUse(holder)
        time.sleep(_LOCK_INTERVAL)
    os.truncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    return lock
