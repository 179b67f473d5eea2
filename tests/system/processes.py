"""Starts real ``legacy-queue`` processes and always stops them.

They write to files, because a pipe can fill up.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests

from legacy_queue.testing.server_process import client_variables
from tests.process_guard import processes_with

T = TypeVar("T")

COMMAND = Path(sys.executable).parent / "legacy-queue"
LONG = 60.0  # seconds; a test that waits longer for something fails

# No line of a server's log may have any of these
SECRET_MARKS = (
    *("sig=", "Hawk ", "mac=", "AccountKey", "SharedKey", "popreceipt", '"accessToken"', "bewit="),
    *("amqp://", "amqps://", "signature="),
)


def wait_until(happens: Callable[[], T | None], timeout: float = LONG) -> T:
    """Wait until ``happens`` returns something true, and return that. Raises TimeoutError."""
    deadline = time.monotonic() + timeout
    while not (answer := happens()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{happens} did not happen")
        time.sleep(0.05)
    return answer


def processes_of(path: Path) -> list[int]:
    """The ids of the processes whose command line has this path: a server, its children and its Azurite."""
    return processes_with("cmdline", os.fsencode(path))


def has_ended(pid: int) -> bool:
    """Whether the process has ended, even if its parent has not noticed yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def environment(**more: str) -> dict[str, str]:
    """The tests' environment with ``more``, but without variables of legacy-queue and Taskcluster."""
    others = ("LEGACY_QUEUE_", "TASKCLUSTER_")
    return {**{name: os.environ[name] for name in os.environ if not name.startswith(others)}, **more}


def output_of(
    *words: object, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 2 * LONG
) -> str:
    """Run a command that must succeed within ``timeout`` seconds. Returns its standard output."""
    ran = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert ran.returncode == 0, f"{words} ended with {ran.returncode}\n{(ran.stdout + ran.stderr)[-8000:]}"
    return ran.stdout


@dataclass(eq=False)
class Running:
    """A process whose standard output and standard error are files."""

    process: "subprocess.Popen[bytes]"
    folder: Path

    @property
    def output(self) -> str:
        return (self.folder / "stdout").read_text()

    @property
    def errors(self) -> str:
        return (self.folder / "stderr").read_text()

    def lines(self, count: int) -> list[str]:
        """Wait until its output has this many lines or it has ended. Returns the lines."""
        wait_until(lambda: self.output.count("\n") >= count or self.process.poll() is not None)
        return self.output.splitlines()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        try:
            return self.process.wait(LONG)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGABRT)  # Python writes the stack of each thread to standard error
            self.process.wait(LONG)
            raise

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal and wait until the process has ended. Returns the exit code."""
        self.send(number)
        return self.wait()


RUNNING: list[Running] = []  # if a test fails, its report shows their logs


@contextmanager
def run(
    folder: Path, *words: str, under: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """Run ``legacy-queue`` with these words. If it still runs when the context ends, it is killed.

    ``under`` is a command that replaces itself by the command in its arguments.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "stdout").open("wb") as output, (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [*under, str(COMMAND), *words],
            cwd=folder,
            env=environment(PYTHONFAULTHANDLER="1", **(env or {})),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
    running = Running(process, folder)
    RUNNING.append(running)
    try:
        yield running
    except BaseException:
        sys.stderr.write(f"{running.errors[-4000:]}\n^ standard error of {words[0]}\n")
        raise
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(LONG)
        RUNNING.remove(running)


@contextmanager
def importing(
    module: str, seconds: float, folder: Path, *words: str, under: Sequence[str] = ()
) -> Iterator[Running]:
    """``run`` a process. The block begins while it imports this module, which takes ``seconds`` longer."""
    mark = folder / "importing"
    env = {"TEST_SLOW_IMPORT": module, "TEST_SLOW_SECONDS": str(seconds), "TEST_SLOW_MARK": str(mark)}
    with run(folder, *words, under=under, env=env) as running:
        wait_until(lambda: mark.exists() or running.process.poll() is not None)
        assert mark.exists(), running.errors
        yield running


@dataclass(eq=False)
class Server(Running):
    """A server that is ready. ``line`` is its ready line, and none of ``secrets`` may be in its log."""

    data_dir: Path
    line: dict[str, Any]
    secrets: set[str] = field(default_factory=set)

    @property
    def root_url(self) -> str:
        return str(self.line["rootUrl"])

    @property
    def base_url(self) -> str:
        return str(self.line["baseUrl"])

    @property
    def credentials(self) -> dict[str, str]:
        return dict(self.line["credentials"])

    def connect(self) -> socket.socket:
        """A new connection to the server."""
        address = urlsplit(self.root_url)
        return socket.create_connection((address.hostname, address.port), LONG)

    def leaks(self) -> list[str]:
        """The lines with a secret, in its log and in its Azurite's."""
        logs = [self.errors, *(log.read_text() for log in self.data_dir.glob("azurite/*.log"))]
        return [line for log in logs for line in leaks(log, self.secrets)]

    def ready(self) -> int:
        """The status of the answer to ``/ready``."""
        return requests.get(f"{self.root_url}/ready", timeout=LONG).status_code


def read_all(connection: socket.socket) -> bytes:
    """Read all bytes until the server closes the connection."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def leaks(log: str, secrets: Iterable[str]) -> list[str]:
    """The lines that have a secret."""
    forbidden = [*secrets, *SECRET_MARKS]
    return [line for line in log.splitlines() if any(secret in line for secret in forbidden)]


def secrets_of(env: Mapping[str, str]) -> set[str]:
    """The values of secret settings in this environment, and their secret parts."""
    own = ("CONNECTION_STRING", "SIGNING_SECRETS", "AMQP_URL")
    secrets = {value for name, value in env.items() if name.endswith(own)}
    clients = json.loads(env.get("LEGACY_QUEUE_CLIENTS", "{}"))
    secrets |= {client["accessToken"] for client in clients.values()}
    return secrets | set(filter(None, [urlsplit(env.get("LEGACY_QUEUE_AMQP_URL", "")).password]))


@contextmanager
def serve(
    folder: Path,
    *options: str,
    data_dir: Path | None = None,
    under: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Run a server on a port of its own. The block begins when it is ready. ``data_dir`` is by default
    ``data``.

    When the block ends, SIGINT stops the server without waiting for requests, unless the test has stopped it.
    Asserts that it printed one line, that its log has no secret, and that its Azurite stopped too.
    """
    data_dir = data_dir or folder / "data"
    env = env or {}
    words = ("serve", "--port", "0", "--data-dir", str(data_dir), *options)
    with run(folder, *words, under=under, env=env) as running:
        lines = running.lines(1)
        assert lines, running.errors
        server = Server(running.process, folder, data_dir, json.loads(lines[0]))
        server.secrets.update(secrets_of(env))
        if "credentials" in server.line:
            server.secrets.add(server.credentials["accessToken"])
        if (of_azurite := data_dir / "azurite/connection-string").exists():
            server.secrets.add(of_azurite.read_text().partition("AccountKey=")[2].partition(";")[0])
        try:
            yield server
            assert server.output.count("\n") == 1
        finally:
            try:
                if running.process.poll() is None:
                    assert running.end(signal.SIGINT) == 0, running.errors
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(running.process.pid, signal.SIGKILL)
        assert server.leaks() == []
        assert wait_until(lambda: not processes_of(data_dir)), "the server's Azurite has ended with it"


@contextmanager
def work(folder: Path, server: Server, worker_type: str, *options: str) -> Iterator[Running]:
    """Run a ``legacy-queue worker`` for the pool ``system/<worker_type>``."""
    env = client_variables(server.line)
    with run(folder, "worker", f"system/{worker_type}", *options, env=env) as running:
        yield running
        assert leaks(running.errors, server.secrets) == []
