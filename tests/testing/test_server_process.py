"""The server of a test suite: its settings, its start and its end."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest

from legacy_queue.testing import LegacyQueue, ServerFailed
from legacy_queue.testing.server_process import _environment, _warnings
from legacy_queue.testing.servers import Servers
from tests.system.processes import wait_until

HOLDS_A_SERVER = """
import time
from legacy_queue.testing import LegacyQueue
with LegacyQueue() as queue:
    print(queue._process.ready["pid"], flush=True)
    time.sleep(600)
"""


def test_settings_are_variables_and_those_of_the_user_are_not_inherited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LEGACY_QUEUE_CLAIM_TIMEOUT", "1s")
    monkeypatch.setenv("TASKCLUSTER_ROOT_URL", "https://tc.example.com")
    settings = {"sas_life": timedelta(minutes=6), "clients": {"a": {}}, "resolvers": False, "port": 0}
    before = {name for name in os.environ if name.startswith("PYTHON")}
    made = _environment(settings)
    assert before <= made.keys()
    assert {name: made[name] for name in made if name.startswith(("LEGACY_QUEUE_", "TASKCLUSTER_"))} == {
        "LEGACY_QUEUE_SAS_LIFE": "360s",
        "LEGACY_QUEUE_CLIENTS": '{"a": {}}',
        "LEGACY_QUEUE_RESOLVERS": "false",
        "LEGACY_QUEUE_PORT": "0",
    }


def test_warnings_and_lines_that_are_no_json_are_shown() -> None:
    lines = [
        '{"event": "request", "level": "info", "timestamp": "t", "ms": 1}',
        '{"event": "work-message-dropped", "level": "warning", "timestamp": "t", "queue": "q"}',
        "Traceback (most recent call last):",
        "[1]",
    ]
    shown = list(_warnings(lines))
    assert shown == ["warning work-message-dropped queue=q", *lines[2:]]


def test_an_unknown_setting_is_refused_with_the_nearest_one_and_tried_once() -> None:
    settings = {"claim_timout": "30s"}
    with Servers() as servers:
        with pytest.raises(ServerFailed, match="the nearest is LEGACY_QUEUE_CLAIM_TIMEOUT") as first:
            servers.clean(settings)
        with pytest.raises(ServerFailed) as second:
            servers.clean(settings)
    assert second.value is first.value


def test_outside_of_its_context_there_is_no_server() -> None:
    queue = LegacyQueue()
    with pytest.raises(RuntimeError, match="with statement"):
        queue.now()


def test_a_server_that_has_ended_says_so_and_is_started_again_for_the_next_test(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")  # it is not used
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Servers() as servers:
        queue = servers.running({})
        pid = queue._process.ready["pid"]
        task_id = queue.create_task()
        assert task_id in queue.summary()
        os.kill(pid, signal.SIGKILL)
        queue._process._process.wait()
        with pytest.raises(ServerFailed, match="the server has ended by itself, with exit code -9"):
            wait_until(lambda: queue.status(task_id) and None)
        assert queue.summary().startswith("the server has ended by itself")
        assert servers.clean({}) is queue
        assert queue.events() == []
        assert list(tmp_path.iterdir()) == [], "what is killed with memory storage leaves nothing behind"


def test_the_server_ends_with_the_process_that_started_it() -> None:
    command = [sys.executable, "-c", HOLDS_A_SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as owner:
        assert owner.stdout
        pid = json.loads(owner.stdout.readline())
        owner.kill()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
