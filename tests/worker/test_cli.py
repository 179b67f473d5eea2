"""The command, as an operator starts and stops it."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from legacy_queue.cli.worker_command import worker

from .conftest import LONG, wait_until
from .fake_queue import ACCESS_TOKEN, CLIENT_ID, FakeQueue

COMMAND = [sys.executable, "-c", "from legacy_queue.cli.worker_command import worker; worker()"]
POOL = ["--provisioner", "provisioner", "--worker-type", "type"]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(fake_queue: FakeQueue, tmp_path: Path) -> Iterator[Start]:
    started = []

    def start_worker(*options: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [*COMMAND, *POOL, *options],
            env={
                **os.environ,
                "LEGACY_QUEUE_ROOT_URL": fake_queue.root_url,
                "TMPDIR": str(tmp_path),
                "TASKCLUSTER_CLIENT_ID": CLIENT_ID,
                "TASKCLUSTER_ACCESS_TOKEN": ACCESS_TOKEN,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start_worker
    for process in started:
        process.kill()
        process.wait(LONG)
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()


def steps(errors: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in errors.splitlines()]


def test_the_worker_command_shows_a_tasks_output_and_logs_each_step_as_json(
    fake_queue: FakeQueue, start: Start
) -> None:
    task_id = fake_queue.task({"command": ["echo", "hello"]})
    process = start("--max-tasks", "1")
    output, errors = process.communicate(timeout=LONG)
    assert process.returncode == 0
    assert output == "hello\n"
    events = [step["event"] for step in steps(errors)]
    assert events == [
        "poll-urls", "poll", "claim", "run", "artifact", "report"
    ]  # fmt: skip
    assert {step["task_id"] for step in steps(errors)[2:]} == {task_id}
    assert fake_queue.requests_for("claimTask")[0].target.startswith("/api/queue/v1/task/")


def test_options_set_the_base_url_the_protocol_and_the_name_of_the_worker(
    fake_queue: FakeQueue, start: Start
) -> None:
    fake_queue.task({"command": ["true"]})
    process = start(
        "--base-url", fake_queue.root_url + "/v1", "--protocol", "deployed", "--max-tasks", "1",
        "--worker-group", "g", "--worker-id", "w", "--poll-interval", "10ms",
    )  # fmt: skip
    process.communicate(timeout=LONG)
    [claim] = fake_queue.requests_for("claimTask")
    assert claim.target.startswith("/v1/task/")
    assert claim.body == {"workerGroup": "g", "workerId": "w"}
    assert len(fake_queue.deleted) == 1


def long_command(up: Path) -> dict[str, str]:
    """The payload of a command that makes this file and does not end by itself."""
    return {"command": f"touch {up}; sleep {2 * LONG}"}


def test_sigterm_reports_worker_shutdown_and_exits_with_0(
    fake_queue: FakeQueue, start: Start, tmp_path: Path
) -> None:
    up = tmp_path / "up"
    fake_queue.task(long_command(up))
    process = start()
    assert wait_until(up.exists)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=LONG)
    assert process.returncode == 0
    assert output == "[worker] the worker is shutting down: the task is stopped\n"
    assert fake_queue.requests_for("reportException")[0].body == {"reason": "worker-shutdown"}


def test_sigint_ends_an_idle_worker_before_its_next_poll(fake_queue: FakeQueue, start: Start) -> None:
    process = start("--poll-interval", "24h")
    assert wait_until(lambda: len(fake_queue.requests_for("poll")) == 3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LONG)
    assert process.returncode == 0
    assert [step["event"] for step in steps(errors)] == ["poll-urls"]  # not a line for each empty poll


def test_a_second_signal_ends_the_worker_at_once(fake_queue: FakeQueue, start: Start, tmp_path: Path) -> None:
    up = tmp_path / "up"
    fake_queue.task(long_command(up))
    may_answer = threading.Event()
    fake_queue.script("reportException", may_answer.wait)
    process = start()
    assert wait_until(up.exists)
    process.send_signal(signal.SIGTERM)
    assert wait_until(lambda: bool(fake_queue.requests_for("reportException")))
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONG) == 128 + signal.SIGTERM
    may_answer.set()


def test_a_worker_that_the_queue_refuses_exits_with_one_sentence(fake_queue: FakeQueue, start: Start) -> None:
    fake_queue.script("pollTaskUrls", 403)
    process = start()
    _, errors = process.communicate(timeout=LONG)
    assert process.returncode == 1
    assert errors == "Error: The queue refused this worker. pollTaskUrls: 403 Scripted: says 403\n"


@pytest.mark.parametrize(
    ("options", "env", "sentence"),
    [
        ([], {"LEGACY_QUEUE_ROOT_URL": ""}, "--root-url or --base-url"),
        (["--root-url", "queue.example.net"], {}, "http://"),
        (["--worker-id", "not an id"], {}, "1 to 38 of"),
        (["--poll-interval", "soon"], {}, "is no duration"),
        (["--capacity", "0"], {}, "0 is not in the range"),
        (["--max-tasks", "0"], {}, "0 is not in the range"),
        ([], {"TASKCLUSTER_CERTIFICATE": "[]"}, "a certificate is a JSON object"),
        ([], {"TASKCLUSTER_ACCESS_TOKEN": ""}, "--access-token"),
    ],
)
def test_a_wrong_option_is_refused_with_a_sentence(
    options: list[str], env: dict[str, str], sentence: str
) -> None:
    own = {
        "LEGACY_QUEUE_ROOT_URL": "http://127.0.0.1:1",
        "TASKCLUSTER_CLIENT_ID": CLIENT_ID,
        "TASKCLUSTER_ACCESS_TOKEN": ACCESS_TOKEN,
    }
    refused = CliRunner().invoke(worker, [*POOL, *options], env=own | env)
    assert refused.exit_code == 2
    assert sentence in refused.stderr
    assert isinstance(refused.exception, SystemExit)


def test_a_task_is_reported_although_nobody_reads_the_output(fake_queue: FakeQueue, start: Start) -> None:
    fake_queue.task({"command": "head -c 1000000 /dev/zero"})
    process = start("--max-tasks", "1")
    assert wait_until(lambda: bool(fake_queue.requests_for("reportCompleted")))
    output, _ = process.communicate(timeout=LONG)
    assert len(output) == 1_000_000


def test_a_worker_whose_output_is_closed_goes_on(fake_queue: FakeQueue, start: Start) -> None:
    process = start("--max-tasks", "2")
    assert process.stdout
    process.stdout.close()
    for _ in range(2):
        fake_queue.task({"command": "echo x"})
    process.wait(LONG)
    assert len(fake_queue.requests_for("reportCompleted")) == 2


def test_a_worker_without_a_temporary_directory_reports_internal_error_and_goes_on(
    fake_queue: FakeQueue, start: Start, tmp_path: Path
) -> None:
    process = start("--max-tasks", "3", "--poll-interval", "10ms")
    fake_queue.task({"command": ["true"]})
    assert wait_until(lambda: bool(fake_queue.requests_for("reportCompleted")))
    assert wait_until(lambda: not list(tmp_path.iterdir()))
    tmp_path.rmdir()
    fake_queue.task({"command": ["true"]})
    assert wait_until(lambda: bool(fake_queue.requests_for("reportException")))
    assert fake_queue.requests_for("reportException")[0].body == {"reason": "internal-error"}
    tmp_path.mkdir()
    fake_queue.task({"command": ["true"]})
    process.communicate(timeout=LONG)
    assert process.returncode == 0
    assert len(fake_queue.requests_for("reportCompleted")) == 2
