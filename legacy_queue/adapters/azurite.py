"""Azurite as this server's own storage: found, started, watched, restarted and stopped.

Azurite saves every five seconds, and once more when it is told to end: it is always ended by SIGTERM
(or by its parent's end, see azurite/stdin_exit.js), because a kill loses what was acknowledged since.
Two of them on one folder overwrite each other without a word: the folder is locked, and the lock lives
until both the server and its Azurite are gone. Nothing here reads settings, logs or starts a thread, and
Azurite writes to a file, so that it never waits for somebody to read.
"""

import json
import os
import re
import subprocess
import time
import weakref
from datetime import timedelta
from pathlib import Path
from typing import IO, NamedTuple, Self

from legacy_queue.adapters.folder_lock import FolderUnavailable, lock_folder
from legacy_queue.adapters.node import NodeUnavailable, find_node

ACCOUNT = "devstoreaccount1"
# Azurite's documented key, the same everywhere: it guards nothing, Azurite listens on loopback.
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

_MAIN = Path("node_modules/azurite/dist/src/azurite.js")
_PRELOADS = ("index_patch.js", "stdin_exit.js")
_FLAGS = (
    "--silent",
    "--disableTelemetry",
    "--skipApiVersionCheck",  # the newest SDKs send a version that it does not know
    "--disableProductStyleUrl",  # else the first label of a dotted host name is taken for the account
    *("--blobKeepAliveTimeout", "120"),  # it closes idle connections after 5 s otherwise
    *("--queueKeepAliveTimeout", "120"),
    *("--tableKeepAliveTimeout", "120"),
)
_LISTENING = re.compile(r"Azurite (Blob|Queue|Table) service is successfully listening at http://\S+:(\d+)\n")
_BUSY = re.compile(r"EADDRINUSE: address already in use (\S+)")
_LAST_SAVE = timedelta(seconds=60)  # of a very large folder; it takes 0.06 s as a rule
_LOOK_AGAIN = 0.02  # seconds


class AzuriteUnavailable(Exception):
    """Azurite cannot serve; the message says why and what cures it, in a sentence for a person."""


class _PortInUse(AzuriteUnavailable):
    pass


class Ports(NamedTuple):
    """Where the three services listen; 0 lets the system choose."""

    blob: int = 0
    queue: int = 0
    table: int = 0


class Azurite:
    """One Azurite over one folder, on ports that stay the same for as long as they can be had.

    ``data_dir`` is made where it is missing; ``azurite_dir`` holds node_modules and the two preloads. Ports
    that are given are used or refused. Otherwise they are those that this folder had the last time, so that
    outstanding signed URLs stay good, or new ones where somebody else has taken one of those.
    """

    def __init__(
        self,
        data_dir: Path,
        azurite_dir: Path,
        *,
        host: str = "127.0.0.1",
        ports: Ports | None = None,
        node: str | None = None,
        patience: timedelta = timedelta(seconds=60),
    ) -> None:
        self._data_dir, self._azurite_dir, self._host = data_dir, azurite_dir, host
        self._ports, self._fixed = ports or Ports(), ports is not None
        self._node, self._patience = node, patience
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[bytes] | None = None
        _disown_after_fork(weakref.ref(self))

    def start(self) -> Self:
        """Azurite answers when this returns; after AzuriteUnavailable nothing is left of the attempt."""
        if self._process is not None:
            raise RuntimeError("this Azurite was started already: restart or stop it")
        try:
            command = [find_node(self._node), *self._words()]
            lock = lock_folder(self._data_dir)
        except (NodeUnavailable, FolderUnavailable) as refused:
            raise AzuriteUnavailable(str(refused)) from refused
        remembered = None if self._fixed else self._remembered()
        try:
            try:
                self._ports = self._listen(command, remembered or self._ports, lock)
            except _PortInUse:
                if remembered is None:
                    raise
                self._end()
                self._ports = self._listen(command, Ports(), lock)
            (self._data_dir / "ports.json").write_text(json.dumps(self._ports._asdict()) + "\n")
        except BaseException:
            self._lock = lock
            self.stop()
            raise
        self._lock = lock  # not before: gevent's Popen forks as others do, and needs it in the child
        self._fixed = True
        return self

    def restart(self) -> None:
        """Azurite answers again on the ports it had, whether it was alive or dead; may be tried again.

        Raises AzuriteUnavailable, also when somebody else took a port meanwhile.
        """
        self.stop()
        self.start()

    def stop(self) -> None:
        """Azurite has saved and is gone, and the folder is free; harmless when it was not running."""
        self._end()
        self._disown()

    def alive(self) -> bool:
        """Azurite has not ended; right even where somebody else reaps this process's children."""
        return self._process is not None and self._process.poll() is None

    __enter__ = start

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The process that was started last, alive or not; None before start and after stop."""
        return self._process.pid if self._process else None

    @property
    def ports(self) -> Ports:
        """The real ports, once it has started."""
        return self._ports

    @property
    def blob_url(self) -> str:
        return f"http://{self._host}:{self._ports.blob}/{ACCOUNT}"

    @property
    def queue_url(self) -> str:
        return f"http://{self._host}:{self._ports.queue}/{ACCOUNT}"

    @property
    def table_url(self) -> str:
        return f"http://{self._host}:{self._ports.table}/{ACCOUNT}"

    @property
    def connection_string(self) -> str:
        """What the Azure SDK's ``from_connection_string`` takes."""
        return (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};"
            f"BlobEndpoint={self.blob_url};QueueEndpoint={self.queue_url};TableEndpoint={self.table_url};"
        )

    def _words(self) -> list[str]:
        """Node's arguments but for the ports."""
        main = self._azurite_dir / _MAIN
        if not main.is_file():
            raise AzuriteUnavailable(
                f"Azurite is not installed in {self._azurite_dir}: run scripts/up, or `npm ci` there."
            )
        preloads = [
            word for name in _PRELOADS for word in ("--require", str(self._azurite_dir.resolve() / name))
        ]
        return [*preloads, str(main.resolve()), *_FLAGS, "--location", str(self._data_dir.resolve())]

    def _remembered(self) -> Ports | None:
        try:
            return Ports(**json.loads((self._data_dir / "ports.json").read_text()))
        except (OSError, ValueError, TypeError):  # none yet, or not ours: choose anew
            return None

    def _listen(self, command: list[str], ports: Ports, lock: IO[bytes]) -> Ports:
        """The real ports of a process that was started and listens on all of them."""
        for service, port in ports._asdict().items():
            command = [*command, f"--{service}Host", self._host, f"--{service}Port", str(port)]
        log = self._data_dir / "azurite.log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 our own words, no shell
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={k: v for k, v in os.environ.items() if not k.startswith("AZURITE_")},  # other accounts
                start_new_session=True,  # a terminal's Ctrl-C is for the server, which then ends Azurite
                pass_fds=[lock.fileno()],
            )
        deadline = time.monotonic() + self._patience.total_seconds()
        while True:
            ended = not self.alive()  # asked before reading, so that its last words are read
            said = log.read_text(errors="replace")
            found = {service.lower(): int(port) for service, port in _LISTENING.findall(said)}
            if len(found) == len(ports):
                return Ports(**found)
            if busy := _BUSY.search(said):
                raise _PortInUse(f"Azurite cannot listen on {busy[1]}: another program has that port.")
            if ended:
                raise AzuriteUnavailable(f"Azurite ended while it started; it said {_gist(said)}, see {log}.")
            if time.monotonic() > deadline:
                patience = self._patience.total_seconds()
                raise AzuriteUnavailable(f"Azurite did not begin to listen within {patience:g} s; see {log}.")
            time.sleep(_LOOK_AGAIN)

    def _end(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_LAST_SAVE.total_seconds())
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _disown(self) -> None:
        """Let go of the process and of the lock, without a word to either."""
        if self._process is not None and self._process.stdin is not None:
            self._process.poll()  # in a fork: not our child, hence ended
            self._process.stdin.close()
        if self._lock is not None:
            self._lock.close()
        self._process = self._lock = None


def _gist(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"\b(\w*Error|error|E[A-Z]{4,})\b", line)] or lines[-3:]
    return repr(" | ".join(telling[:3])) if telling else "nothing"


def _disown_after_fork(azurite: weakref.ref[Azurite]) -> None:
    """A fork of the owner holds neither lock nor standard input: Azurite ends when its owner does."""

    def disown() -> None:
        inherited = azurite()
        if inherited is not None:
            inherited._disown()

    os.register_at_fork(after_in_child=disown)
