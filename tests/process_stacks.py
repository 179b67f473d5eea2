"""Where each process that the tests have started stands, for a test whose time is over."""

import os
import signal
import time
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from pathlib import Path

_CHILDREN = Path(__file__).parent / "children"
_ASK = signal.SIGRTMIN + 5  # as in children/sitecustomize.py
_ANSWER = 2.0  # seconds that a process has to answer


def prepare(environ: MutableMapping[str, str]) -> None:
    """What is started with this environment can be asked, and has the default signals.

    Under some CI, and in the background of a script, SIGINT is ignored; what is ignored or blocked here would
    be so in each process that a test starts.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)  # as before; a handler is not inherited
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    environ["TEST_STACKS"] = f"/proc/{os.getpid()}/fd/{os.memfd_create('stacks')}"  # leaves no file behind
    others = [one for one in environ.get("PYTHONPATH", "").split(os.pathsep) if one and one != str(_CHILDREN)]
    environ["PYTHONPATH"] = os.pathsep.join([str(_CHILDREN), *others])


def processes() -> Iterator[tuple[str, str]]:
    """Each process below this one: its command line, and where it stands as far as it tells."""
    for pid in _below(os.getpid()):
        with suppress(OSError):
            folder = Path(f"/proc/{pid}")
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            status = (folder / "status").read_text()
            state = status.partition("State:")[2].partition("\n")[0].strip()
            waits = (folder / "wchan").read_text() or "-"
            yield f"process {pid}: {words}", f"{state}, in the kernel: {waits}\n{_stacks(pid, status)}"


def _below(owner: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit():
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
    found = [owner]
    for one in found:
        found += [pid for pid, parent in parents.items() if parent == one]
    return found[1:]


def _stacks(pid: int, status: str) -> str:
    """What a Python answers; nothing is asked of what would be killed by the question."""
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    if not caught >> (_ASK - 1) & 1:
        return ""
    path = Path(os.environ["TEST_STACKS"])
    before = path.stat().st_size
    os.kill(pid, _ASK)
    end, said = time.monotonic() + _ANSWER, b""
    while time.monotonic() < end:
        time.sleep(0.05)
        so_far, said = said, path.read_bytes()[before:]
        if said and said == so_far:
            break
    return said.decode(errors="replace")
