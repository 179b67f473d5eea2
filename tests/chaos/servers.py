"""Servers on one storage and one broker, which are started again when they end, and acts on them."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from legacy_queue.local_processes.azurite import Azurite

from .record import Kill, Record
from .timetable import Act

# the kernel kills it when the script dies
_SERVE = ("setpriv", "--pdeathsig", "KILL", str(Path(sys.executable).parent / "legacy-queue"), "serve")
_LOOK_AGAIN = 0.02  # seconds
_WHILE_IT_STARTS = 10.0  # seconds that a kill waits for its process
_PAUSE = 1.0  # seconds until a server that ended by itself is started again


class Server:
    """``legacy-queue serve``, started again as soon as its supervisor has died, always on a new port.

    ``root_url`` is None while it is not ready. Its logs are in ``folder``. Records each end that was no kill.
    """

    def __init__(
        self, number: int, folder: Path, environment: Mapping[str, str], record: Record, *options: str
    ) -> None:
        self.number, self._record = number, record
        self.root_url: str | None = None
        self._folder, self._environment, self._options = folder, dict(environment), options
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name=f"server {number}")

    def start(self) -> None:
        self._keeper.start()

    def stop(self) -> None:
        """Kill all its processes, and start no more."""
        self._is_over.set()
        while self._keeper.is_alive():
            if self._process:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            self._keeper.join(_LOOK_AGAIN)

    def kill(self, what: str) -> None:
        """Send SIGKILL to its ``worker`` process, its ``supervisor``, or ``both``."""
        deadline = time.monotonic() + _WHILE_IT_STARTS
        while not (pids := self._pids(what)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"server {self.number} has no {what} to kill")
            time.sleep(_LOOK_AGAIN)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _pids(self, what: str) -> list[int]:
        process = self._process
        if process is None or process.poll() is not None:
            return []
        workers: list[int] = []
        with suppress(OSError):
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            workers = [int(pid) for pid in children.split()]
        return {
            "worker": workers[:1],
            "supervisor": [process.pid],
            "both": [process.pid, *workers] if workers else [],
        }[what]

    def _keep(self) -> None:
        while not self._is_over.is_set():
            with (self._folder / f"server-{self.number}.log").open("ab") as log:
                self._process = subprocess.Popen(
                    [*_SERVE, "--port", "0", *self._options],
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                )
            with self._process as process:
                assert process.stdout
                line = process.stdout.readline()  # empty if it is killed before it is ready
                if line.endswith(b"\n"):
                    self.root_url = json.loads(line)["rootUrl"]
                code = process.wait()
                self.root_url = None
            if code != -signal.SIGKILL and not self._is_over.is_set():
                self._record.refusals.append((f"server {self.number}", f"ended by itself: exit code {code}"))
                self._is_over.wait(_PAUSE)


class Storage:
    """An Azurite that can be frozen; ``thaw``, and the death of the script, let it go on."""

    def __init__(self, azurite: Azurite) -> None:
        self._azurite = azurite
        self._frozen: subprocess.Popen[bytes] | None = None

    def freeze(self) -> None:
        words = 'kill -STOP "$0"; read -r _; kill -CONT "$0"'
        self._frozen = subprocess.Popen(["sh", "-c", words, str(self._azurite.pid)], stdin=subprocess.PIPE)

    def thaw(self) -> None:
        """Let it go on; does nothing if it is not frozen."""
        if self._frozen:
            self._frozen.communicate()

    def perform(self, what: str) -> None:
        """``freeze`` (SIGSTOP), ``thaw``, ``stop`` (SIGTERM, so that it saves) or ``start``."""
        acts: dict[str, Callable[[], object]] = {
            "freeze": self.freeze,
            "thaw": self.thaw,
            "stop": self._azurite.stop,
            "start": self._azurite.start,
        }
        acts[what]()


def perform(act: Act, servers: Sequence[Server], storage: Storage, record: Record) -> None:
    """Perform the act, and record a kill."""
    if act.is_of_storage:
        storage.perform(act.what)
    else:
        servers[act.server].kill(act.what)
        record.kills.append(Kill(act.what, act.server, time.time()))
