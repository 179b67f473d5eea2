"""Loaded by each Python that a test starts, whose PYTHONPATH names this folder.

A test can have it slow down an import, and have it send itself a signal when it forks. For ``legacy-queue``,
two packages are hidden that users do not have: tests installed them here, and azure-core and structlog would
import them, which takes a seventh of a server's start.
"""

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

if any(word.endswith(("legacy-queue", "legacy_queue")) for word in sys.orig_argv[1:4]):
    hidden: dict[str, Any] = dict.fromkeys(("aiohttp", "rich"))
    sys.modules.update(hidden)  # importing them is an ImportError


class SlowImport:
    """An import that takes ``seconds`` longer, and creates the file when it begins."""

    def __init__(self, name: str, seconds: float, mark: Path) -> None:
        self._name, self._seconds, self._mark = name, seconds, mark

    def find_spec(self, name: str, *_: object) -> None:
        if name == self._name:
            end = time.monotonic() + self._seconds
            self._mark.touch()
            while time.monotonic() < end:  # a signal just before a sleep is handled after it
                time.sleep(0.05)


if name := os.environ.get("TEST_SLOW_IMPORT"):
    slow = SlowImport(name, float(os.environ["TEST_SLOW_SECONDS"]), Path(os.environ["TEST_SLOW_MARK"]))
    sys.meta_path.insert(0, slow)

if number := os.environ.get("TEST_SIGNAL_AT_FORK"):  # before the callbacks of others
    os.register_at_fork(after_in_parent=partial(os.kill, os.getpid(), int(number)))
