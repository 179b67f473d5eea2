import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from azure.storage.queue import QueueServiceClient

from legacy_queue.domain.priority import PRIORITIES
from tests.adapters.amqp_side import consumer
from tests.system.processes import LONG

COMMAND = [sys.executable, "-m", "legacy_queue"]
UP = [*COMMAND, "up"]
WITH_RABBITMQ = [sys.executable, str(Path(__file__).parents[2] / "scripts" / "up_with_rabbitmq.py")]


def run(*words: str, program: Sequence[str] = COMMAND) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*program, *words], capture_output=True, text=True, check=False)


@contextmanager
def up(*words: str, program: Sequence[str] = UP) -> Iterator[subprocess.Popen[str]]:
    command = [*program, "--port", "0", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(LONG)  # before its pipes are closed


def eventually(found: Callable[[], list[Any]]) -> list[Any]:
    deadline = time.monotonic() + LONG
    while not (what := found()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return what


def printed_until(process: subprocess.Popen[str], last: str) -> str:
    assert process.stdout
    text = ""
    for line in process.stdout:
        text += line
        if last in line:
            return text
    raise AssertionError(f"{last!r} was not printed: {text}")


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.DOTALL)
    assert match, text
    return match[1]


def create_task(text: str, access_token: str = "") -> subprocess.CompletedProcess[str]:
    """Creates a task at the queue that ``up`` names in this text."""
    queue = ("--root-url", found(r"root URL +(\S+)", text), "--client-id", "development")
    token = access_token or found(r"accessToken +(\S+)", text)
    pool = ("--provisioner", "p", "--worker-type", "w")
    return run("create-task", *queue, "--access-token", token, *pool, "--", "true")


def test_the_demonstration_shows_the_sequence_chart_and_ends_with_the_task_completed(tmp_path: Path) -> None:
    shown = run("up", "--demo", "--port", "0", "--data-dir", str(tmp_path))
    assert shown.returncode == 0, shown.stderr
    steps = [
        r"createTask \S{22}",
        r"pollTaskUrls: 7 signed URLs, good until \S+Z",
        r"get signedPollUrls\[6\]: 1 message",
        r"claimTask run 0 with messageId, receipt, signature",
        r"message for run 1 held, invisible until \S+Z",
        r"createArtifact public/logs/live\.log \(reference\)",
        r"executing run 0",
        r"reclaimTask: taken until \S+Z",
        r"createArtifact public/logs/live_backing\.log \(s3\)",
        r"createArtifact public/logs/live\.log \(reference\)",
        r"report completed",
        r"task \S{22} is completed, run 0",
        r"getLatestArtifact public/logs/live\.log: 'hello from the task'",
    ]
    assert re.search(".*".join(steps), shown.stdout, re.DOTALL), shown.stdout
    assert "hello from the task" in shown.stdout
    assert shown.stderr == "Stopped; everything is kept.\n", "the steps alone are shown"
    assert "sig=" not in shown.stdout + shown.stderr


def test_what_it_says_to_try_works_as_it_stands(tmp_path: Path) -> None:
    with up("--data-dir", str(tmp_path)) as process:
        text = printed_until(process, "Ctrl-C")
        root_url = re.search(r"root URL +(\S+)", text)[1]  # type: ignore[index]
        assert f"legacy base URL  {root_url}/v1\n" in text
        script = re.search(r"Try, in another terminal:\n\n(.*?)\n\n", text, re.DOTALL)[1]  # type: ignore[index]
        lines = [line.strip() for line in script.splitlines()]
        assert [line.split()[0] for line in lines].count("export") == 2
        assert len(lines) == 5
        # the program's own name is that of this test's interpreter: python -m legacy_queue
        commands = [re.sub(r"^\S*__main__\.py", " ".join(COMMAND), line) for line in lines]
        tried = subprocess.run(
            ["bash", "-euc", "\n".join(commands)], capture_output=True, text=True, check=False
        )
        assert tried.returncode == 0, tried.stderr
        task_id, printed, pending = tried.stdout.splitlines()
        assert printed == "hello"
        assert json.loads(pending)["pendingTasks"] == 0
        connection_string = re.search(r"^  (Default\S+)$", text, re.MULTILINE)[1]  # type: ignore[index]
        printed_queues = dict(re.findall(r"^  (\S+) +(lq-\S+)$", text, re.MULTILINE))
        with QueueServiceClient.from_connection_string(connection_string) as storage:
            made = {queue.name for queue in storage.list_queues()}
        assert list(printed_queues) == list(PRIORITIES)
        assert set(printed_queues.values()) < made, "the worker has polled them"
        ports = re.search(r"127\.0\.0\.1: blob (\d+), queue (\d+), table (\d+)\.", text)
        assert ports
        assert all(f":{port}/" in connection_string for port in ports.groups())
        status = requests.get(f"{root_url}/v1/task/{task_id}/status", timeout=LONG).json()["status"]
        assert status["state"] == "completed"


def test_with_tls_what_it_says_to_try_works_and_so_does_the_demonstration(
    tmp_path: Path,
) -> None:
    folder = str(tmp_path)
    with up("--tls", "auto", "--storage", "memory", "--data-dir", folder) as process:
        text = printed_until(process, "Ctrl-C")
        script = re.search(r"Try, in another terminal:\n\n(.*?)\n\nThe queues", text, re.DOTALL)[1]  # type: ignore[index]
        lines = [line for line in script.splitlines() if line.startswith("  ")]
        commands = [re.sub(r"^ *\S*__main__\.py", " ".join(COMMAND), line) for line in lines]
        tried = subprocess.run(
            ["bash", "-euc", "\n".join(commands)], capture_output=True, text=True, check=False
        )
        assert tried.returncode == 0, tried.stderr
        _, printed, pending, _, *requests, none, _fault_id, clock = tried.stdout.splitlines()
        assert printed == "hello"
        assert json.loads(pending)["pendingTasks"] == 0
        assert any("reportCompleted" in line for line in requests)
        assert none == "There are no messages for my-provisioner/my-worker."
        assert clock.endswith("Z, 21m ahead of the real time")
    shown = run("up", "--demo", "--tls", "auto", "--storage", "memory", "--port", "0", "--data-dir", folder)
    assert shown.returncode == 0, shown.stderr
    assert "'hello from the task'" in shown.stdout


def test_ctrl_c_stops_the_queue_and_the_next_start_finds_its_credentials_and_tasks(tmp_path: Path) -> None:
    tokens, task_id = [], None
    for _ in range(2):
        with up("--data-dir", str(tmp_path)) as process:
            text = printed_until(process, "Ctrl-C")
            root_url, token = re.findall(r"LEGACY_QUEUE_ROOT_URL=(\S+)|ACCESS_TOKEN=(\S+)", text)
            tokens.append(token[1])
            if task_id is None:
                queue = ("--root-url", root_url[0], "--client-id", "development", "--access-token", token[1])
                made = run("create-task", *queue, "--provisioner", "p", "--worker-type", "w", "--", "true")
                task_id = made.stdout.strip()
            status = requests.get(f"{root_url[0]}/v1/task/{task_id}/status", timeout=LONG)
            assert status.json()["status"]["state"] == "pending"
        assert process.returncode == 0
    assert tokens[0] == tokens[1]


def test_a_busy_port_is_one_clear_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = str(busy.getsockname()[1])
        refused = run("up", "--storage", "memory", "--port", port)
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert re.fullmatch(f"Error: cannot listen on 127.0.0.1 port {port}: .*\n", refused.stderr)


def test_a_wrong_setting_is_one_clear_sentence() -> None:
    refused = run("up", "--claim-timeout", "soon")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert (
        refused.stderr == "Error: --claim-timeout is 'soon': a duration is accepted, like 20m, 6s, 1h or 2d\n"
    )


def test_a_task_that_is_refused_is_said_in_the_queues_words() -> None:
    with up("--storage", "memory") as process:
        root_url = re.search(r"ROOT_URL=(\S+)", printed_until(process, "Ctrl-C"))[1]  # type: ignore[index]
        queue = ("--root-url", root_url, "--client-id", "development", "--access-token", "wrong")
        refused = run("create-task", *queue, "--provisioner", "p", "--worker-type", "w", "--", "true")
    assert refused.returncode == 1
    assert "createTask was refused with 401" in refused.stderr


def test_scripts_up_with_rabbitmq_publishes_the_events_on_the_broker_that_it_names(tmp_path: Path) -> None:
    with up("--storage", "memory", "--data-dir", str(tmp_path), program=WITH_RABBITMQ) as process:
        text = printed_until(process, "Ctrl-C stops")
        url = found(r"RabbitMQ publishes the events on (amqp://\S+) ", text)
        with consumer(url, "taskcluster-queue") as listener:
            listener.bind("task-pending", "primary.#.p.w.#")
            created = create_task(text)
            assert created.returncode == 0, created.stderr
            [message] = eventually(listener.messages)
        assert json.loads(message.body)["status"]["taskId"] == created.stdout.strip()
    assert process.returncode == 0
    with pytest.raises(ConnectionRefusedError), consumer(url, "taskcluster-queue"):
        pass


def test_what_it_says_to_watch_shows_what_happens_to_tasks(tmp_path: Path) -> None:
    with up("--data-dir", str(tmp_path)) as process:
        text = printed_until(process, "Ctrl-C stops")
        words = re.search(r"terminal of its own:\n\n  \S+ (events .*)\n", text)[1].split()  # type: ignore[index]
        token, root_url = (re.search(rf"{word} +(\S+)", text)[1] for word in ("accessToken", "root URL"))  # type: ignore[index]
        queue = ("--root-url", root_url, "--client-id", "development", "--access-token", token)
        with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True) as watching:
            assert watching.stdout
            try:
                seen: list[str] = []
                shown = threading.Thread(target=lambda: seen.append(watching.stdout.readline()))  # type: ignore[union-attr]
                shown.start()
                while shown.is_alive():  # events from now on: only the server knows since when
                    run("create-task", *queue, "--provisioner", "p", "--worker-type", "w", "--", "true")
                    shown.join(0.5)
            finally:
                watching.kill()
    assert re.search(r" task-(defined|pending) +\S{22} ", seen[0])


def test_scripts_up_refuses_rabbitmq_where_amqp_url_names_a_broker() -> None:
    refused = run("--amqp-url", "amqp://user:hunter2@localhost", program=WITH_RABBITMQ)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        "Error: --rabbitmq starts a broker, and amqp-url names another: give one of them\n"
    )


def test_rabbitmq_is_refused_by_the_installed_command_with_what_to_do_instead() -> None:
    refused = run("up", "--rabbitmq")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        "Error: --rabbitmq is for scripts/up in the source tree: "
        "start a broker, and give its URL with --amqp-url\n"
    )
