"""Private folders and files: only their owner may read them. What others may have written is refused.

A folder of root's in which others may write, such as /tmp or a container's empty volume, can be used: each
file in it has to be ours.
"""

import errno
import fcntl
import os
import secrets
import stat
import time
from contextlib import suppress
from pathlib import Path

UMASK = stat.S_IRWXG | stat.S_IRWXO  # takes all permissions of others
_LOCK_INTERVAL = 0.02  # seconds between two attempts
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class InUse(Exception):
    """Another process holds the lock; the message is its id."""


class NotOurs(PermissionError):
    """Another user may have written the file, or may write into the folder."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(errno.EPERM, why, str(path))


def make_private(folder: Path) -> bool:
    """Create the folder and its missing parents with mode 0700; an existing folder gets that mode.

    Returns whether others may write into it all the same: it is root's. Raises OSError, and NotOurs as
    ``check_folder`` does.
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
    """Raises NotOurs for a folder of another user, a way to it by their link, or one open to them.

    A folder of root's passes, and one where users cannot replace each other's files. Raises OSError.
    """
    _refuse_links(folder)
    status = folder.stat()
    if status.st_uid not in (0, os.geteuid()):
        raise NotOurs(folder, "it belongs to another user")
    if status.st_uid and status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
        raise NotOurs(folder, "others may write into it, until chmod go-w")


def check_file(path: Path) -> None:
    """Raises NotOurs if the file, or a link to it, is another user's or open to others. It may be missing."""
    with suppress(FileNotFoundError):
        if path.is_symlink() and path.lstat().st_uid != os.geteuid():
            raise NotOurs(path, "it is another user's link")
        _check(path, path.stat())


def tighten(path: Path) -> None:
    """Take the permissions of others from a file or folder; ignores links and missing files."""
    with suppress(FileNotFoundError):
        status = path.lstat()
        is_ours = status.st_uid == os.geteuid() and not status.st_mode & stat.S_ISVTX
        if is_ours and not stat.S_ISLNK(status.st_mode) and status.st_mode & UMASK:
            path.chmod(stat.S_IMODE(status.st_mode) & ~UMASK)


def private_opener(path: str, flags: int) -> int:
    """For ``open``: a new file has mode 0600, and a link is not followed."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def read_private(path: Path) -> bytes:
    """The content of the file. Raises NotOurs as ``check_file`` does, and for a link; OSError."""
    if path.is_symlink():
        raise NotOurs(path, "it is a link")
    with open(private_opener(str(path), os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a pipe would block
        _check(path, os.fstat(file.fileno()))
        return file.read()


def write_private(path: Path, text: str) -> None:
    """Put a new file with mode 0600 in the place of what is there. Raises OSError."""
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        with open(new, "x", opener=private_opener) as file:
            file.write(text)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def lock_private(path: Path, timeout: float = 0) -> int:
    """The descriptor of the file, locked as long as any process has it open. Makes its folder private.

    Waits ``timeout`` seconds for another process. Raises InUse, OSError. A lock of filelock ends with the
    process that took it, while the processes that it has forked still serve the files.
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
        raise OSError(errno.EINVAL, "it is no file", str(path))
    if status.st_uid != os.geteuid():
        raise NotOurs(path, "it belongs to another user")
    if status.st_mode & _OTHERS_WRITE:
        raise NotOurs(path, "others may write to it, until chmod go-w")


def _refuse_links(folder: Path) -> None:
    path = folder.absolute()
    for link in filter(Path.is_symlink, (path, *path.parents)):
        if link.lstat().st_uid not in (0, os.geteuid()):
            raise NotOurs(link, "it is another user's link")
