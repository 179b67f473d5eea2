"""What `legacy-queue serve` does: gunicorn with gevent workers on one of the storages."""

from legacy_queue.server.gevent_patching import patch

patch()  # must come before any import of something that holds a lock or a socket

import gc
import json
import resource
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
import structlog
from gunicorn.app.base import BaseApplication

from legacy_queue.local_processes.azurite import DEFAULT_PORTS, Azurite, Ports
from legacy_queue.config import SERVER_FILE, Settings
from legacy_queue.config.development import complete
from legacy_queue.http.app import DEVELOPMENT_HEADERS
from legacy_queue.http.browser_guard import ANY
from legacy_queue.private_folder import write_private
from legacy_queue.server.arbiter import Arbiter
from legacy_queue.server.listener import listen
from legacy_queue.server.gevent_waiter import GeventWaiter
from legacy_queue.server.gunicorn_worker import SETTINGS, GunicornWorker
from legacy_queue.wiring import MAX_TO_STORAGE, Server, build, check_account, served_file, storage_file

if TYPE_CHECKING:
    from legacy_queue.server.tls import ServerTls

log = structlog.get_logger()

_GRACEFUL_TIMEOUT = 30  # seconds that active requests have to end after SIGTERM
# the kernel probes a silent connection after a minute, then every ten seconds, up to six times
_KEEP_ALIVE = {socket.TCP_KEEPIDLE: 60, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 6}

_MAX_CONNECTIONS = 4000
_MIN_CONNECTIONS = 32
# how many open files a process needs
_FOR_PROCESS = 64  # standard streams, event loop, listener, pipes, logs, and a reserve
_FOR_BROKER = 16
_FOR_BACKGROUND = 48  # for the background work: connections to storage
_UNLIMITED = 1024 * 1024


def serve(settings: Settings, *, has_default_ports: bool) -> None:
    """Serve until a signal. At the end it raises SystemExit, also in the server processes.

    Raises SettingsError and UnusableStorage. If ``has_default_ports`` is set, a new Azurite gets the ports
    10000, 10001 and 10002 if they are free.
    """
    is_open = settings.development and not settings.is_on_loopback
    if is_open:
        log.warning(
            "development-client-is-open",
            why="--development: anyone who can reach this server may do everything",
        )
    if settings.azurite_default_account:
        log.warning(
            "azurite-account-is-open",
            why="--azurite-default-account: everybody knows its key, even web pages in a browser",
        )
    if settings.workers > 1 and not settings.amqp_url:
        log.info(
            "events-of-each-process",
            why="--workers above 1 without amqp-url: GET /events shows events of one process only",
        )
    with ExitStack() as stack:
        stack.enter_context(served_file(settings))
        listener = _listen(settings)
        azurite = None
        if settings.storage == "azurite":
            azurite = Azurite(
                settings.data_dir / "azurite",
                settings.azurite_dir,
                preferred=DEFAULT_PORTS if has_default_ports else Ports(),
                has_default_key=settings.azurite_default_account,
                is_open=is_open,
            )
            azurite.start()
            stack.callback(_end, azurite)
            settings = replace(settings, connection_string=azurite.connection_string)
        check_account(settings)
        # Write into the data directory only now: to a later start, a file there means that a server with a
        # working storage has run.
        settings = complete(settings)
        tls = _tls(settings) if settings.has_tls else None
        stack.callback(_remove, settings.data_dir / SERVER_FILE)
        root_url = settings.public_url or _url_of(listener, "https" if tls else "http")
        connections = _max_connections(settings)
        # before the first fork, so that an error is printed once
        server = build(settings, root_url, max_connections=connections, waiter=GeventWaiter())
        application = _Application(settings, root_url, server, listener, connections, tls)
        # Imported modules never become garbage. So the garbage collector can skip them, and the processes
        # keep sharing their memory.
        gc.freeze()
        gc.enable()
        # run raises SystemExit, also in its children; only the parent stops Azurite, as the last thing
        Arbiter(application, azurite, settings.storage == "memory").run()


def _tls(settings: Settings) -> "ServerTls":
    from legacy_queue.server.tls import ServerTls  # imported here because it is slow to import

    return ServerTls(settings)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _end(azurite: Azurite) -> None:
    """Stop Azurite. Raises SystemExit if it could not save its state."""
    if not azurite.stop():
        log.error("azurite-not-saved", why="its last changes are lost", log=str(azurite.log))
        raise SystemExit(1)


def _listen(settings: Settings) -> socket.socket:
    listener = listen(settings.host, settings.port)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # accepted connections inherit this option
    for option, value in _KEEP_ALIVE.items():
        listener.setsockopt(socket.IPPROTO_TCP, option, value)
    return listener


def _max_connections(settings: Settings) -> int:
    """Raise the limit of open files, and return how many client connections fit into it.

    If the storage is reached over HTTP, a request may need one more connection, in addition to the pool.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit = _UNLIMITED if hard == resource.RLIM_INFINITY else hard
    kept, for_each = (0, 1) if settings.is_embedded else (3 * MAX_TO_STORAGE + _FOR_BACKGROUND, 2)
    kept += _FOR_BROKER if settings.amqp_url else 0
    return max(_MIN_CONNECTIONS, min(_MAX_CONNECTIONS, (limit - _FOR_PROCESS - kept) // for_each))


def _url_of(listener: socket.socket, scheme: str) -> str:
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class _Application(BaseApplication):
    def __init__(
        self,
        settings: Settings,
        root_url: str,
        server: Server,
        listener: socket.socket,
        connections: int,
        tls: "ServerTls | None",
    ) -> None:
        self._tls = tls
        self.tls_context = tls.context if tls else None
        # headers of answers that do not come from the application
        self.headers = (
            *(DEVELOPMENT_HEADERS if settings.development else ()),
            *([("Access-Control-Allow-Origin", ANY)] if ANY in settings.origins else ()),
        )
        self._settings = settings
        self._root_url = root_url
        self._server = server
        self._port = listener.getsockname()[1]
        self._listener = listener.detach()
        self._connections = connections
        super().__init__()

    def load_config(self) -> None:
        values = SETTINGS | {
            "bind": f"fd://{self._listener}",
            "worker_class": GunicornWorker,
            "workers": self._settings.workers,
            "worker_connections": self._connections,
            "timeout": 60,
            "graceful_timeout": _GRACEFUL_TIMEOUT,
            "errorlog": None,  # gunicorn's warnings go to the root logger instead
            "loglevel": "warning",
            "post_worker_init": lambda worker: gevent.spawn(self._begin, worker),
            "worker_exit": lambda _arbiter, _worker: self._server.background.stop(),
            "control_socket_disable": True,
        }
        for name, value in values.items():
            self.cfg.set(name, value)

    def load(self) -> Callable[..., Any]:
        return self._server.app

    def end_streams(self) -> None:
        """Close the event streams and start no more background work, because the process is about to end."""
        self._server.background.begin_stop()

    def _begin(self, worker: GunicornWorker) -> None:
        """Start the background work when storage answers. The first process then prints the ready line."""
        self._server.wait_for_storage()
        self._server.background.start()
        if self._tls:
            gevent.spawn(self._tls.keep_fresh)
        if worker.age == 1:
            line = json.dumps(self._ready_line(worker.ppid))
            path = self._settings.data_dir / SERVER_FILE
            try:
                # before the line is printed, so that whoever reads the line finds the file
                if path.parent.is_dir():
                    write_private(path, line)
            except OSError as error:
                log.warning("server-file-not-written", path=str(path), error=error.strerror)
            print(line, flush=True)  # noqa: T201

    def _ready_line(self, pid: int) -> dict[str, Any]:
        line: dict[str, Any] = {
            "rootUrl": self._root_url,
            "baseUrl": f"{self._root_url}/v1",
            "port": self._port,
            "pid": pid,
            "storage": self._server.storage.account.endpoints,
        }
        if file := storage_file(self._settings):
            line["file"] = str(file.path)
        if self._tls and self._tls.authority:
            line["ca"] = {name: str(getattr(self._tls.authority, name)) for name in ("certificate", "bundle")}
        if self._settings.development_client:
            [client] = self._settings.clients  # the only client: none are configured
            line["credentials"] = {"clientId": client.client_id, "accessToken": client.access_token}
        return line
