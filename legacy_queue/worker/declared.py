"""From an artifact that a payload declares to the files that its task has made, or to why there is none.

Nothing outside of the task's working directory is found, whatever path is declared and whatever links the
task has made.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from legacy_queue.worker.payload import Declared

LARGEST = 5 * 1024**3  # bytes that S3 takes in one PUT


@dataclass(frozen=True)
class Made:
    """A regular file, to be uploaded under this name."""

    name: str
    path: Path


@dataclass(frozen=True)
class NotMade:
    """What becomes an ``error`` artifact of this name; ``reason`` is one of createArtifact's."""

    name: str
    reason: str
    message: str


def look_for(declared: Declared, directory: Path) -> Iterator[Made | NotMade]:
    """The declared file, or all files below the declared directory, each named by its path in it.

    As docker-worker did, what a directory holds beside files and directories is left out; only a link that
    leads out of the working directory is told. Raises OSError for what cannot be read.
    """
    top, wanted = directory / declared.path, "directory" if declared.is_directory else "file"
    is_wanted = os.path.isdir if declared.is_directory else os.path.isfile
    if _leads_out(top, directory):
        yield _refused(declared.name, declared.path)
    elif not os.path.lexists(top):
        yield NotMade(declared.name, "file-missing-on-worker", f"There is no {wanted} {declared.path}")
    elif not is_wanted(top):
        yield NotMade(declared.name, "invalid-resource-on-worker", f"{declared.path} is not a {wanted}")
    elif declared.is_directory:
        yield from _below(top, declared.name, directory)
    else:
        yield _file(declared.name, top)


def _below(top: Path, name: str, directory: Path) -> Iterator[Made | NotMade]:
    for folder, folders, files in os.walk(top, onerror=_raise):
        folders.sort()
        for entry in sorted(folders + files):
            path = Path(folder, entry)
            inner = path.relative_to(top)
            if path.is_symlink() and _leads_out(path, directory):
                yield _refused(f"{name}/{inner}", str(inner))
            elif os.path.isfile(path):
                yield _file(f"{name}/{inner}", path)


def _file(name: str, path: Path) -> Made | NotMade:
    if (size := path.stat().st_size) > LARGEST:
        message = f"{path.name} has {size} bytes; an upload may have {LARGEST}"
        return NotMade(name, "too-large-file-on-worker", message)
    return Made(name, path)


def _refused(name: str, path: str) -> NotMade:
    return NotMade(name, "invalid-resource-on-worker", f"{path} leads out of the task's working directory")


def _leads_out(path: Path, directory: Path) -> bool:
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))


def _raise(failure: OSError) -> None:
    raise failure
