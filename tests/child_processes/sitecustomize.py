"""Every Python that a test starts loads this, because its PYTHONPATH names this folder.

A test can slow down an import, and make the process send itself a signal when it forks.

``legacy-queue`` does not see two packages that users do not have. The tests have them installed, and
azure-core and structlog would import them, which takes a seventh of a server's start.
"""

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

if any(word.endswith(("legacy-queue", "legacy_queue")) for word in sys.orig_argv[1:4]):
    hidden: dict[str, Any] = dict.fromkeys(("aiohttp", "rich"))
    sys.modules.update(hidden)  # importing them raises an ImportError


class SlowImport:
    """Makes an import take ``seconds`` longer. When the import begins, it creates the file ``mark``."""

    def __init__(self, name: str, seconds: float, mark: Path) -> None:
        self._name, self._seconds, self._mark = name, seconds, mark

    def find_spec(self, name: str, *_: object) -> None:
        if name == self._name:
            end = time.monotonic() + self._seconds
            self._mark.touch()
            # short sleeps, because a signal that comes just before a sleep is handled after it
            while time.monotonic() < end:
                time.sleep(0.05)


if name := os.environ.get("TEST_SLOW_IMPORT"):
    slow = SlowImport(name, float(os.environ["TEST_SLOW_SECONDS"]), Path(os.environ["TEST_SLOW_MARK"]))
    sys.meta_path.insert(0, slow)

if number := os.environ.get("TEST_SIGNAL_AT_FORK"):  # registered here, so that it runs before other callbacks
    os.register_at_fork(after_in_parent=partial(os.kill, os.getpid(), int(number)))
