"""A test run that is killed leaves no process, and a test run that waits for ever ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.guard import MARK, processes_with
from tests.system.processes import LONG, wait_until

ROOT = Path(__file__).parents[1]
OPTIONS = (
    "--config-file",
    ROOT / "setup.cfg",
    "--rootdir",
    ROOT,
    "-p",
    "tests.conftest",
    "-p",
    "no:cacheprovider",
)

# with a process in a session of its own, whose parent has ended
HOLDS_SERVERS = """
import os, signal, subprocess
from pathlib import Path
from tests.system.processes import serve

def test_holds(azurite, s3_server, tmp_path):
    subprocess.run(["sh", "-c", "setsid sh -c 'sleep 600; true' &"], check=True)
    with serve(tmp_path):
        Path(os.environ["HELD"]).touch()
        signal.pause()
"""

WAITS_FOR_EVER = """
import contextlib, threading
import pytest

@pytest.fixture
def never_ends():
    yield
    threading.Event().wait()

@pytest.fixture
def never_begins(never_ends):
    with contextlib.ExitStack() as stack:
        stack.callback(threading.Event().wait)
        threading.Event().wait()

def test_waits(never_begins):
    pass

def test_waits_in_a_thread():
    threading.Thread(target=threading.Event().wait).start()
"""


@contextmanager
def run_of(folder: Path, code: str, *words: str, **env: str) -> "Iterator[subprocess.Popen[str]]":
    """A test run, in a process group of its own."""
    (folder / "test_inner.py").write_text(code)
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "pytest",
            *OPTIONS,
            "--basetemp",
            folder / "base",
            *words,
            folder / "test_inner.py",
        ],
        cwd=ROOT,
        env={**{name: value for name, value in os.environ.items() if name != MARK}, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as inner:
        try:
            yield inner
        finally:
            inner.kill()


def started_in(folder: Path) -> list[int]:
    """The processes of a run: each has its folder in its environment."""
    return processes_with("environ", os.fsencode(folder))


@pytest.mark.parametrize(
    ("words", "number"),
    [(["--numprocesses", "1"], signal.SIGTERM), ([], signal.SIGKILL)],
    ids=["group", "alone"],
)
def test_a_killed_run_leaves_no_process(words: list[str], number: signal.Signals, tmp_path: Path) -> None:
    held = tmp_path / "held"
    with run_of(tmp_path, HOLDS_SERVERS, *words, HELD=str(held)) as inner:
        wait_until(lambda: held.exists() or inner.poll() is not None)
        assert inner.poll() is None, inner.communicate()[0]
        assert len(started_in(tmp_path)) >= 7, (
            "pytest, Azurite, S3, the server and its worker, two in a session"
        )
        (os.killpg if words else os.kill)(inner.pid, number)
        wait_until(lambda: not started_in(tmp_path))


def test_a_run_that_waits_for_ever_ends_in_setup_teardown_and_exit(tmp_path: Path) -> None:
    with run_of(tmp_path, WAITS_FOR_EVER, "--timeout", "1") as inner:
        printed, _ = inner.communicate(timeout=LONG)
    assert "1 passed, 2 errors" in printed
    assert "ERROR at setup of test_waits" in printed
    assert "ERROR at teardown of test_waits" in printed
    assert inner.returncode == 1, "a thread that never ends does not hold it"
