"""legacy-queue serve: gunicorn with gevent workers and, by default, an Azurite of its own."""

from gevent import monkey

monkey.patch_all()  # before anything else is imported that holds a lock or a socket

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import click
import gevent
import structlog
from gevent.pool import Pool
from gevent.server import StreamServer
from gevent.socket import wait_read
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.http.errors import LimitRequestHeaders, LimitRequestLine, ParseException
from gunicorn.util import write_error
from gunicorn.workers.ggevent import GeventWorker

from legacy_queue.adapters.azurite import DEFAULT_PORTS, Azurite, AzuriteUnavailable
from legacy_queue.cli.logs import log_to_standard_error
from legacy_queue.cli.options import setting_options, settings_of
from legacy_queue.cli.server_log import ServerLogger
from legacy_queue.cli.signals import ENDS, STOP_WITH_STDIN, Unwinding, stop_with_stdin
from legacy_queue.config import Settings, SettingsError, complete
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.wiring import Server, build

log = structlog.get_logger()

_DRAIN = 30  # seconds that requests under way have left after SIGTERM
_FRESH = 0.2  # seconds that who has just connected has left for a request
_WORKER_ENDS = (*ENDS, signal.SIGQUIT)
_DISCARDED = 64 * 1024  # bytes at once of what nobody reads
# whether a silent client is still there is asked after a minute, and every ten seconds six times
_KEEP_ALIVE = {socket.TCP_KEEPIDLE: 60, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 6}


@click.command()
@click.option("--no-resolvers", is_flag=True, help="The same as --resolvers false.")
@click.option(
    "--azurite-default-ports",
    is_flag=True,
    help="Azurite on 10000, 10001, 10002 where they are free, unless this data directory has ports already.",
)
@click.option("--stop-with-stdin", "stops_with_stdin", is_flag=True, help=STOP_WITH_STDIN)
@setting_options
def serve(
    no_resolvers: bool, azurite_default_ports: bool, stops_with_stdin: bool, **options: str | None
) -> None:
    """Serve the queue until SIGTERM or Ctrl-C: the exit code is 0 then, from the first moment on.

    It also fires timers, expires what is due and sweeps, unless --no-resolvers leaves that to
    `legacy-queue resolve`. Without either, a claim still expires as soon as a worker polls.

    When it is ready, one line of JSON on standard output says where, and with which credentials where they
    are those of the development client. Logs are on standard error: lines of JSON, or text at a terminal.
    """
    unwinding = Unwinding()
    if stops_with_stdin:
        gevent.spawn(stop_with_stdin)
    if no_resolvers:
        options["resolvers"] = "false"
    settings, _ = settings_of(options, os.environ)
    log_to_standard_error(settings.log_format, settings.log_level)
    with ExitStack() as stack:
        try:
            settings = complete(settings)
            listener = _listen(settings)
            azurite = None
            if settings.storage == "azurite":
                preferred = DEFAULT_PORTS if azurite_default_ports else None
                azurite = Azurite(settings.data_dir / "azurite", settings.azurite_dir, preferred=preferred)
                stack.callback(azurite.stop)  # first: a signal may end its start
                azurite.start()
                settings = replace(settings, connection_string=azurite.connection_string)
            root_url = settings.public_url or _url_of(listener)
            server = build(settings, root_url)  # before any process is forked: what is wrong is said once
            application = _Application(settings, root_url, server, listener.detach())
            # it ends by SystemExit, in its own processes too: Azurite is stopped last, and only by its parent
            _Arbiter(application, azurite, unwinding).run()
        except (SettingsError, AzuriteUnavailable) as error:
            raise click.ClickException(str(error)) from None


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        raise click.ClickException(
            f"cannot listen on {settings.host} port {settings.port}: {os.strerror(error.errno or 0)}; "
            "choose another with --port, 0 lets the system choose"
        ) from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # connections inherit it
    for option, value in _KEEP_ALIVE.items():
        listener.setsockopt(socket.IPPROTO_TCP, option, value)
    return listener


def _url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Application(BaseApplication):
    def __init__(self, settings: Settings, root_url: str, server: Server, listener: int) -> None:
        self._settings, self._root_url, self._server = settings, root_url, server
        self._listener = listener
        self._word, give = os.pipe()  # one byte: whichever process takes it says that the server is ready
        os.set_blocking(self._word, False)
        os.write(give, b"!")
        super().__init__()

    def load_config(self) -> None:
        values = {
            "bind": f"fd://{self._listener}",
            "worker_class": _Worker,
            "workers": self._settings.workers,
            "worker_connections": 4000,
            "keepalive": 120,  # legacy clients keep their connections, and so do proxies
            "timeout": 60,
            "graceful_timeout": _DRAIN,
            "limit_request_line": 8190,
            "limit_request_field_size": 65536,  # a certificate in a Hawk header holds every scope of its task
            "forwarded_allow_ips": "*" if self._settings.trusted_proxy else "",
            "logger_class": ServerLogger,
            "post_worker_init": self._begin,
            "worker_exit": lambda _arbiter, _worker: self._server.background.stop(),
            "control_socket_disable": True,
        }
        for name, value in values.items():
            self.cfg.set(name, value)

    def load(self) -> Callable[..., Any]:
        return self._server.app

    def end_streams(self) -> None:
        """The process is about to end: event streams end too, and nothing new begins in the background."""
        self._server.background.announce_stop()

    def _begin(self, worker: Any) -> None:
        """Once storage answers the background begins, and the first process says that the server is ready."""

        def begin() -> None:
            while True:
                try:
                    self._server.storage.check()
                    break
                except ServiceUnavailable:
                    time.sleep(0.5)
            self._server.background.start()
            with suppress(BlockingIOError):  # another has said it
                os.read(self._word, 1)
                print(json.dumps(self._ready_line(worker.ppid)), flush=True)  # noqa: T201

        gevent.spawn(begin)

    def _ready_line(self, pid: int) -> dict[str, Any]:
        settings = self._settings
        line: dict[str, Any] = {
            "rootUrl": self._root_url,
            "baseUrl": f"{self._root_url}/v1",
            "pid": pid,
            "storage": self._server.storage.endpoints,
        }
        if settings.development_client:
            client = next(one for one in settings.clients if one.client_id == settings.development_client)
            line["credentials"] = {"clientId": client.client_id, "accessToken": client.access_token}
        return line


class _Worker(GeventWorker):
    """gunicorn's own, with three things changed.

    Before it ends it waits for requests under way, but not for idle connections. What it cannot read
    is not repeated in the log: a request line may hold a SAS, a header a MAC. And what is left of a body
    when its request is answered keeps nobody else waiting.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connections: dict[Any, socket.socket] = {}  # by the greenlet that serves it
        self._idle: set[socket.socket] = set()
        self._fresh: set[socket.socket] = set()  # connections on which nothing was heard yet

    def init_signals(self) -> None:
        """What the arbiter has sent meanwhile arrives now."""
        super().init_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WORKER_ENDS)

    def run(self) -> None:
        """Serve until a signal, then until the last connection is gone or the time for it is over.

        gunicorn's own looks once a second; here a signal, and the end of the last connection, wake it.
        """
        connections = Pool(self.worker_connections)
        servers = []
        for listener in self.sockets:
            listener.setblocking(True)
            server = StreamServer(listener, handle=partial(self.handle, listener), spawn=connections)
            if self.cfg.workers > 1:
                server.max_accept = 1
            server.start()
            servers.append(server)
        while self.alive:
            self.notify()
            with suppress(TimeoutError):  # gunicorn has each signal write to this pipe
                wait_read(self.PIPE[0], timeout=1.0)
                os.read(self.PIPE[0], 4096)
        for server in servers:
            server.close()
        end = time.monotonic() + self.cfg.graceful_timeout
        while connections and time.monotonic() < end:
            self.notify()
            connections.join(timeout=_FRESH)
        connections.kill(timeout=1)

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        """Serve one connection."""
        greenlet = gevent.getcurrent()
        self._connections[greenlet] = client
        self._fresh.add(client)
        try:
            super().handle(listener, client, addr)
        finally:
            self._fresh.discard(client)
            del self._connections[greenlet]

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> bool:
        """Answer one request, and discard what is left of its body: else the answer might never be read."""
        try:
            return super().handle_request(listener_name, req, sock, addr)
        finally:
            body = req.body
            if not body.failed:
                body.failed = True  # gunicorn closes the connection, unless the end is reached
                with self.timeout_ctx(), suppress(Exception):
                    while body.read(_DISCARDED):
                        gevent.sleep(0)
                    body.failed = False

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:  # noqa: ARG002
        """Answer to what never reached the application."""
        match exc:
            case LimitRequestLine():
                status, reason = 414, "URI Too Long"
            case LimitRequestHeaders():
                status, reason = 431, "Request Header Fields Too Large"
            case ParseException():
                status, reason = 400, "Bad Request"
            case _:
                status, reason = 500, "Internal Server Error"
        tell = log.info if status < 500 else log.error
        tell("connection-given-up", status=status, error=type(exc).__name__)
        with suppress(OSError):
            write_error(client, status, reason, "")

    @contextmanager
    def timeout_ctx(self) -> Iterator[None]:  # type: ignore[override]
        """Around the wait for a connection's next request: gunicorn's name for it."""
        client = self._connections[gevent.getcurrent()]
        self._idle.add(client)
        if not self.alive and client not in self._fresh:  # its last answer was under way when the end began
            _hear_no_more(client)
        try:
            with super().timeout_ctx():  # type: ignore[attr-defined]
                yield
        finally:
            self._idle.discard(client)
            self._fresh.discard(client)

    def notify(self) -> None:
        """Called every second, and more often while it ends: no idle connection hears a further request then.

        What has arrived already is still read, and answered; who has just connected has a moment for it.
        """
        super().notify()
        if not self.alive:
            assert isinstance(self.app, _Application)  # noqa: S101
            self.app.end_streams()
            for client in self._idle - self._fresh:
                _hear_no_more(client)
            self._fresh.clear()


def _hear_no_more(client: socket.socket) -> None:
    # by another object: gevent's own would interrupt the wait with an error
    with suppress(OSError), client.dup() as same:
        same.shutdown(socket.SHUT_RD)


class _Arbiter(Arbiter):
    """gunicorn's own, which also looks after Azurite once a second.

    An Azurite that died without a last save may have lost what the server's processes remember, even tables
    and queues: they are replaced once it is back, and the new ones begin by making the tables.
    """

    def __init__(self, app: BaseApplication, azurite: Azurite | None, unwinding: Unwinding) -> None:
        self._azurite, self._unwinding = azurite, unwinding
        super().__init__(app)

    def init_signals(self) -> None:
        """From here on signals are queued; the one that ended nothing before is not lost."""
        super().init_signals()
        if self._unwinding.is_told:
            self.SIG_QUEUE.put_nowait(signal.SIGTERM)

    def spawn_worker(self) -> Any:
        """A signal to the new process waits until it has handlers of its own."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _WORKER_ENDS)
        try:
            return super().spawn_worker()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _WORKER_ENDS)

    def murder_workers(self) -> None:
        if self._azurite and not self._azurite.alive():
            log.error("azurite-died")
            try:
                self._azurite.restart()
            except AzuriteUnavailable as error:
                log.error("azurite-not-restarted", why=str(error))
            else:
                log.warning("azurite-restarted")
                self.reload()
        super().murder_workers()
