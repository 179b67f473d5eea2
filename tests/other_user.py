"""Acts as another user of the machine, which only root can do."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

OTHER = 65534


def give_away(*paths: Path) -> None:
    """Let these paths belong to the other user. If a path is a link, its target is not changed."""
    if os.geteuid() != 0:
        pytest.fail("this test gives a file to another user: run it as root")
    for path in paths:
        os.chown(path, OTHER, OTHER, follow_symlinks=False)


@contextmanager
def as_other_user() -> Iterator[Path]:
    """Act as the other user. Yields a folder of root's in which everybody can write."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        if os.geteuid() != 0:
            pytest.fail("this test acts as another user: run it as root")
        os.seteuid(OTHER)
        try:
            yield folder
        finally:
            os.seteuid(0)
