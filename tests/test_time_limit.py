"""A test that exceeds its time limit shows the stacks of its threads and processes."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

HANGS = """
import signal
import threading

from tests.system.processes import LONG, importing


def test_that_hangs(tmp_path):
    threading.Thread(target=threading.Event().wait, name="a thread that waits", daemon=True).start()
    with importing("legacy_queue.cli.commands", 10 * LONG, tmp_path, "events"):
        signal.setitimer(signal.ITIMER_REAL, 0.01)  # the time is over
        threading.Event().wait()


def test_that_comes_next():
    pass
"""


def test_a_hanging_test_fails_and_shows_the_stacks_of_its_threads_and_processes(tmp_path: Path) -> None:
    (tmp_path / "test_hangs.py").write_text(HANGS)
    words = ("-c", str(ROOT / "setup.cfg"), "--rootdir", str(tmp_path), "-p", "tests.conftest", "-n", "1")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "-p", "no:cacheprovider", str(tmp_path)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 1 passed" in ended.stdout, ended.stdout + ended.stderr
    assert "Timeout (>180.0s) from pytest-timeout" in ended.stdout
    threads, _, processes = ended.stdout.partition("- process ")
    assert "Stack of a thread that waits" in threads
    assert ", in test_that_hangs" in threads or "test_hangs.py:" in threads
    assert "legacy-queue events" in processes
    assert "in find_spec" in processes, "where the child stands"
    assert "__main__.py" in processes
