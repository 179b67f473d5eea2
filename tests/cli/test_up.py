"""``legacy-queue up`` prints commands that work as they are. No other web site can read the queue."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
import requests

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.domain.priority import PRIORITIES
from legacy_queue.local_processes.azurite import ACCOUNT
from tests.adapters.amqp_consumers import consumer
from tests.system.processes import LONG, wait_until

pytestmark = pytest.mark.processes

COMMAND = [sys.executable, "-m", "legacy_queue"]
RABBITMQ = Path(__file__).parents[1] / "rabbitmq.py"
SCRIPT = Path(__file__).parents[2] / "scripts/up"


class Up(NamedTuple):
    """A running queue, and the text that ``up`` printed."""

    process: subprocess.Popen[str]
    text: str

    def found(self, pattern: str) -> str:
        match = re.search(pattern, self.text, re.DOTALL)
        assert match, self.text
        return match[1]

    @property
    def exported(self) -> dict[str, str]:
        """The environment of a terminal in which you followed the text's instructions to connect a client."""
        words = re.findall(r"^ +((?:export|eval) .*)", self.text, re.MULTILINE)
        return variables_of(["bash", "-euc", "\n".join([*words, "env -0"])])

    @property
    def broker(self) -> str:
        return self.found(r"RabbitMQ publishes the events on (amqp://\S+) ")

    def create_task(self) -> str:
        words = [*COMMAND, "create-task", "p/w", "--", "true"]
        return subprocess.check_output(words, env=self.exported, text=True).strip()


def variables_of(command: Sequence[str | Path]) -> dict[str, str]:
    """The variables that this command prints with ``env -0``."""
    lines = subprocess.check_output(command, text=True).split("\0")
    return dict(line.split("=", 1) for line in lines if line)


@contextmanager
def up(*words: str, program: Sequence[str]) -> Iterator[Up]:
    """Run ``up`` until the block ends. Then Ctrl-C must stop it with exit code 0."""
    command = [*program, "--port", "0", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Up(process, printed_until(process, "Ctrl-C stops"))
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(LONG) == 0  # wait before the pipes are closed


def printed_until(process: subprocess.Popen[str], last: str) -> str:
    assert process.stdout
    text = ""
    for line in process.stdout:
        text += line
        if last in line:
            return text
    raise AssertionError(f"{last!r} was not printed: {text}")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """``up`` with an Azurite, and with a broker that stops when ``up`` stops."""
    data_dir = tmp_path_factory.mktemp("up")
    options = ("--azurite", "--azurite-default-account", "--data-dir", str(data_dir))
    with_rabbitmq = [sys.executable, "-P", str(RABBITMQ), str(data_dir / "rabbitmq")]
    program = str(Path(sys.executable).with_name("legacy-queue"))
    with up(*options, program=[*with_rabbitmq, program, "up"]) as started:
        yield started
    with pytest.raises(ConnectionRefusedError), consumer(started.broker, "taskcluster-queue"):
        pass


def test_up_prints_the_link_to_the_page_first_and_the_commands_run_a_task(running: Up) -> None:
    assert len(running.text.partition("The queue is up.")[2].splitlines()) <= 15
    page = requests.get(running.found(r"The queue is up[^\n]+\n  (http\S+)\n"), timeout=LONG)
    assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (200, "text/html")
    script = running.found(r"create a task and run it:\n(.*?)\nConnect your own")
    commands = "\n".join(re.findall(r"^  .*", script, re.MULTILINE))
    ran = subprocess.check_output(["bash", "-euc", commands], text=True)
    assert "hello" in ran.splitlines()
    assert "AccountKey" not in running.text
    connection_string = Path(running.found(r"the connection string in (\S+)")).read_text()
    queues = {name for name, _ in AzureAccount(connection_string.strip(), "lq").queues("lq-")}
    words = [*COMMAND, "queues", "my-provisioner/my-worker"]
    polled = subprocess.check_output(words, text=True, env=running.exported).split()[1::2]
    assert set(polled) <= queues
    assert len(polled) == len(PRIORITIES)


def test_up_logs_requests_only_if_asked_to(tmp_path: Path) -> None:
    assert "pendingTasks" not in logged_by_up(tmp_path / "quiet")
    assert "pendingTasks" in logged_by_up(tmp_path / "asked", "--log-level", "info")


def logged_by_up(data_dir: Path, *words: str) -> str:
    """The log of a server that answered a request and stopped."""
    with up("--data-dir", str(data_dir), *words, program=[*COMMAND, "up"]) as started:
        base_url = started.found(r"legacy base URL: (\S+)\)")
        assert requests.get(f"{base_url}/pending/p/w", timeout=LONG).ok
        process = started.process
        process.send_signal(signal.SIGINT)
        assert process.stderr
        return process.stderr.read()


def test_if_the_program_is_on_the_path_up_prints_its_name_and_the_commands_work_in_any_directory(
    tmp_path: Path,
) -> None:
    link = tmp_path / "bin/legacy-queue"  # uv and pipx make a link like this
    link.parent.mkdir()
    link.symlink_to(Path(sys.executable).with_name("legacy-queue"))
    env = ["env", f"--chdir={tmp_path}", "--unset=UV", f"PATH={link.parent}:{os.environ['PATH']}"]
    with up("--storage", "memory", program=[*env, str(link), "up"]) as started:
        assert "\n  legacy-queue requests\n" in started.text
        evaluated = started.found(r"\n  (eval [^\n]*)\n")
        elsewhere = f"{evaluated}; cd /; legacy-queue create-task p/w -- true >&2; env -0"
        variables = variables_of([*env, "bash", "-euc", elsewhere])
    assert {"LEGACY_QUEUE_ROOT_URL", "TASKCLUSTER_ROOT_URL", "TASKCLUSTER_ACCESS_TOKEN"} < variables.keys()
    nowhere = subprocess.run([*env, link, "env"], capture_output=True, text=True, check=False)
    assert (nowhere.returncode, nowhere.stdout) == (2, "")
    assert "No queue runs in this directory" in nowhere.stderr


def test_if_only_uv_run_puts_the_program_on_the_path_up_prints_its_full_path(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("legacy-queue")
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "UV": "uv"}  # what `uv run` sets
    script = f"import sys; sys.argv = ['{program}']; from legacy_queue.cli import up; print(up._program())"
    command = [sys.executable, "-c", script]
    assert subprocess.check_output(command, cwd=tmp_path, env=env, text=True) == f"{program}\n"


def test_if_up_was_started_with_python_m_the_commands_that_it_prints_work_too(tmp_path: Path) -> None:
    with up("--data-dir", str(tmp_path), program=[*COMMAND, "up"]) as started:
        assert "-m legacy_queue requests\n" in started.text
        assert started.exported["LEGACY_QUEUE_ROOT_URL"] in started.text


def test_scripts_up_with_rabbitmq_publishes_events_on_the_broker_whose_url_it_prints(running: Up) -> None:
    with consumer(running.broker, "taskcluster-queue") as listener:
        listener.bind("task-pending", "primary.#.p.w.#")
        task_id = running.create_task()
        [message] = wait_until(listener.messages)
    assert json.loads(message.body)["status"]["taskId"] == task_id
    known = re.sub(r"//guest:[0-9a-f]{48}@", "//guest:guest@", running.broker)
    assert known != running.broker
    with pytest.raises(Exception, match="ACCESS_REFUSED"), consumer(known, "taskcluster-queue"):
        pass


def test_the_help_of_scripts_up_has_the_options_of_a_clone() -> None:
    said = subprocess.check_output([SCRIPT, "--rabbitmq", "--help"], text=True)
    assert "\n  --demo " in said
    assert "\n  --rabbitmq " in said


# --- a page in a browser can read nothing from the ports that up opens

FOREIGN = "queue.evil.example"
PATHS = ("/events?follow=false", "/v1/ping", "/metrics", "/control/v1/requests", f"/{ACCOUNT}?comp=list")


def descendants(pid: int) -> Iterator[int]:
    """The process and all processes that it started."""
    yield pid
    for line in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield from descendants(int(line))


def listening(pid: int) -> set[int]:
    """The TCP ports that the process or its descendants listen on."""
    inodes = set()
    for each in descendants(pid):
        for descriptor in Path(f"/proc/{each}/fd").iterdir():
            with suppress(OSError):
                inodes.add(os.readlink(descriptor))
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in inodes:
                ports.add(int(local.rpartition(":")[2], 16))
    return ports


def answered(port: int, head: str) -> bytes:
    """What the port sends for this request until it closes the connection."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), LONG) as connection, suppress(ConnectionResetError):
        connection.sendall(f"{head}\r\nConnection: close\r\n\r\n".encode())
        while data := connection.recv(65536):
            received += data
    return received


def test_a_page_from_another_host_or_origin_can_read_nothing_from_any_port(running: Up) -> None:
    ports = listening(running.process.pid)
    assert len(ports) == 5, "one of the server, three of Azurite, one of RabbitMQ"
    assert int(running.exported["LEGACY_QUEUE_ROOT_URL"].rpartition(":")[2]) in ports
    paths = (*PATHS, f"/v1/task/{running.create_task()}")
    for port in ports:
        for path in paths:
            answer = answered(port, f"GET {path} HTTP/1.1\r\nHost: {FOREIGN}:{port}")
            assert answer.startswith((b"HTTP/1.1 4", b"AMQP")), (port, path, answer)
        for method in ("GET", "OPTIONS"):
            origin = f"Origin: http://{FOREIGN}\r\nAccess-Control-Request-Method: GET"
            head = f"{method} /v1/ping HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{origin}"
            assert b"access-control-" not in answered(port, head).lower()
