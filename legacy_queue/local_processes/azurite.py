"""Azurite as a process that this process starts, watches and stops. Any unmodified version will do.

Azurite saves its data every five seconds, and once more when it ends. It ends at a SIGTERM, and when this
process ends, because its standard input ends then (see azurite_preload.js). If it is killed, it loses what it
acknowledged since the last save. Two Azurites would damage the folder. So the folder is locked until both
this process and Azurite have ended. Azurite writes its output to a file, because a full pipe would block it.
This module reads no settings, does not log, and starts no thread.
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
# the key in Azurite's documentation; everybody knows it, so it protects nothing
DEFAULT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
CONNECTION_STRING = "connection-string"  # the name of the file in the folder

_HOST = "127.0.0.1"
_PRELOAD = Path(__file__).with_name("azurite_preload.js")
_START_TIMEOUT = 60.0  # seconds
_STOP_TIMEOUT = 60.0  # seconds; to save a very large folder takes long
_LOCK_TIMEOUT = 2.0  # seconds; an Azurite may still be saving after its owner has died
_POLL_INTERVAL = 0.02  # seconds
_FLAGS = (
    "--silent",
    "--disableTelemetry",
    "--disableProductStyleUrl",  # else the first label of a dotted host name would be the account
    "--blobKeepAliveTimeout=120",  # else it closes idle connections after 5 s
    "--queueKeepAliveTimeout=120",
    "--tableKeepAliveTimeout=120",
)
_LISTENING = re.compile(r"Azurite (Blob|Queue|Table) service is successfully listening at \S+:(\d+)\n")
_BUSY = re.compile(r"EADDRINUSE: address already in use (\S+)")
_GET_ONE = (
    "install it with `npm install -g azurite`; or run it in a container, and use --storage azure with its "
    "connection string"
)


class _Busy(UnusableStorage):
    """Another program uses one of the addresses."""


class Ports(NamedTuple):
    """The ports of the three services. If a port is 0, the system chooses one."""

    blob: int = 0
    queue: int = 0
    table: int = 0


DEFAULT_PORTS = Ports(10000, 10001, 10002)  # Azurite's own defaults, which Azure's tools expect


class Azurite:
    """An Azurite that keeps its data in a folder.

    The program is the one in the node_modules of ``azurite_dir``; by default it is the azurite on the PATH,
    or next to this Python. If the folder was served before, Azurite gets the same ports again while they are
    free, so that signed URLs stay valid. Otherwise it gets those of the ``preferred`` ports that are free.
    The key of its account is random and stays the same for the folder. With ``has_default_key`` it is the
    documented one. With ``is_open`` Azurite listens on all addresses of this machine. The folder is created
    if it is missing. The folder and everything in it is private.
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
        # a fork must give up the lock and Azurite's standard input: else Azurite would outlive its owner
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
        """The connection string, as ``from_connection_string`` of the Azure SDK takes it."""
        return (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={self._key};"
            f"BlobEndpoint={self.blob_url};QueueEndpoint={self.queue_url};TableEndpoint={self.table_url};"
        )

    @property
    def pid(self) -> int | None:
        """The id of the process that was started last, alive or not; None before start and after stop."""
        return self._process.pid if self._process else None

    def start(self) -> Self:
        """Start Azurite and return once it answers. A private file has its connection string then.

        Raises UnusableStorage; then neither the process nor the file is left. If there is no program, no
        folder is made either.
        """
        self._program()
        lock = self._locked()
        try:
            try:
                self.ports = self._last_ports = self._start_on_any(lock)
            finally:
                self._lock = lock  # not earlier: the fork in Popen would drop it
            write_private(self._connection_file, self.connection_string + "\n")
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> bool:
        """Let Azurite save its data and end, and unlock the folder. You can call it again.

        Returns False if Azurite was alive and did not end with the exit code 0.
        """
        has_ended_well = self._end()
        self._disown()
        return has_ended_well

    def alive(self) -> bool:
        """Whether Azurite runs. It is right even if other code reaps the children of this process."""
        if self._process is None or self._process.poll() is not None:
            return False
        try:  # gevent's poll knows only of processes that gevent has reaped
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _last_start(self) -> tuple[str, Ports | None]:
        """The key and the ports of the last start with this folder; if there was none, a new key and None."""
        key = base64.b64encode(secrets.token_bytes(64)).decode()
        with suppress(OSError, ValueError):  # the file is missing, damaged, or belongs to another user
            last = read_private(self._connection_file).decode()
            ports = Ports(*map(int, re.findall(r"Endpoint=http://[^:]+:(\d+)/", last)))
            last_key = re.search(r"AccountKey=([\w+/]{86}==);", last)
            if last_key and last_key[1] != DEFAULT_KEY:
                key = last_key[1]
            return key, ports if ports.table else None
        return key, None

    def _locked(self) -> int:
        """Lock the folder. The lock lasts as long as any process has this descriptor open."""
        try:
            return lock_private(self._folder / "lock", _LOCK_TIMEOUT)
        except OSError as error:
            raise UnusableStorage(
                f"The data folder {self._folder} cannot be used: {error.strerror}."
            ) from error
        except InUse as holder:
            raise UnusableStorage(
                f"The data folder {self._folder} is in use by process {holder}: stop that process, or choose "
                "another folder."
            ) from None

    def _start_on_any(self, lock: int) -> Ports:
        ports = self._last_ports or Ports(*(port if _is_free(port) else 0 for port in self._preferred))
        try:
            return self._listen(ports, lock)
        except _Busy:
            self._end()
            return self._listen(Ports(), lock)

    def _listen(self, ports: Ports, lock: int) -> Ports:
        """Start the process, and return its ports once it listens on all of them."""
        words, environment = self._command(ports)
        with open(self.log, "wb", opener=private_opener) as output:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - no shell
                    words,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,  # so that Ctrl-C reaches only the owner, which then stops Azurite
                    pass_fds=[lock],
                    umask=UMASK,
                )
            except OSError as error:
                raise UnusableStorage(f"{words[0]} cannot be started: {error.strerror}.") from error
        deadline = time.monotonic() + _START_TIMEOUT
        while True:
            ended = not self.alive()  # asked before the output is read, so that the output is complete
            said = self.log.read_text(errors="replace")
            if busy := _BUSY.search(said):
                raise _Busy(f"Azurite cannot listen on {busy[1]}, because another program uses this port.")
            listening = {service.lower(): int(port) for service, port in _LISTENING.findall(said)}
            if len(listening) == len(ports):
                return Ports(**listening)
            if ended:
                raise UnusableStorage(
                    f"Azurite ended during its start. It said {_gist(said)}; see {self.log}."
                )
            if time.monotonic() > deadline:
                raise UnusableStorage(
                    f"Azurite did not start to listen within {_START_TIMEOUT:g} s; see {self.log}."
                )
            time.sleep(_POLL_INTERVAL)

    def _command(self, ports: Ports) -> tuple[list[str], dict[str, str]]:
        """The command that listens on these ports, and its environment. Raises UnusableStorage."""
        program = self._program()
        listen = [f"--{service}Port={port}" for service, port in ports._asdict().items()]
        listen += [f"--{service}Host={self._listen_on}" for service in ports._fields]
        # without the accounts that the user may have set
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AZURITE_")}
        environment["PATH"] = _search_path()
        # not as an option: everybody can read a command line
        environment["AZURITE_ACCOUNTS"] = f"{ACCOUNT}:{self._key}"
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
                    "if it has a package-lock.json."
                )
            return program
        on_path = shutil.which("azurite", path=_search_path())
        if not on_path:
            raise UnusableStorage(
                f"There is no azurite on the PATH: {_GET_ONE}. If it is in the node_modules of a folder, "
                "name that folder by --azurite-dir. --storage embedded needs no Azurite."
            )
        return Path(on_path)

    def _end(self) -> bool:
        """Do what ``stop`` does, but do not unlock the folder."""
        if self._process is None or self._process.stdin is None:
            return True
        if not self.alive():
            self._process.stdin.close()
            return True
        self._process.terminate()  # before the input is closed: a SIGTERM while it ends would kill it
        self._process.stdin.close()  # ends a process that does not handle SIGTERM yet
        try:
            self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        return self._process.returncode == 0

    def _disown(self) -> None:
        """Forget the process and the lock. The process goes on, and the lock stays with the other owners."""
        if self._process is not None and self._process.stdin is not None:
            self._process.poll()  # in a fork it is not a child, and so it counts as ended
            self._process.stdin.close()
        if self._lock is not None:
            os.close(self._lock)
        self._process = None
        self._lock = None


def _search_path() -> str:
    """The PATH, then the folder of this Python, into which scripts/up puts azurite and node."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)])


def _known_flags(program: Path) -> list[str]:
    """The flags that this version of Azurite knows. It would refuse to start with any other."""
    try:
        declared = (program.resolve().parent / "common/Environment.js").read_text()
    except OSError:  # the program is another script, which starts Azurite
        return [*_FLAGS]
    return [flag for flag in _FLAGS if f'"{flag[2:].partition("=")[0]}"' in declared]


def _is_free(port: int) -> bool:
    with suppress(OSError), socket.create_server((_HOST, port)):
        return True
    return False


def _gist(said: str) -> str:
    plain = re.sub(r"\x1b\][^\x07]*\x07", "", said)  # without the escape sequences that set window titles
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\b(\w*Error|error|E[A-Z]{4,})\b", line)] or lines[-3:]
    return repr(" | ".join(line[:300] for line in errors[:3])) if errors else "nothing"
