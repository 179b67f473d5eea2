"""Real ``legacy-queue`` processes, always ended, whose outputs are files: nothing ever waits for a pipe."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

COMMAND = Path(sys.executable).parent / "legacy-queue"
LONG = 60.0  # seconds that nothing takes: the end of what would hang
HASTY_CLAIM = 6  # seconds that a claim lasts on the servers that are in a hurry

# What no line of a server's log may hold, whatever the values are
SECRET_MARKS = (
    *("sig=", "Hawk ", "mac=", "AccountKey", "SharedKey", "popreceipt", '"accessToken"', "bewit="),
    *("amqp://", "amqps://", "signature="),
)
_TELLS_IMPORTS = {"PYTHONPROFILEIMPORTTIME": "1"}  # on standard error
_SECRET_SETTINGS = ("CONNECTION_STRING", "SIGNING_SECRETS", "AMQP_URL")


def wait_until(happens: Callable[[], Any]) -> Any:
    """What ``happens`` answers once that is true; raises TimeoutError."""
    deadline = time.monotonic() + LONG
    while not (answer := happens()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{happens} did not happen")
        time.sleep(0.05)
    return answer


def processes_of(path: Path) -> list[int]:
    """The processes that have this path in their command line: a server, its children, its Azurite."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and os.fsencode(path) in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def azurite_of(data_dir: Path) -> int:
    """The process id of the Azurite that a server has over this data directory."""
    [pid] = processes_of(data_dir / "azurite")
    return pid


def environment(**more: str) -> dict[str, str]:
    """That of the tests without the settings that somebody may have there."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LEGACY_QUEUE_", "TASKCLUSTER_"))
    }
    return {**own, **more}


@dataclass
class Running:
    """A process whose standard output and error are files."""

    process: "subprocess.Popen[bytes]"
    folder: Path

    @property
    def output(self) -> str:
        return (self.folder / "stdout").read_text()

    @property
    def errors(self) -> str:
        return (self.folder / "stderr").read_text()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        try:
            return self.process.wait(LONG)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGABRT)  # Python tells on standard error where each thread is
            self.process.wait(LONG)
            raise

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal and wait; the exit code."""
        self.send(number)
        return self.wait()


RUNNING: list[Running] = []  # what a failed test shows the logs of


@contextmanager
def run(folder: Path, *words: str, under: Sequence[str] = (), **env: str) -> Iterator[Running]:
    """``legacy-queue`` with these words, killed at the end of the context where it still runs.

    ``under`` is a command that becomes the one behind it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "stdout").open("wb") as output, (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [*under, str(COMMAND), *words],
            cwd=folder,
            env=environment(PYTHONFAULTHANDLER="1", **env),
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
        sys.stderr.write(f"{running.errors[-4000:]}\n^ what {words[0]} said\n")
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
    """``run`` of a process that has begun to import the module, which takes so many seconds more."""
    mark = folder / "importing"
    held = {"TEST_HELD_IMPORT": module, "TEST_HELD": str(seconds), "TEST_HELD_MARK": str(mark)}
    with run(folder, *words, under=under, **held) as running:
        wait_until(lambda: mark.exists() or running.process.poll() is not None)
        assert mark.exists(), running.errors
        yield running


@dataclass
class Server(Running):
    """A server that has said that it is ready. ``secrets`` are values that its log must never hold."""

    data_dir: Path
    line: dict[str, Any]
    began: int  # how long its log was when it was ready
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

    @property
    def imported(self) -> list[str]:
        """The modules that it has imported since it was ready."""
        lines = self.errors[self.began :].splitlines()
        return [line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")]

    def leaks(self) -> list[str]:
        """The lines of its log, and of its Azurite's, that hold something secret."""
        logs = [self.errors, *(log.read_text() for log in self.data_dir.glob("azurite/*.log"))]
        return [line for log in logs for line in leaks(log, self.secrets)]

    def kill(self) -> None:
        """End all its processes at once, as a loss of power would."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.wait()


def leaks(log: str, secrets: Iterable[str]) -> list[str]:
    """The lines that hold something secret."""
    forbidden = [*secrets, *SECRET_MARKS]
    return [line for line in log.splitlines() if any(one in line for one in forbidden)]


def secrets_of(env: Mapping[str, str]) -> set[str]:
    """The settings in this environment, and parts of them, that no log may hold."""
    secrets = {env[name] for one in _SECRET_SETTINGS if (name := f"LEGACY_QUEUE_{one}") in env}
    clients = json.loads(env.get("LEGACY_QUEUE_CLIENTS", "{}"))
    secrets |= {client["accessToken"] for client in clients.values()}
    password = urlsplit(env.get("LEGACY_QUEUE_AMQP_URL", "")).password
    return secrets | ({password} if password and password != "guest" else set())


@contextmanager
def serve(
    folder: Path, *options: str, data_dir: Path | None = None, under: Sequence[str] = (), **env: str
) -> Iterator[Server]:
    """A server on a port of its own that is ready; stopped at the end, its log free of anything secret.

    It imports nothing once it is ready: an import that has no file descriptor would fail a request.
    Unless the test has ended it, it is stopped as by Ctrl-C, which does not wait for requests. ``data_dir``
    is ``<folder>/data`` where it is not given.
    """
    data_dir = data_dir or folder / "data"
    with run(
        folder,
        *("serve", "--port", "0", "--data-dir", str(data_dir), *options),
        under=under,
        **env,
        **_TELLS_IMPORTS,
    ) as running:
        wait_until(lambda: "\n" in running.output or running.process.poll() is not None)
        assert running.process.poll() is None, running.errors
        server = Server(running.process, folder, data_dir, json.loads(running.output), len(running.errors))
        RUNNING[RUNNING.index(running)] = server
        server.secrets.update(secrets_of(env))
        if "credentials" in server.line:
            server.secrets.add(server.credentials["accessToken"])
        try:
            yield server
            assert running.process.poll() is not None or server.imported == []
        finally:
            RUNNING[RUNNING.index(server)] = running
            try:
                if running.process.poll() is None:
                    assert running.end(signal.SIGINT) == 0, running.errors
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(running.process.pid, signal.SIGKILL)
        assert server.leaks() == []
        assert wait_until(lambda: not processes_of(data_dir)), "the server's Azurite has ended with it"


@contextmanager
def resolve(folder: Path, *options: str, **env: str) -> Iterator[Running]:
    """A ``legacy-queue resolve`` that has begun; stopped at the end, its log free of anything secret."""
    with run(folder, "resolve", *options, **env) as running:
        wait_until(lambda: "\n" in running.output or running.process.poll() is not None)
        assert running.process.poll() is None, running.errors
        yield running
        if running.process.poll() is None:
            assert running.end() == 0, running.errors
        assert leaks(running.errors, secrets_of(env)) == []


@dataclass
class Working(Running):
    """A sample worker and the steps that it has told."""

    @property
    def steps(self) -> list[dict[str, Any]]:
        """One for each whole line of its log."""
        return [json.loads(line) for line in self.errors.splitlines(keepends=True) if line.endswith("\n")]

    @property
    def told(self) -> list[str]:
        """The steps' names, without the polls."""
        return [step["event"] for step in self.steps if step["event"] not in ("poll", "claim-work")]

    def wait_for(self, event: str, times: int = 1) -> None:
        wait_until(lambda: self.told.count(event) >= times or self.process.poll() is not None)
        assert self.told.count(event) >= times, self.errors


@contextmanager
def work(
    folder: Path, server: Server, worker_type: str, *options: str, credentials: dict[str, str] | None = None
) -> Iterator[Working]:
    """A ``legacy-queue worker`` of ``system/<worker_type>``."""
    credentials = credentials or server.credentials
    own = ("--provisioner", "system", "--worker-type", worker_type, "--poll-interval", "100ms")
    with run(
        folder,
        *("worker", *own, *options),
        LEGACY_QUEUE_ROOT_URL=server.root_url,
        TASKCLUSTER_CLIENT_ID=credentials["clientId"],
        TASKCLUSTER_ACCESS_TOKEN=credentials["accessToken"],
    ) as running:
        yield Working(running.process, running.folder)
        assert leaks(running.errors, server.secrets) == []
