"""The command, as an operator starts and stops it."""

import json
import os
import pty
import re
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
from .stand_in import ACCESS_TOKEN, CLIENT_ID, StandIn

COMMAND = [sys.executable, "-c", "from legacy_queue.cli.worker_command import worker; worker()"]
POOL = ["--provisioner", "provisioner", "--worker-type", "type"]
LONG_COMMAND = f"echo up; sleep {2 * LONG}"

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(stand_in: StandIn, tmp_path: Path) -> Iterator[Start]:
    started = []

    def start_worker(*options: str, stderr: int = subprocess.PIPE, **env: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [*COMMAND, *POOL, *options],
            env={
                **os.environ,
                "LEGACY_QUEUE_ROOT_URL": stand_in.root_url,
                "TMPDIR": str(tmp_path),
                "TASKCLUSTER_CLIENT_ID": CLIENT_ID,
                "TASKCLUSTER_ACCESS_TOKEN": ACCESS_TOKEN,
                **env,
            },
            stdout=subprocess.PIPE,
            stderr=stderr,
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


def test_a_task_is_run_its_output_shown_and_each_step_logged_as_json(stand_in: StandIn, start: Start) -> None:
    task_id = stand_in.task({"command": ["echo", "hello"]})
    process = start("--max-tasks", "1")
    output, errors = process.communicate(timeout=LONG)
    assert process.returncode == 0
    assert output == "hello\n"
    told = [step["event"] for step in steps(errors)]
    assert told == [
        "poll-urls", "poll", "claim", "held", "artifact", "run", "exited", "artifact", "artifact", "report"
    ]  # fmt: skip
    assert {step["task_id"] for step in steps(errors)[2:]} == {task_id}
    assert stand_in.asked("claimTask")[0].target.startswith("/api/queue/v1/task/")


def test_the_steps_can_be_had_as_text(stand_in: StandIn, start: Start) -> None:
    task_id = stand_in.task({"command": ["true"]})
    _, errors = start("--max-tasks", "1", "--log-format", "text").communicate(timeout=LONG)
    last = f" info    report task_id={task_id} run_id=0 result=completed"
    assert errors.splitlines()[-1].endswith(last)


def test_the_steps_are_text_at_a_terminal(stand_in: StandIn, start: Start) -> None:
    stand_in.task({"command": ["true"]})
    ours, its = pty.openpty()
    process = start("--max-tasks", "1", stderr=its)
    assert process.wait(LONG) == 0
    os.close(its)
    lines = os.read(ours, 65536).decode().splitlines()
    os.close(ours)
    assert re.search(r"info *\S* report task_id=\S{22} run_id=0 result=completed$", lines[-1]), lines


def test_options_reach_the_queue(stand_in: StandIn, start: Start) -> None:
    stand_in.task({"command": ["true"]})
    process = start(
        "--base-url", stand_in.root_url + "/v1", "--protocol", "deployed", "--capacity", "4",
        "--max-tasks", "1", "--worker-group", "g", "--worker-id", "w", "--poll-interval", "10ms",
    )  # fmt: skip
    process.communicate(timeout=LONG)
    [claim] = stand_in.asked("claimTask")
    assert claim.target.startswith("/v1/task/")
    assert claim.body == {"workerGroup": "g", "workerId": "w"}
    assert len(stand_in.deleted) == 1


def test_sigterm_reports_worker_shutdown_and_ends_well(stand_in: StandIn, start: Start) -> None:
    stand_in.task({"command": LONG_COMMAND})
    process = start()
    assert process.stdout
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONG) == 0
    assert stand_in.asked("reportException")[0].body == {"reason": "worker-shutdown"}


def test_an_idle_worker_ends_on_sigint_without_waiting_for_the_next_poll(
    stand_in: StandIn, start: Start
) -> None:
    process = start("--poll-interval", "24h")
    assert wait_until(lambda: len(stand_in.asked("poll")) == 3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LONG)
    assert process.returncode == 0
    assert [step["event"] for step in steps(errors)] == ["poll-urls"]  # not a line for each empty poll


def test_a_second_signal_ends_the_worker_and_its_task_at_once(stand_in: StandIn, start: Start) -> None:
    stand_in.task({"command": LONG_COMMAND})
    answer_at_last = threading.Event()
    stand_in.script("reportException", answer_at_last.wait)
    process = start()
    assert process.stdout
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    assert wait_until(lambda: bool(stand_in.asked("reportException")))
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONG) == 128 + signal.SIGTERM
    assert process.stdout.read() == "[worker] the worker is shutting down: the task is stopped\n"
    answer_at_last.set()


def test_a_refused_worker_says_why_in_one_sentence(stand_in: StandIn, start: Start) -> None:
    stand_in.script("pollTaskUrls", 403)
    process = start()
    _, errors = process.communicate(timeout=LONG)
    assert process.returncode == 1
    assert errors == "Error: The queue refused this worker. pollTaskUrls: 403 Scripted: says 403\n"


@pytest.mark.parametrize(
    ("options", "env", "said"),
    [
        ([], {"LEGACY_QUEUE_ROOT_URL": ""}, "--root-url or --base-url"),
        (["--root-url", "queue.example.net"], {}, "http://"),
        (["--worker-id", "not an id"], {}, "1 to 38 of"),
        (["--poll-interval", "soon"], {}, "a duration like"),
        (["--capacity", "0"], {}, "0 is not in the range"),
        ([], {"TASKCLUSTER_CERTIFICATE": "[]"}, "a certificate is a JSON object"),
        ([], {"TASKCLUSTER_ACCESS_TOKEN": ""}, "--access-token"),
    ],
)
def test_a_wrong_option_is_a_sentence(options: list[str], env: dict[str, str], said: str) -> None:
    own = {
        "LEGACY_QUEUE_ROOT_URL": "http://127.0.0.1:1",
        "TASKCLUSTER_CLIENT_ID": CLIENT_ID,
        "TASKCLUSTER_ACCESS_TOKEN": ACCESS_TOKEN,
    }
    refused = CliRunner().invoke(worker, [*POOL, *options], env=own | env)
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert isinstance(refused.exception, SystemExit)


@pytest.mark.parametrize("protocol", ["draft", "deployed"])
def test_the_log_holds_no_secret(stand_in: StandIn, start: Start, protocol: str) -> None:
    stand_in.task({"command": "exit 1", "env": {"KEY": "s3cret-env"}})
    stand_in.task({"command": [], "env": {"KEY": "s3cret-env"}})
    messages = list(stand_in.waiting[0])
    stand_in.script("poll", 403, 500)
    stand_in.script("delete", 400)
    process = start("--max-tasks", "2", "--protocol", protocol)
    output, errors = process.communicate(timeout=LONG)
    secrets = [message.receipt for message in messages] + [message.text for message in messages]
    secrets += ["signature+of", "s3cret", "sig=", *stand_in.credentials.values()]
    assert [secret for secret in secrets if secret in output + errors] == []
