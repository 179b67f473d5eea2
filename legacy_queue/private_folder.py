"""Private folders and files, which only their owner may read. A file that others may have written is refused.

Others may write into a folder that belongs to root, such as an empty volume of a container, or that has the
sticky bit, such as /tmp. It can be used: each file in it must then be ours.
"""

import errno
import fcntl
import os
import secrets
import stat
import time
from contextlib import suppress
from pathlib import Path

UMASK = stat.S_IRWXG | stat.S_IRWXO  # removes all permissions of others
_LOCK_INTERVAL = 0.02  # seconds between two attempts
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class InUse(Exception):
    """Another process holds the lock. The message is the id of that process."""


class NotOurs(PermissionError):
    """Another user may have written the file, or may write into the folder."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(errno.EPERM, why, str(path))


def make_private(folder: Path) -> bool:
    """Create the folder and its missing parents with mode 0700, or give an existing folder this mode.

    Returns True if others may write into it nevertheless, because it belongs to root or has the sticky bit.
    Raises OSError, and NotOurs as ``check_folder`` does.
    """
    _refuse_links(folder)
    folder = folder.resolve()
    for path in reversed([folder, *folder.parents]):
        if not path.is_dir():
            path.mkdir(0o700, exist_ok=True)
    tighten(folder)
    check_folder(folder)
    return bool(folder.stat().st_mode & _OTHERS_WRITE)


def check_folder(folder: Path) -> None:
    """Raises NotOurs if another user owns the folder or a link to it, or may write into it. Raises OSError.

    A folder of root passes. So does one in which users cannot replace each other's files (the sticky bit).
    """
    _refuse_links(folder)
    status = folder.stat()
    if status.st_uid not in (0, os.geteuid()):
        raise NotOurs(folder, "it belongs to another user")
    if status.st_uid and status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
        raise NotOurs(folder, "other users may write into it: run chmod go-w")


def check_file(path: Path) -> None:
    """Raises NotOurs if others own or may write the file, or own a link to it. A missing file passes."""
    with suppress(FileNotFoundError):
        if path.is_symlink() and path.lstat().st_uid != os.geteuid():
            raise NotOurs(path, "it is a link of another user")
        _check(path, path.stat())


def tighten(path: Path) -> None:
    """Remove all permissions of others, except from a link, and from what is not ours or is sticky."""
    with suppress(FileNotFoundError):
        status = path.lstat()
        is_ours = status.st_uid == os.geteuid() and not status.st_mode & stat.S_ISVTX
        if is_ours and not stat.S_ISLNK(status.st_mode) and status.st_mode & UMASK:
            path.chmod(stat.S_IMODE(status.st_mode) & ~UMASK)


def private_opener(path: str, flags: int) -> int:
    """An opener for ``open``: a new file gets mode 0600, and a link is refused."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def read_private(path: Path) -> bytes:
    """The content of the file. Raises NotOurs as ``check_file`` does and for any link, and OSError."""
    if path.is_symlink():
        raise NotOurs(path, "it is a link")
    # without NONBLOCK, a pipe would block
    with open(private_opener(str(path), os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        _check(path, os.fstat(file.fileno()))
        return file.read()


def write_private(path: Path, text: str) -> None:
    """Replace the file, or create it, with mode 0600. Raises OSError."""
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        with open(new, "x", opener=private_opener) as file:
            file.write(text)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def lock_private(path: Path, timeout: float = 0) -> int:
    """Lock the file and return its descriptor. The lock lasts as long as any process has the descriptor open.

    Makes the folder of the file private. Waits up to ``timeout`` seconds for another process, then raises
    InUse. Raises OSError. The package filelock would not do: its lock ends with the process that took it,
    while the processes that this one has forked still serve the files.
    """
    make_private(path.parent)
    lock = private_opener(str(path), os.O_CREAT | os.O_RDWR)
    end = time.monotonic() + timeout
    try:
        _check(path, os.fstat(lock))
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise InUse(os.read(lock, 32).decode(errors="replace").split("\n")[0]) from None
            time.sleep(_LOCK_INTERVAL)
    except BaseException:
        os.close(lock)
        raise
    os.truncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    return lock


def _check(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if status.st_uid != os.geteuid():
        raise NotOurs(path, "it belongs to another user")
    if status.st_mode & _OTHERS_WRITE:
        raise NotOurs(path, "other users may write to it: run chmod go-w")


def _refuse_links(folder: Path) -> None:
    path = folder.absolute()
    for link in filter(Path.is_symlink, (path, *path.parents)):
        if link.lstat().st_uid not in (0, os.geteuid()):
            raise NotOurs(link, "it is a link of another user")
