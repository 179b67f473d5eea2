"""Azurite as this server's own storage.

Azurite saves every five seconds, and once more when it is told to end: it is always ended by SIGTERM
(or by its parent's end, see azurite/stdin_exit.js), because a kill loses what was acknowledged since.
"""

import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, Self

from legacy_queue.adapters.node import NodeUnavailable, find_node
from legacy_queue.adapters.own_server import Command, OwnServer

ACCOUNT = "devstoreaccount1"
# Azurite's documented key, the same everywhere: it guards nothing, Azurite listens on loopback.
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

PATCHED_VERSION = "3.35.0"  # what azurite/patches were proved on, see tests/adapters/azurite_patches

_PACKAGE = Path("node_modules/azurite")
_MAIN = _PACKAGE / "dist/src/azurite.js"
_PRELOADS = {"all": ("patches/all.js", "stdin_exit.js"), "none": ("stdin_exit.js",)}
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


class AzuriteUnavailable(Exception):
    """Azurite cannot serve; the message says why and what cures it, in a sentence for a person."""


class Ports(NamedTuple):
    """Where the three services listen; 0 lets the system choose."""

    blob: int = 0
    queue: int = 0
    table: int = 0


DEFAULT_PORTS = Ports(10000, 10001, 10002)  # Azurite's own, which tools for it look at


class Azurite(OwnServer):
    """One Azurite over one folder, on ports that stay the same, so that outstanding signed URLs stay good.

    ``azurite_dir`` holds node_modules and what is loaded into Azurite: ``patches`` says how much of it. Each
    of the ``preferred`` ports is taken where it is free as the folder is first served.
    """

    NAME = "Azurite"
    UNAVAILABLE = AzuriteUnavailable

    def __init__(
        self,
        data_dir: Path,
        azurite_dir: Path,
        *,
        host: str = "127.0.0.1",
        ports: Ports | None = None,
        preferred: Ports | None = None,
        node: str | None = None,
        patches: str = "all",
        patience: timedelta = timedelta(seconds=60),
    ) -> None:
        super().__init__(data_dir, host, ports._asdict() if ports else None, patience)
        self._azurite_dir, self._node, self._preferred = azurite_dir, node, preferred or Ports()
        self._patches = patches

    @property
    def ports(self) -> Ports:
        """The real ports, once it has started."""
        return Ports(**self._ports)

    @property
    def blob_url(self) -> str:
        return f"http://{self._host}:{self.ports.blob}/{ACCOUNT}"

    @property
    def queue_url(self) -> str:
        return f"http://{self._host}:{self.ports.queue}/{ACCOUNT}"

    @property
    def table_url(self) -> str:
        return f"http://{self._host}:{self.ports.table}/{ACCOUNT}"

    @property
    def connection_string(self) -> str:
        """What the Azure SDK's ``from_connection_string`` takes."""
        return (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};"
            f"BlobEndpoint={self.blob_url};QueueEndpoint={self.queue_url};TableEndpoint={self.table_url};"
        )

    def found(self) -> Self:
        """The Azurite that another process started over the folder; raises AzuriteUnavailable for none."""
        remembered = self._read_ports()
        if remembered is None:
            raise AzuriteUnavailable(
                f"no Azurite was ever started over {self._folder}: start `legacy-queue serve` first."
            )
        self._ports = remembered
        return self

    def _command(self, ports: Mapping[str, int]) -> Command:
        try:
            node = find_node(self._node)
        except NodeUnavailable as refused:
            raise AzuriteUnavailable(str(refused)) from refused
        main = self._azurite_dir / _MAIN
        if not main.is_file():
            raise AzuriteUnavailable(
                f"Azurite is not installed in {self._azurite_dir}: run scripts/up, or `npm ci` there."
            )
        self._refuse_unproved()
        names = _PRELOADS[self._patches]
        folder = self._azurite_dir.resolve()
        preloads = [word for name in names for word in ("--require", str(folder / name))]
        listen = [
            word
            for service, port in ports.items()
            for word in (f"--{service}Host", self._host, f"--{service}Port", str(port))
        ]
        location = ("--location", str(self._folder.resolve()))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("AZURITE_")}  # other accounts
        return Command([node, *preloads, str(main.resolve()), *_FLAGS, *location, *listen], environment)

    def _refuse_unproved(self) -> None:
        """Raises AzuriteUnavailable where the patches were proved on another version of Azurite."""
        if self._patches == "none":
            return
        package = self._azurite_dir / _PACKAGE / "package.json"
        try:
            version = json.loads(package.read_text())["version"]
        except (OSError, ValueError, KeyError):
            version = "of an unknown version"
        if version != PATCHED_VERSION:
            raise AzuriteUnavailable(
                f"Azurite {version} is installed in {self._azurite_dir}, and azurite/patches were proved on "
                f"{PATCHED_VERSION}: install that with `npm ci` there, or set azurite-patches none."
            )

    def _candidates(self) -> Iterator[Mapping[str, int]]:
        free = {name: port if self._is_free(port) else 0 for name, port in self._preferred._asdict().items()}
        if any(free.values()) and self._given is None and self._read_ports() is None:
            yield free
        yield from super()._candidates()

    def _is_free(self, port: int) -> bool:
        with suppress(OSError), socket.create_server((self._host, port)):
            return True
        return False

    def _free_ports(self) -> Mapping[str, int]:
        return Ports()._asdict()

    def _listening(self, said: str, ports: Mapping[str, int]) -> Mapping[str, int] | None:
        found = {service.lower(): int(port) for service, port in _LISTENING.findall(said)}
        return found if found.keys() == ports.keys() else None

    def _busy(self, said: str, ports: Mapping[str, int]) -> str | None:  # noqa: ARG002
        busy = _BUSY.search(said)
        return busy[1] if busy else None
