"""``legacy-queue up``: the commands that it prints work unchanged, and no page of another site reads it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import requests

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.domain.priority import PRIORITIES
from legacy_queue.local_processes.azurite import ACCOUNT
from tests.adapters.amqp_side import consumer
from tests.system.processes import LONG, wait_until

pytestmark = pytest.mark.processes

COMMAND = [sys.executable, "-m", "legacy_queue"]
UP = [*COMMAND, "up"]
WITH_RABBITMQ = [sys.executable, str(Path(__file__).parents[2] / "scripts" / "up_with_rabbitmq.py")]


def run(*words: str, program: Sequence[str] = COMMAND) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*program, *words], capture_output=True, text=True, check=False)


@contextmanager
def up(*words: str, program: Sequence[str] = UP) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its output, once the queue is up. Ctrl-C ends it, with exit code 0."""
    command = [*program, "--port", "0", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process, printed_until(process, "bewit=")
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(LONG) == 0  # before its pipes are closed


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


def root_url_in(text: str) -> str:
    return found(r"root URL +(\S+)", text)


def create_task(text: str) -> str:
    """The id of a task that is created at the queue that ``up`` has named in this text."""
    queue = ("--root-url", root_url_in(text), "--client-id", "development")
    token = found(r"accessToken +(\S+)", text)
    created = run("create-task", *queue, "--access-token", token, "p/w", "--", "true")
    assert created.returncode == 0, created.stderr
    return created.stdout.strip()


def tried(text: str) -> list[str]:
    """The output of the commands that ``up`` says to try."""
    script = found(r"Try, in another terminal:\n\n(.*?)\n\n(?:Look into Azurite|The queues)", text)
    lines = re.findall(r"^  export (?!AZURE).*", text, re.MULTILINE)
    lines += [line for line in script.splitlines() if line.startswith("  ")]
    # the program has the name of this test's interpreter: python -m legacy_queue
    commands = "\n".join(re.sub(r"^ *\S*__main__\.py", " ".join(COMMAND), line) for line in lines)
    ran = subprocess.run(["bash", "-euc", commands], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def watched(text: str) -> str:
    """The first line of the command that ``up`` says to watch with."""
    variables = dict(re.findall(r"  export (\S+)=(\S+)", text))
    assert re.search(r"terminal of its own:\n(\n  export \S+)*\n  \S+ events\n", text)
    env = {**os.environ, **variables}
    with subprocess.Popen([*COMMAND, "events"], stdout=subprocess.PIPE, text=True, env=env) as watching:
        assert watching.stdout
        output, seen = watching.stdout, list[str]()
        reading = threading.Thread(target=lambda: seen.append(output.readline()))
        try:
            reading.start()
            while reading.is_alive():  # it prints only events after its request
                create_task(text)
                reading.join(0.5)
        finally:
            watching.kill()
    return seen[0]


def shown_page(text: str) -> str:
    """The type of what the link to the page leads to."""
    with requests.Session() as browser:
        page = browser.get(found(r"Look at its page; [^:]+:\n\n +(\S+)", text), timeout=LONG)
    assert page.status_code == 200
    return page.headers["content-type"].partition(";")[0]


def exported(text: str) -> str:
    """The connection string that ``up`` says how to export."""
    line = found(r"\n  (export AZURE_\S+ .*?)\n", text)
    shell = ["bash", "-euc", f'{line}; echo "$AZURE_STORAGE_CONNECTION_STRING"']
    return subprocess.run(shell, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """With an Azurite, and a broker that ends with it."""
    data_dir = str(tmp_path_factory.mktemp("up"))
    options = ("--azurite", "--azurite-default-account", "--data-dir", data_dir)
    with up(*options, program=WITH_RABBITMQ) as started:
        yield started
    with pytest.raises(ConnectionRefusedError), consumer(broker_in(started[1]), "taskcluster-queue"):
        pass


def test_what_up_prints_runs_a_task_and_watches_it_and_looks_into_its_azurite(
    running: tuple[subprocess.Popen[str], str],
) -> None:
    _, text = running
    assert "hello" in tried(text)
    assert re.search(r" task-(defined|pending) +\S{22} ", watched(text))
    assert shown_page(text) == "text/html"
    assert "AccountKey" not in text
    printed_queues = dict(re.findall(r"^  (\S+) +(lq-\S+)$", text, re.MULTILINE))
    assert list(printed_queues) == list(PRIORITIES)
    queues = {name for name, _ in AzureAccount(exported(text), "lq").queues("lq-")}
    assert set(printed_queues.values()) < queues, "the worker has polled them"


def test_a_program_that_is_linked_on_the_path_has_its_name_and_its_env_is_what_up_prints(
    tmp_path: Path,
) -> None:
    link = tmp_path / "bin/legacy-queue"  # as uv and pipx make it
    link.parent.mkdir()
    link.symlink_to(Path(sys.executable).with_name("legacy-queue"))
    env = ["env", f"--chdir={tmp_path}", f"PATH={link.parent}:{os.environ['PATH']}"]
    with up("--storage", "memory", program=[*env, str(link), "up"]) as (_, text):
        assert "\n  legacy-queue events\n" in text
        evaluated = found(r"or (eval [^\n]*) in this directory:", text)
        shell = [*env, "bash", "-euc", f"{evaluated}; cd /; export -p; legacy-queue create-task p/w -- true"]
        ran = subprocess.run(shell, capture_output=True, text=True, check=True)
    printed = dict(re.findall(r"^  export (\S+)=(\S+)$", text, re.MULTILINE))
    variables = dict(re.findall(r'^declare -x (\S+)="(.*)"$', ran.stdout, re.MULTILINE))
    names = (
        "LEGACY_QUEUE_ROOT_URL",
        "TASKCLUSTER_ROOT_URL",
        "TASKCLUSTER_CLIENT_ID",
        "TASKCLUSTER_ACCESS_TOKEN",
    )
    assert printed == {name: variables[name] for name in names}
    nowhere = subprocess.run([*env, link, "env"], capture_output=True, text=True, check=False)
    assert (nowhere.returncode, nowhere.stdout) == (2, "")
    assert "No queue runs in this directory" in nowhere.stderr


def test_a_program_that_is_on_the_path_of_this_terminal_alone_has_its_path(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("legacy-queue")
    path = f"{program.parent}:{os.environ['PATH']}"  # as in an activated environment, uv run and scripts/up
    script = f"import sys; sys.argv = ['{program}']; from legacy_queue.cli import up; print(up._program())"
    command = [sys.executable, "-c", script]
    assert subprocess.check_output(command, cwd=tmp_path, env={**os.environ, "PATH": path}, text=True) == (
        f"{program}\n"
    )


def broker_in(text: str) -> str:
    """The URL of the broker that ``up`` has printed."""
    return found(r"RabbitMQ publishes the events on (amqp://\S+) ", text)


def test_scripts_up_with_rabbitmq_publishes_the_events_on_the_broker_that_it_prints(
    running: tuple[subprocess.Popen[str], str],
) -> None:
    _, text = running
    url = broker_in(text)
    with consumer(url, "taskcluster-queue") as listener:
        listener.bind("task-pending", "primary.#.p.w.#")
        task_id = create_task(text)
        [message] = wait_until(listener.messages)
    assert json.loads(message.body)["status"]["taskId"] == task_id
    known = re.sub(r"//guest:[0-9a-f]{48}@", "//guest:guest@", url)
    assert known != url
    with pytest.raises(Exception, match="ACCESS_REFUSED"), consumer(known, "taskcluster-queue"):
        pass


# --- what a page in a browser reads from the ports that up opens: nothing

FOREIGN = "queue.evil.example"
PATHS = ("/events?follow=false", "/v1/ping", "/metrics", "/control/v1/requests", f"/{ACCOUNT}?comp=list")


def descendants(pid: int) -> Iterator[int]:
    """The process and all that it has started."""
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
    """All that the port sends for this request until it closes the connection."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), LONG) as connection, suppress(ConnectionResetError):
        connection.sendall(f"{head}\r\nConnection: close\r\n\r\n".encode())
        while data := connection.recv(65536):
            received += data
    return received


def test_a_page_of_a_foreign_host_or_origin_reads_nothing_from_any_port(
    running: tuple[subprocess.Popen[str], str],
) -> None:
    process, text = running
    ports = listening(process.pid)
    assert len(ports) == 5, "the server, the three of Azurite, RabbitMQ"
    assert int(root_url_in(text).rpartition(":")[2]) in ports
    paths = (*PATHS, f"/v1/task/{create_task(text)}")
    for port in ports:
        for path in paths:
            answer = answered(port, f"GET {path} HTTP/1.1\r\nHost: {FOREIGN}:{port}")
            assert answer.startswith((b"HTTP/1.1 4", b"AMQP")), (port, path, answer)
        for method in ("GET", "OPTIONS"):
            origin = f"Origin: http://{FOREIGN}\r\nAccess-Control-Request-Method: GET"
            head = f"{method} /v1/ping HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{origin}"
            assert b"access-control-" not in answered(port, head).lower()
