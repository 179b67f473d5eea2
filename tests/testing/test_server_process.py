"""The server process of a test suite: its settings, its start and its end."""

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import requests

from legacy_queue.pytest_plugin import clean
from legacy_queue.testing import LegacyQueue, ServerFailed
from legacy_queue.testing.server_process import ServerProcess, server_environment
from tests.system.processes import wait_until

pytestmark = pytest.mark.processes

HOLDS_A_SERVER = """
import time
from tests.testing.test_server_process import children
from legacy_queue.testing import LegacyQueue
with LegacyQueue() as queue:
    print(*children(), flush=True)
    time.sleep(600)
"""

SUITE = """
from legacy_queue.testing import LegacyQueue
with LegacyQueue() as queue:
    task_id = queue.create_task(worker_type="builds")
    queue.claim("builds", protocol="draft").report("completed")
    print(queue.wait_for(task_id, "completed")["state"])
"""
NEEDED = ("requests", "certifi", "charset-normalizer", "idna", "urllib3")


def children() -> set[int]:
    """The process ids of this process's children."""
    tasks = Path("/proc/self/task").glob("*/children")
    return {int(pid) for task in tasks for pid in task.read_text().split()}


def failure(queue: LegacyQueue) -> ServerFailed | None:
    """The error that says that the server has ended. None while it is still ending."""
    try:
        queue.now()
    except ServerFailed as failed:
        return failed
    except requests.RequestException:
        pass
    return None


def test_the_server_gets_its_settings_as_variables_and_inherits_none_of_the_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LEGACY_QUEUE_CLAIM_TIMEOUT", "1s")
    monkeypatch.setenv("TASKCLUSTER_ROOT_URL", "https://tc.example.com")
    settings = {"sas_life": timedelta(minutes=6), "clients": {"a": {}}, "control": False, "port": 0}
    before = {name for name in os.environ if name.startswith("PYTHON")}
    made = server_environment(settings)
    assert before <= made.keys()
    assert {name: made[name] for name in made if name.startswith(("LEGACY_QUEUE_", "TASKCLUSTER_"))} == {
        "LEGACY_QUEUE_SAS_LIFE": "360s",
        "LEGACY_QUEUE_CLIENTS": '{"a": {}}',
        "LEGACY_QUEUE_CONTROL": "false",
        "LEGACY_QUEUE_PORT": "0",
    }


def test_if_the_server_has_ended_the_error_says_so_and_the_next_test_gets_a_new_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")  # the test kit must not use it
    before = children()
    with LegacyQueue() as queue:
        [pid] = children() - before
        task_id = queue.create_task()
        assert task_id in queue.summary()
        os.kill(pid, signal.SIGKILL)
        failed = wait_until(lambda: failure(queue))
        assert str(failed).startswith("the server has ended by itself, with exit code -9")
        assert queue.summary().startswith("the server has ended by itself")
        clean(queue)
        assert queue.events() == []


def test_the_server_ends_when_the_process_that_started_it_ends_and_leaves_no_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDS_A_SERVER]
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env) as owner:
        assert owner.stdout
        pid = json.loads(owner.stdout.readline())
        owner.kill()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert list(tmp_path.iterdir()) == []


def test_a_test_suite_needs_only_requests_if_the_server_runs_in_another_python(tmp_path: Path) -> None:
    files = [Path(str(file)) for name in NEEDED for file in importlib.metadata.files(name) or ()]
    site = Path(requests.__file__).parents[1]
    for name in {file.parts[0] for file in files} - {".."}:
        (tmp_path / name).symlink_to(site / name)
    (tmp_path / "legacy_queue").symlink_to(Path(__file__).parents[2] / "legacy_queue")
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "LEGACY_QUEUE_PYTHON": sys.executable}
    # -S hides the packages of this environment
    done = subprocess.run([sys.executable, "-S", "-c", SUITE], env=env, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("completed\n", 0), done.stderr


@pytest.mark.parametrize(
    ("does", "timeout", "why"),
    [
        (None, 60, "LEGACY_QUEUE_PYTHON is '.*/python': No such file or directory"),
        ("exec sleep 600", 0.01, "the server was not ready within 0.01 s; the last lines of its log:"),
        (
            "echo python: No module named legacy_queue >&2; exit 1",
            60,
            "'No module named legacy_queue'. Install legacy-queue there",
        ),
    ],
)
def test_the_error_for_a_server_that_does_not_start_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, does: str | None, timeout: float, why: str
) -> None:
    python = tmp_path / "python"
    if does:
        python.write_text(f"#!/bin/sh\n{does}\n")
        python.chmod(0o700)
    monkeypatch.setenv("LEGACY_QUEUE_PYTHON", str(python))
    with pytest.raises(ServerFailed, match=why):
        ServerProcess({}, start_timeout=timeout)
