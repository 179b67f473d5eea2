"""The lock on a data folder, which two servers must not write to at once."""

import fcntl
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import IO

from legacy_queue.adapters.private_folder import make_private, private_opener, tighten_all


class FolderUnavailable(Exception):
    """Somebody else has the folder, or it cannot be written; the message says which, for a person."""


def lock_folder(folder: Path, patience: timedelta = timedelta(seconds=2)) -> IO[bytes]:
    """The open file whose lock says that the folder is ours, for as long as any process has it open.

    The folder is made where it is missing, and all in it is for its owner alone. Patience is for a holder
    that is ending, such as an Azurite which saves after its server has died. Raises FolderUnavailable with
    the folder and the holder's process id.
    """
    try:
        make_private(folder)
        tighten_all(folder)
        lock = open(folder / "lock", "a+b", buffering=0, opener=private_opener)  # noqa: SIM115
    except OSError as error:
        raise FolderUnavailable(f"The data folder {folder} cannot be used: {error.strerror}.") from error
    deadline = time.monotonic() + patience.total_seconds()
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(0.02)
                continue
            lock.seek(0)
            holder = lock.read(32).decode(errors="replace").strip()
            lock.close()
            raise FolderUnavailable(
                f"The data folder {folder} is in use by process {holder}: stop it or choose another folder."
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n".encode())
        return lock
