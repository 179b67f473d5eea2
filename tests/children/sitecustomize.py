"""Loaded by each Python that a test starts, whose PYTHONPATH names this folder.

It can be asked where it stands, held up at an import, and told to end while it forks. A ``legacy-queue`` has
two packages as little as it has them at its users': clients and checks brought them here, and azure-core and
structlog would import them, which takes a seventh of a server's start.
"""

import faulthandler
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

ASK = signal.SIGRTMIN + 5
if any(word.endswith(("legacy-queue", "legacy_queue")) for word in sys.orig_argv[1:4]):
    sys.modules |= dict.fromkeys(("aiohttp", "rich"))  # importing them is an ImportError

if path := os.environ.get("TEST_STACKS"):
    faulthandler.register(ASK, file=os.open(path, os.O_WRONLY | os.O_APPEND))  # as long as the process lasts


class Held:
    """An import that takes so many seconds longer, and has begun when the file exists."""

    def __init__(self, name: str, seconds: float, begun: Path) -> None:
        self._name, self._seconds, self._begun = name, seconds, begun

    def find_spec(self, name: str, *_: object) -> None:
        if name == self._name:
            self._begun.touch()
            time.sleep(self._seconds)


if name := os.environ.get("TEST_HELD_IMPORT"):
    sys.meta_path.insert(0, Held(name, float(os.environ["TEST_HELD"]), Path(os.environ["TEST_HELD_MARK"])))

if number := os.environ.get("TEST_TOLD_AT_FORK"):  # before what others have called then
    os.register_at_fork(after_in_parent=partial(os.kill, os.getpid(), int(number)))
