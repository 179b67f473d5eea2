"""README shows the output of its commands. Only ids and times differ, because they come from one real run."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import legacy_queue as package
from legacy_queue.testing import LegacyQueue
from tests.docs.page import pattern, read
from tests.docs.terminal import ROOT

pytestmark = pytest.mark.processes

README = ROOT / "README.md"
PROGRAM = [sys.executable, "-m", "legacy_queue"]
VARIES = {  # differs from run to run
    r"\b[A-Za-z0-9_-]{22}\b": "TASK",
    r"[\d-]{10}T[\d:.]+Z|\d\d:\d\d:\d\d(\.\d+|Z)": "TIME",
    r"\d+\.\d\d s|\d+h \d+m": "DURATION",
}


def without_ids_and_times(text: str) -> str:
    for varying, word in VARIES.items():
        text = re.sub(varying, word, text)
    return text


def assert_shown(command: str, printed: str) -> None:
    """Check that README has the command followed by what it printed."""
    steps = read(README).steps
    [place] = [place for place, step in enumerate(steps) if step.text.startswith(command)]
    shown = without_ids_and_times(steps[place + 1].text)
    assert pattern(shown).fullmatch(f"{without_ids_and_times(printed).rstrip()}\n"), printed


def output(command: list[str], folder: Path, code: int = 0, variables: Mapping[str, str] = {}) -> str:
    env = {**os.environ, **variables}
    ended = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout


def test_the_demo_shows_a_task_from_its_creation_to_its_log(tmp_path: Path) -> None:
    command = [str(ROOT / "scripts/up"), "--demo"]
    variables = {"LEGACY_QUEUE_DATA_DIR": str(tmp_path / "data")}
    assert_shown("scripts/up --demo", output(command, tmp_path, variables=variables))


def test_conform_finds_a_receipt_that_is_not_encoded(tmp_path: Path) -> None:
    worker = (ROOT / "examples/tox/legacy_worker.py").read_text()
    encoded = 'quote(self.receipt, safe="")'
    assert encoded in worker
    (tmp_path / "worker.py").write_text(worker.replace(encoded, "self.receipt"))
    words = ["conform", "--rule", "encode-the-receipt", "--", sys.executable, "worker.py"]
    names = ["{provisionerId}", "{workerType}", "{workerGroup}", "{workerId}"]
    assert_shown("legacy-queue conform", output([*PROGRAM, *words, *names], tmp_path, code=1))


def test_status_names_the_pool_that_was_meant(legacy_queue: LegacyQueue, tmp_path: Path) -> None:
    task_id = legacy_queue.create_task(task_queue_id="releng/bulider")
    legacy_queue.claim(task_queue_id="releng/builder")
    legacy_queue.advance("40m")
    command = [*PROGRAM, "status", task_id]
    assert_shown("legacy-queue status", output(command, tmp_path, variables=legacy_queue.env))


def test_the_version_in_readme_is_the_packages() -> None:
    assert f"Version {package.__version__} " in README.read_text()
