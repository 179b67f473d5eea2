"""The command, as an operator starts and stops it."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.system.processes import LONG, wait_until

from .scripted_queue import ROOT, ScriptedQueue

COMMAND = [sys.executable, "-c", "from legacy_queue.cli.worker import worker; worker()"]
POOL = ["provisioner/type"]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(queue: ScriptedQueue, tmp_path: Path) -> Iterator[Start]:
    env = {
        **os.environ,
        "LEGACY_QUEUE_ROOT_URL": queue.root_url,
        "TMPDIR": str(tmp_path),
        "TASKCLUSTER_CLIENT_ID": ROOT.client_id,
        "TASKCLUSTER_ACCESS_TOKEN": ROOT.access_token,
    }
    with ExitStack() as stack:

        def start_worker(*options: str) -> "subprocess.Popen[str]":
            process = subprocess.Popen(
                [*COMMAND, *POOL, *options],
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start_worker


def test_sigint_ends_an_idle_worker_before_its_next_poll(queue: ScriptedQueue, start: Start) -> None:
    process = start("--poll-interval", "24h")
    wait_until(lambda: len(queue.requests_for("poll")) == 7)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LONG)
    assert process.returncode == 0
    [step] = errors.splitlines()  # not a line for each empty poll
    assert json.loads(step)["event"] == "poll-urls"


def test_a_second_signal_ends_the_worker_at_once(queue: ScriptedQueue, start: Start, tmp_path: Path) -> None:
    up = tmp_path / "up"
    queue.task({"command": f"touch {up}; sleep {2 * LONG}"})
    may_answer = threading.Event()
    queue.script("reportException", may_answer.wait)
    process = start()
    wait_until(up.exists)
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: bool(queue.requests_for("reportException")))
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONG) == 128 + signal.SIGTERM
    may_answer.set()


def test_a_worker_whose_output_is_closed_goes_on(queue: ScriptedQueue, start: Start) -> None:
    process = start("--max-tasks", "2")
    assert process.stdout
    process.stdout.close()
    for _ in range(2):
        queue.task({"command": "echo x"})
    process.wait(LONG)
    assert len(queue.requests_for("reportCompleted")) == 2
