"""Folders and files for their owner alone: what a server keeps, others have no reason to read.

What belongs to another user, and a folder that all may write to, such as /tmp, stays as it is.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

UMASK = stat.S_IRWXG | stat.S_IRWXO  # what others may do; of a process that writes there


def make_private(folder: Path) -> None:
    """Make the folder, and parents of it that are missing, with mode 0700; an existing folder gets that mode.

    Raises OSError.
    """
    folder = folder.resolve()
    for path in reversed([folder, *folder.parents]):
        if not path.is_dir():
            path.mkdir(0o700, exist_ok=True)
    tighten(folder)


def tighten(path: Path) -> None:
    """Take a file or folder from everybody but its owner; a link, and what is gone, is left alone."""
    with suppress(FileNotFoundError):
        status = path.lstat()
        is_ours = status.st_uid == os.geteuid() and not status.st_mode & stat.S_ISVTX
        if is_ours and not stat.S_ISLNK(status.st_mode) and status.st_mode & UMASK:
            path.chmod(stat.S_IMODE(status.st_mode) & ~UMASK)


def tighten_all(folder: Path) -> None:
    """Take all that is in the folder from everybody but its owner: an earlier version left it open."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            tighten(Path(parent, name))


def private_opener(path: str, flags: int) -> int:
    """For ``open``: a file that is made has mode 0600."""
    return os.open(path, flags, 0o600)


def write_private(path: Path, text: str) -> None:
    """Write a file that, if it is new, has mode 0600."""
    with open(path, "w", opener=private_opener) as file:
        file.write(text)
