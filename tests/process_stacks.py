"""The stacks of all processes that the tests have started, for a test that exceeds its time limit."""

import os
import signal
import time
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from pathlib import Path

from tests.guard import with_descendants

_CHILDREN = Path(__file__).parent / "children"
_STACKS_SIGNAL = signal.SIGRTMIN + 5  # as in children/sitecustomize.py
_MAX_WAIT = 2.0  # seconds until a process has written its stacks


def prepare(environ: MutableMapping[str, str]) -> None:
    """Processes with this environment can write their stacks, and start with the default signal handlers.

    Some CI, and a script in the background, ignore SIGINT; a process inherits which signals are ignored or
    blocked.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)  # ignored too, but a handler is not inherited
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    environ["TEST_STACKS"] = f"/proc/{os.getpid()}/fd/{os.memfd_create('stacks')}"  # leaves no file behind
    folders = environ.get("PYTHONPATH", "").split(os.pathsep)
    others = [folder for folder in folders if folder and folder != str(_CHILDREN)]
    environ["PYTHONPATH"] = os.pathsep.join([str(_CHILDREN), *others])


def processes() -> Iterator[tuple[str, str]]:
    """Each descendant of this process: its command line, and its state and stacks."""
    for pid in with_descendants([os.getpid()])[1:]:
        with suppress(OSError):
            folder = Path(f"/proc/{pid}")
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            status = (folder / "status").read_text()
            state = status.partition("State:")[2].partition("\n")[0].strip()
            waits = (folder / "wchan").read_text() or "-"
            yield f"process {pid}: {words}", f"{state}, in the kernel: {waits}\n{_stacks(pid, status)}"


def _stacks(pid: int, status: str) -> str:
    """The stacks of a Python process; "" for a process that the signal would kill."""
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    if not caught >> (_STACKS_SIGNAL - 1) & 1:
        return ""
    path = Path(os.environ["TEST_STACKS"])
    before = path.stat().st_size
    os.kill(pid, _STACKS_SIGNAL)
    end, written = time.monotonic() + _MAX_WAIT, b""
    while time.monotonic() < end:
        time.sleep(0.05)
        previous, written = written, path.read_bytes()[before:]
        if written and written == previous:
            break
    return written.decode(errors="replace")
