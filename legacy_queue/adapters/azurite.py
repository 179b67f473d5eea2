"""Azurite as a managed process.

Azurite saves every five seconds, and once more when it ends by SIGTERM or by its parent's end (see
azurite/stdin_exit.js). A kill loses what it acknowledged since the last save.
"""

import hashlib
import json
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, Self

from legacy_queue.adapters import managed_process, npm
from legacy_queue.adapters.managed_process import HOST, Busy, Command, ManagedProcess
from legacy_queue.adapters.tls_files import TlsFiles

ACCOUNT = "devstoreaccount1"
# Azurite's documented key, the same everywhere: it protects nothing. Azurite listens on loopback, unless
# ``is_open``.
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

PATCHED_VERSION = "3.35.0"  # with which tests/adapters/azurite_patches test azurite/patches

MANIFEST = Path(__file__).parents[1] / "azurite"  # its lock file, and the scripts that are loaded into it
_PACKAGE = Path("node_modules/azurite")
_MAIN = _PACKAGE / "dist/src/azurite.js"
_PRELOADS = {"all": ("patches/all.js", "stdin_exit.js"), "none": ("stdin_exit.js",)}
_FLAGS = (
    "--silent",
    "--disableTelemetry",
    "--skipApiVersionCheck",  # new SDKs send a version that it does not know
    "--disableProductStyleUrl",  # otherwise it takes the first label of a dotted host name for the account
    *("--blobKeepAliveTimeout", "120"),  # otherwise it closes idle connections after 5 s
    *("--queueKeepAliveTimeout", "120"),
    *("--tableKeepAliveTimeout", "120"),
)
_LISTENING = re.compile(
    r"Azurite (Blob|Queue|Table) service is successfully listening at https?://\S+:(\d+)\n"
)
_BUSY = re.compile(r"EADDRINUSE: address already in use (\S+)")


class AzuriteUnavailable(Exception):
    """Azurite cannot serve; the message is a sentence for a person, with the reason and a remedy."""


def installed(azurite_dir: Path | None = None) -> Path:
    """Where Azurite is installed: ``azurite_dir``, by default a folder in the user's cache for these pins.

    Raises AzuriteUnavailable where the user has no home.
    """
    if azurite_dir:
        return azurite_dir
    pins = hashlib.sha256((MANIFEST / "package-lock.json").read_bytes()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        # a relative XDG_CACHE_HOME must be ignored
        return (cache if cache.is_absolute() else Path.home() / ".cache") / "legacy-queue" / f"azurite-{pins}"
    except RuntimeError:
        raise AzuriteUnavailable("This user has no home to install Azurite in: set azurite-dir.") from None


def is_installed(folder: Path) -> bool:
    return (folder / _MAIN).is_file()


def install(folder: Path, progress: Callable[[int], object] = lambda _done: None) -> None:
    """Install Azurite in the folder; see npm.install. Raises AzuriteUnavailable."""
    try:
        npm.install(MANIFEST, folder, progress)
    except npm.NodeUnavailable as error:
        raise AzuriteUnavailable(str(error)) from None


class Ports(NamedTuple):
    """The ports of the three services; 0 lets the system choose."""

    blob: int = 0
    queue: int = 0
    table: int = 0


DEFAULT_PORTS = Ports(10000, 10001, 10002)  # Azurite's defaults, which its tools expect


class Azurite(ManagedProcess):
    """An Azurite over a folder, on ports that stay the same, so that signed URLs stay valid.

    ``azurite_dir`` is where it is installed, by default as ``installed`` returns. ``patches`` is all or none.
    The ``preferred`` ports, as far as they are free, are for a folder that was never served. With ``tls`` it
    serves https. ``is_open``: it listens on all addresses of this machine.
    """

    NAME = "Azurite"
    UNAVAILABLE = AzuriteUnavailable

    def __init__(
        self,
        data_dir: Path,
        azurite_dir: Path | None = None,
        *,
        preferred: Ports | None = None,
        node: str | None = None,
        patches: str = "all",
        tls: TlsFiles | None = None,
        is_open: bool = False,
        start_timeout: timedelta = timedelta(seconds=60),
    ) -> None:
        super().__init__(data_dir, start_timeout)
        self._azurite_dir, self._node, self._preferred = installed(azurite_dir), node, preferred or Ports()
        self._patches, self._tls = patches, tls
        self._listen_on = "0.0.0.0" if is_open else HOST  # noqa: S104 - as requested

    @property
    def ports(self) -> Ports:
        """The ports, once it has started."""
        return Ports(**self._ports)

    @property
    def blob_url(self) -> str:
        return self._url(self.ports.blob)

    @property
    def queue_url(self) -> str:
        return self._url(self.ports.queue)

    @property
    def table_url(self) -> str:
        return self._url(self.ports.table)

    @property
    def connection_string(self) -> str:
        """For ``from_connection_string`` of the Azure SDK."""
        return (
            f"DefaultEndpointsProtocol={self._scheme};AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};"
            f"BlobEndpoint={self.blob_url};QueueEndpoint={self.queue_url};TableEndpoint={self.table_url};"
        )

    @property
    def _scheme(self) -> str:
        return "https" if self._tls else "http"

    def _url(self, port: int) -> str:
        return f"{self._scheme}://{HOST}:{port}/{ACCOUNT}"

    def find_running(self) -> Self:
        """The Azurite that another process started over the folder; raises AzuriteUnavailable for none."""
        ports = self._read_ports()
        if ports is None:
            raise AzuriteUnavailable(
                f"no Azurite was ever started over {self._folder}: start `legacy-queue serve` first."
            )
        self._ports = ports
        return self

    def _command(self, ports: managed_process.Ports) -> Command:
        try:
            node = npm.find_node(self._node)
        except npm.NodeUnavailable as error:
            raise AzuriteUnavailable(str(error)) from None
        if not is_installed(self._azurite_dir):
            raise AzuriteUnavailable(
                f"Azurite is not installed in {self._azurite_dir}: run `legacy-queue azurite install`."
            )
        if self._patches != "none":
            self._check_version()
        preloads = [f"--require={MANIFEST.resolve() / name}" for name in _PRELOADS[self._patches]]
        listen = [f"--{service}Port={port}" for service, port in ports.items()]
        listen += [f"--{service}Host={self._listen_on}" for service in ports]
        location = f"--location={self._folder.resolve()}"
        if self._tls:  # the preload renews the certificate without a restart
            listen += [f"--cert={self._tls.certificate.absolute()}", f"--key={self._tls.key.absolute()}"]
            preloads.append(f"--require={MANIFEST.resolve() / 'tls_renewal.js'}")
        # not the user's own accounts
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AZURITE_")}
        return [
            node,
            *preloads,
            str((self._azurite_dir / _MAIN).resolve()),
            *_FLAGS,
            location,
            *listen,
        ], environment

    def _check_version(self) -> None:
        """Raise AzuriteUnavailable where the patches are for another version of Azurite."""
        package = self._azurite_dir / _PACKAGE / "package.json"
        try:
            version = json.loads(package.read_text())["version"]
        except (OSError, ValueError, KeyError):
            version = "of an unknown version"
        if version != PATCHED_VERSION:
            raise AzuriteUnavailable(
                f"Azurite {version} is installed in {self._azurite_dir}, and azurite/patches were tested on "
                f"{PATCHED_VERSION}: set azurite-patches none, or no azurite-dir, and that is installed."
            )

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


def _is_free(port: int) -> bool:
    with suppress(OSError), socket.create_server((HOST, port)):
        return True
    return False
