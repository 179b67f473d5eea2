"""From an artifact that a payload declares to the files that its task has made, or to why there is none.

Nothing outside of the task's working directory is found, whatever path is declared and whatever links the
task has made.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from legacy_queue.worker.payload import Declared

MAX_SIZE = 5 * 1024**3  # bytes that S3 takes in one PUT


@dataclass(frozen=True)
class Found:
    """A regular file, to be uploaded under this name; or the ``error`` artifact that stands for it.

    ``reason`` is one of createArtifact's, and None for a file that can be uploaded.
    """

    name: str
    path: Path
    reason: str | None = None
    message: str = ""


def look_for(declared: Declared, directory: Path) -> Iterator[Found]:
    """The declared file, or all files below the declared directory, each named by its path in it.

    As docker-worker did, what a directory holds beside files and directories is left out; only a link that
    leads out of the working directory is an error. Raises OSError for what cannot be read.
    """
    top, kind = directory / declared.path, "directory" if declared.is_directory else "file"
    if _leads_out(top, directory):
        yield _invalid(declared.name, top, f"{declared.path} leads out of the task's working directory")
    elif not os.path.lexists(top):
        message = f"There is no {kind} {declared.path}"
        yield Found(declared.name, top, "file-missing-on-worker", message)
    elif not (os.path.isdir if declared.is_directory else os.path.isfile)(top):
        yield _invalid(declared.name, top, f"{declared.path} is not a {kind}")
    elif declared.is_directory:
        yield from _below(top, declared.name, directory)
    else:
        yield _file(declared.name, top)


def _below(top: Path, name: str, directory: Path) -> Iterator[Found]:
    for folder, folders, files in os.walk(top, onerror=_raise):
        folders.sort()
        for path in (Path(folder, entry) for entry in sorted(folders + files)):
            inner = path.relative_to(top)
            if path.is_symlink() and _leads_out(path, directory):
                yield _invalid(f"{name}/{inner}", path, f"{inner} leads out of the task's working directory")
            elif os.path.isfile(path):
                yield _file(f"{name}/{inner}", path)


def _file(name: str, path: Path) -> Found:
    if (size := path.stat().st_size) > MAX_SIZE:
        message = f"{path.name} has {size} bytes; an upload may have {MAX_SIZE}"
        return Found(name, path, "too-large-file-on-worker", message)
    return Found(name, path)


def _invalid(name: str, path: Path, message: str) -> Found:
    return Found(name, path, "invalid-resource-on-worker", message)


def _leads_out(path: Path, directory: Path) -> bool:
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))


def _raise(failure: OSError) -> None:
    raise failure
