"""A process that outlives a test run and kills what the run started, even if the run was killed with SIGKILL.

Every process that the tests start has the run's mark in its environment. The names of their containers begin
with it.
"""

import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path

MARK = "TEST_RUN"
_LIMIT = 60.0  # seconds until it gives up
_CONTAINERS = Path(__file__).parents[1] / ".containers/.installed"
_REMOVE = """
    "$0" ps --all --quiet --filter name="^$1-" | xargs --no-run-if-empty "$0" rm --force --time 0
    "$0" network ls --quiet --filter name="^$1-" | xargs --no-run-if-empty "$0" network rm --force
    "$0" volume ls --quiet --filter name="^$1-" | xargs --no-run-if-empty "$0" volume rm --force
"""


def start(environ: MutableMapping[str, str]) -> None:
    """Mark this environment.

    When this process ends, or the run that it belongs to, all processes with it are killed.
    """
    if environ.get(MARK):
        return
    mark = f"lq{secrets.token_hex(4)}"
    this = os.pidfd_open(os.getpid())
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-IS", __file__, mark],
        environ,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, this, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    os.close(this)
    environ[MARK] = mark


def processes_with(part: str, text: bytes) -> list[int]:
    """The ids of the processes with this text in their ``cmdline`` or ``environ``."""
    pids = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and text in (entry / part).read_bytes():
                pids.append(int(entry.name))
    return pids


def _main(mark: str) -> None:
    poll = select.poll()
    poll.register(sys.stdin.fileno(), select.POLLIN)
    poll.poll()  # returns when the run has ended
    given_up = time.monotonic() + _LIMIT
    while (pids := processes_with("environ", mark.encode())) and time.monotonic() < given_up:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    if _CONTAINERS.exists():
        podman = Path(__file__).parent / "containers/podman"
        subprocess.run(["sh", "-c", _REMOVE, podman, mark], timeout=_LIMIT, check=False)


if __name__ == "__main__":
    _main(sys.argv[1])
