"""Azurite as a process that this process starts, watches and stops: plain, of any version.

It saves every five seconds, and once more when it ends by SIGTERM, or with this process, by the end of its
standard input (see azurite_preload.js). A kill loses what it acknowledged since the last save. Its folder is
locked, since two Azurites would damage it, until both this process and Azurite have ended. It writes its
output to a file, so that it never blocks. This module reads no settings, does not log and starts no thread.
"""

import base64
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from legacy_queue.ports.account import UnusableStorage
from legacy_queue.private_folder import (
    UMASK,
    InUse,
    lock_private,
    private_opener,
    read_private,
    write_private,
)

ACCOUNT = "devstoreaccount1"
# Azurite's documented key, the same everywhere: it protects nothing
DEFAULT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
CONNECTION_STRING = "connection-string"  # the file in the folder

_HOST = "127.0.0.1"
_PRELOAD = Path(__file__).with_name("azurite_preload.js")
_START_TIMEOUT = 60.0  # seconds
_STOP_TIMEOUT = 60.0  # seconds, to save a very large folder
_LOCK_TIMEOUT = 2.0  # seconds, for an Azurite that still saves after its owner has died
_POLL_INTERVAL = 0.02  # seconds
_FLAGS = (
    "--silent",
    "--disableTelemetry",
    "--disableProductStyleUrl",  # otherwise it takes the first label of a dotted host name for the account
    "--blobKeepAliveTimeout=120",  # otherwise it closes idle connections after 5 s
    "--queueKeepAliveTimeout=120",
    "--tableKeepAliveTimeout=120",
)
_LISTENING = re.compile(r"Azurite (Blob|Queue|Table) service is successfully listening at \S+:(\d+)\n")
_BUSY = re.compile(r"EADDRINUSE: address already in use (\S+)")
_GET_ONE = (
    "`npm install -g azurite` installs it, or run it in a container, and use --storage azure with its "
    "connection string"
)


class _Busy(UnusableStorage):
    """Another program uses an address."""


class Ports(NamedTuple):
    """The ports of the three services; 0 lets the system choose."""

    blob: int = 0
    queue: int = 0
    table: int = 0


DEFAULT_PORTS = Ports(10000, 10001, 10002)  # Azurite's defaults, which its tools expect


class Azurite:
    """An Azurite over a folder, on ports that stay the same as long as they are free: signed URLs stay valid.

    It is the one of ``azurite_dir``, a folder with node_modules, by default that on PATH or beside
    this Python. The ``preferred``
    ports, as far as they are free, are for a folder that was never served. The key of its account is random
    and stays the same for the folder, or is the documented one with ``has_default_key``. ``is_open``: it
    listens on all addresses of this machine. The folder is created where it is missing, and is private with
    everything in it.
    """

    def __init__(
        self,
        folder: Path,
        azurite_dir: Path | None = None,
        *,
        preferred: Ports = Ports(),  # noqa: B008 - a constant
        has_default_key: bool = False,
        is_open: bool = False,
    ) -> None:
        self._folder = folder
        self._azurite_dir = azurite_dir
        self._preferred = preferred
        self._listen_on = "0.0.0.0" if is_open else _HOST  # noqa: S104 - as requested
        self.log = folder / "azurite.log"
        self._connection_file = folder / CONNECTION_STRING
        last_key, self._last_ports = self._last_start()
        self._key = DEFAULT_KEY if has_default_key else last_key
        self.ports = Ports()
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None
        # a fork must hold neither lock nor standard input, so that Azurite ends with its owner
        disown = weakref.WeakMethod(self._disown)
        os.register_at_fork(after_in_child=lambda: (method := disown()) and method())

    @property
    def blob_url(self) -> str:
        return f"http://{_HOST}:{self.ports.blob}/{ACCOUNT}"

    @property
    def queue_url(self) -> str:
        return f"http://{_HOST}:{self.ports.queue}/{ACCOUNT}"

    @property
    def table_url(self) -> str:
        return f"http://{_HOST}:{self.ports.table}/{ACCOUNT}"

    @property
    def connection_string(self) -> str:
        """For ``from_connection_string`` of the Azure SDK."""
        return (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={self._key};"
            f"BlobEndpoint={self.blob_url};QueueEndpoint={self.queue_url};TableEndpoint={self.table_url};"
        )

    @property
    def pid(self) -> int | None:
        """The id of the last started process, alive or not; None before start and after stop."""
        return self._process.pid if self._process else None

    def start(self) -> Self:
        """Return once Azurite answers. Its connection string is then in a file, for its owner alone.

        Raises UnusableStorage, and then neither is left. Without a program there is no folder either.
        """
        self._program()
        lock = self._locked()
        try:
            try:
                self.ports = self._last_ports = self._start_on_any(lock)
            finally:
                self._lock = lock  # not before the fork of gevent's Popen, whose child needs it
            write_private(self._connection_file, self.connection_string + "\n")
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> bool:
        """Let Azurite save and end, and free the folder. Safe to repeat.

        Returns False if it was alive, and its exit code was then not 0.
        """
        has_ended_well = self._end()
        self._disown()
        return has_ended_well

    def alive(self) -> bool:
        """Whether Azurite runs, also where other code reaps the children of this process."""
        if self._process is None or self._process.poll() is not None:
            return False
        try:  # gevent's poll sees only what gevent has reaped
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _last_start(self) -> tuple[str, Ports | None]:
        """The key and the ports of the last start over this folder; a new key, and None, without one."""
        key = base64.b64encode(secrets.token_bytes(64)).decode()
        with suppress(OSError, ValueError):  # missing, damaged or another user's
            last = read_private(self._connection_file).decode()
            ports = Ports(*map(int, re.findall(r"Endpoint=http://[^:]+:(\d+)/", last)))
            last_key = re.search(r"AccountKey=([\w+/]{86}==);", last)
            if last_key and last_key[1] != DEFAULT_KEY:
                key = last_key[1]
            return key, ports if ports.table else None
        return key, None

    def _locked(self) -> int:
        """Lock the folder, for as long as any process has this descriptor open."""
        try:
            return lock_private(self._folder / "lock", _LOCK_TIMEOUT)
        except OSError as error:
            raise UnusableStorage(
                f"The data folder {self._folder} cannot be used: {error.strerror}."
            ) from error
        except InUse as holder:
            raise UnusableStorage(
                f"The data folder {self._folder} is in use by process {holder}: stop it or choose another "
                "folder."
            ) from None

    def _start_on_any(self, lock: int) -> Ports:
        ports = self._last_ports or Ports(*(port if _is_free(port) else 0 for port in self._preferred))
        try:
            return self._listen(ports, lock)
        except _Busy:
            self._end()
            return self._listen(Ports(), lock)

    def _listen(self, ports: Ports, lock: int) -> Ports:
        """Start the process; its real ports, once it listens on all of them."""
        words, environment = self._command(ports)
        with open(self.log, "wb", opener=private_opener) as output:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - no shell
                    words,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,  # Ctrl-C reaches only the owner, which then stops it
                    pass_fds=[lock],
                    umask=UMASK,
                )
            except OSError as error:
                raise UnusableStorage(f"{words[0]} cannot be started: {error.strerror}.") from error
        deadline = time.monotonic() + _START_TIMEOUT
        while True:
            ended = not self.alive()  # before its output is read, which is then complete
            said = self.log.read_text(errors="replace")
            if busy := _BUSY.search(said):
                raise _Busy(f"Azurite cannot listen on {busy[1]}: another program has that port.")
            listening = {service.lower(): int(port) for service, port in _LISTENING.findall(said)}
            if len(listening) == len(ports):
                return Ports(**listening)
            if ended:
                raise UnusableStorage(
                    f"Azurite ended while it started; it said {_gist(said)}, see {self.log}."
                )
            if time.monotonic() > deadline:
                raise UnusableStorage(
                    f"Azurite did not begin to listen within {_START_TIMEOUT:g} s; see {self.log}."
                )
            time.sleep(_POLL_INTERVAL)

    def _command(self, ports: Ports) -> tuple[list[str], dict[str, str]]:
        """The command that listens on these ports, and its environment; raises UnusableStorage."""
        program = self._program()
        listen = [f"--{service}Port={port}" for service, port in ports._asdict().items()]
        listen += [f"--{service}Host={self._listen_on}" for service in ports._fields]
        # not the user's own accounts
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AZURITE_")}
        environment["PATH"] = _search_path()
        environment["AZURITE_ACCOUNTS"] = f"{ACCOUNT}:{self._key}"  # a command line is read by everybody
        preload = str(_PRELOAD.resolve()).replace("\\", "\\\\").replace('"', '\\"')
        environment["NODE_OPTIONS"] = f'{environment.get("NODE_OPTIONS", "")} --require "{preload}"'
        location = f"--location={self._folder.resolve()}"
        return [str(program), *_known_flags(program), location, *listen], environment

    def _program(self) -> Path:
        if self._azurite_dir:
            program = self._azurite_dir.absolute() / "node_modules/.bin/azurite"
            if not program.is_file():
                raise UnusableStorage(
                    f"There is no {program}: run `npm install azurite` in {self._azurite_dir}, or `npm ci` "
                    "where it has a lock."
                )
            return program
        on_path = shutil.which("azurite", path=_search_path())
        if not on_path:
            raise UnusableStorage(
                f"There is no azurite on PATH: {_GET_ONE}. --azurite-dir names a folder whose node_modules "
                "has it, and --storage embedded needs none."
            )
        return Path(on_path)

    def _end(self) -> bool:
        """As ``stop``, without freeing the folder."""
        if self._process is None or self._process.stdin is None:
            return True
        if not self.alive():
            self._process.stdin.close()
            return True
        self._process.terminate()  # it may end at the end of its input, and this would then kill it
        self._process.stdin.close()  # as SIGTERM, for a process that does not handle signals yet
        try:
            self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        return self._process.returncode == 0

    def _disown(self) -> None:
        """Forget the process and the lock, without ending either."""
        if self._process is not None and self._process.stdin is not None:
            self._process.poll()  # in a fork it is no child, and counts as ended
            self._process.stdin.close()
        if self._lock is not None:
            os.close(self._lock)
        self._process = None
        self._lock = None


def _search_path() -> str:
    """PATH, and the folder of this Python, where scripts/up puts azurite, and node where PATH has none."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)])


def _known_flags(program: Path) -> list[str]:
    """Those of the flags that this version declares: Azurite ends at any other."""
    try:
        declared = (program.resolve().parent / "common/Environment.js").read_text()
    except OSError:  # the program is a script of its own, which starts Azurite
        return [*_FLAGS]
    return [flag for flag in _FLAGS if f'"{flag[2:].partition("=")[0]}"' in declared]


def _is_free(port: int) -> bool:
    with suppress(OSError), socket.create_server((_HOST, port)):
        return True
    return False


def _gist(said: str) -> str:
    plain = re.sub(r"\x1b\][^\x07]*\x07", "", said)  # without window titles
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\b(\w*Error|error|E[A-Z]{4,})\b", line)] or lines[-3:]
    return repr(" | ".join(line[:300] for line in errors[:3])) if errors else "nothing"
