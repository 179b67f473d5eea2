"""Azurite as a managed process: plain, of any version, with an account key of its own.

Azurite saves every five seconds, and once more when it ends by SIGTERM or by its parent's end (see
azurite_preload.js). A kill loses what it acknowledged since the last save.
"""

import base64
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, Self

from legacy_queue.local_processes import managed_process
from legacy_queue.local_processes.managed_process import HOST, Busy, Command, ManagedProcess
from legacy_queue.private_folder import write_private

ACCOUNT = "devstoreaccount1"
# Azurite's documented key, the same everywhere: it protects nothing
DEFAULT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

CONNECTION_STRING = "connection-string"  # the file in the folder
_PRELOAD = Path(__file__).with_name("azurite_preload.js")
_FLAGS = (
    "--silent",
    "--disableTelemetry",
    "--disableProductStyleUrl",  # otherwise it takes the first label of a dotted host name for the account
    "--blobKeepAliveTimeout=120",  # otherwise it closes idle connections after 5 s
    "--queueKeepAliveTimeout=120",
    "--tableKeepAliveTimeout=120",
)
_LISTENING = re.compile(r"Azurite (Blob|Queue|Table) service is successfully listening at http://\S+:(\d+)\n")
_BUSY = re.compile(r"EADDRINUSE: address already in use (\S+)")
_GET_ONE = (
    "`npm install -g azurite` installs it, or run it in a container, and use --storage azure with its "
    "connection string"
)


class AzuriteUnavailable(Exception):
    """Azurite cannot serve; the message is a sentence for a person, with the reason and a remedy."""


class Ports(NamedTuple):
    """The ports of the three services; 0 lets the system choose."""

    blob: int = 0
    queue: int = 0
    table: int = 0


DEFAULT_PORTS = Ports(10000, 10001, 10002)  # Azurite's defaults, which its tools expect


class Azurite(ManagedProcess):
    """An Azurite over a folder, on ports that stay the same, so that signed URLs stay valid.

    It is the one of ``azurite_dir``, a folder with node_modules, by default that on PATH. The ``preferred``
    ports, as far as they are free, are for a folder that was never served. The key of its account is random
    and stays the same for the folder, or is the documented one with ``has_default_key``. ``is_open``: it
    listens on all addresses of this machine.
    """

    NAME = "Azurite"
    UNAVAILABLE = AzuriteUnavailable

    def __init__(
        self,
        data_dir: Path,
        azurite_dir: Path | None = None,
        *,
        preferred: Ports | None = None,
        has_default_key: bool = False,
        is_open: bool = False,
        start_timeout: timedelta = timedelta(seconds=60),
    ) -> None:
        super().__init__(data_dir, start_timeout)
        self._azurite_dir, self._preferred = azurite_dir, preferred or Ports()
        self._connection_file = data_dir / CONNECTION_STRING
        self._key = DEFAULT_KEY if has_default_key else self._own_key()
        self._listen_on = "0.0.0.0" if is_open else HOST  # noqa: S104 - as requested

    @property
    def ports(self) -> Ports:
        """The ports, once it has started."""
        return Ports(**self._ports)

    @property
    def blob_url(self) -> str:
        return _url(self.ports.blob)

    @property
    def queue_url(self) -> str:
        return _url(self.ports.queue)

    @property
    def table_url(self) -> str:
        return _url(self.ports.table)

    @property
    def connection_string(self) -> str:
        """For ``from_connection_string`` of the Azure SDK."""
        return (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={self._key};"
            f"BlobEndpoint={self.blob_url};QueueEndpoint={self.queue_url};TableEndpoint={self.table_url};"
        )

    def start(self) -> Self:
        """As in general; its connection string is then in a file of the folder, for its owner alone."""
        super().start()
        write_private(self._connection_file, self.connection_string + "\n")
        return self

    def _own_key(self) -> str:
        """The key of the last start, or a new one."""
        with suppress(OSError, ValueError):
            last = re.search(r"AccountKey=([\w+/]{86}==);", self._connection_file.read_text())
            if last and last[1] != DEFAULT_KEY:
                return last[1]
        return base64.b64encode(secrets.token_bytes(64)).decode()

    def _command(self, ports: managed_process.Ports) -> Command:
        program = self._program()
        listen = [f"--{service}Port={port}" for service, port in ports.items()]
        listen += [f"--{service}Host={self._listen_on}" for service in ports]
        # not the user's own accounts
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AZURITE_")}
        environment["AZURITE_ACCOUNTS"] = f"{ACCOUNT}:{self._key}"  # a command line is read by everybody
        preload = str(_PRELOAD.resolve()).replace("\\", "\\\\").replace('"', '\\"')
        environment["NODE_OPTIONS"] = f'{environment.get("NODE_OPTIONS", "")} --require "{preload}"'
        location = f"--location={self._folder.resolve()}"
        return [str(program), *_known_flags(program), location, *listen], environment

    def _program(self) -> Path:
        if self._azurite_dir:
            program = self._azurite_dir.absolute() / "node_modules/.bin/azurite"
            if not program.is_file():
                raise AzuriteUnavailable(
                    f"There is no {program}: run `npm install azurite` in {self._azurite_dir}, or `npm ci` "
                    "where it has a lock."
                )
            return program
        on_path = shutil.which("azurite")
        if not on_path:
            raise AzuriteUnavailable(
                f"There is no azurite on PATH: {_GET_ONE}. --azurite-dir names a folder whose node_modules "
                "has it, and --storage embedded needs none."
            )
        return Path(on_path)

    def _candidates(self) -> Iterator[managed_process.Ports]:
        if not self._ports and self._read_ports() is None:
            yield {name: port if _is_free(port) else 0 for name, port in self._preferred._asdict().items()}
        yield from super()._candidates()

    def _free_ports(self) -> managed_process.Ports:
        return Ports()._asdict()

    def _listening(self, output: str, ports: managed_process.Ports) -> managed_process.Ports | None:
        if busy := _BUSY.search(output):
            raise Busy(busy[1])
        listening = {service.lower(): int(port) for service, port in _LISTENING.findall(output)}
        return listening if listening.keys() == ports.keys() else None


def find_running(data_dir: Path) -> str:
    """The connection string of the Azurite that a server has started over the folder.

    Raises AzuriteUnavailable for none.
    """
    try:
        return (data_dir / CONNECTION_STRING).read_text().strip()
    except OSError:
        raise AzuriteUnavailable(
            f"no Azurite was ever started over {data_dir}: start `legacy-queue serve` first."
        ) from None


def _known_flags(program: Path) -> list[str]:
    """Those of the flags that this version declares: Azurite ends at any other."""
    try:
        declared = (program.resolve().parent / "common/Environment.js").read_text()
    except OSError:  # the program is a script of its own, which starts Azurite
        return [*_FLAGS]
    return [flag for flag in _FLAGS if f'"{flag[2:].partition("=")[0]}"' in declared]


def _url(port: int) -> str:
    return f"http://{HOST}:{port}/{ACCOUNT}"


def _is_free(port: int) -> bool:
    with suppress(OSError), socket.create_server((HOST, port)):
        return True
    return False
