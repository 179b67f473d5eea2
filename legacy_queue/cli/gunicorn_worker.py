"""gunicorn's worker as `legacy-queue serve` runs it. gevent must have patched before this is imported."""

import errno
import os
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice
from typing import Any

import gevent
import structlog
from gevent.pool import Pool
from gevent.server import StreamServer
from gevent.socket import wait_read

from legacy_queue.cli.gunicorn_internals import GeventWorker, errors, has_failed, is_read_to_end, set_failed
from legacy_queue.cli.request_head import HeadParser, HeadTimeout, HeadTimeouts, SettingsReadOnce
from legacy_queue.cli.response import ClientSocket, respond
from legacy_queue.cli.signals import ENDS
from legacy_queue.cli.tls_socket import PlainHttp, TlsSocket

log = structlog.get_logger()

WORKER_SIGNALS = (*ENDS, signal.SIGQUIT)
_NEW_CONNECTION_TIMEOUT = 0.2  # seconds for the first request of a connection once the process ends
_SILENT: Any = False  # a gevent.Timeout with this ends its block without an error
_DISCARDED = 64 * 1024  # bytes in each read that is discarded
_LINGER_TIMEOUT, _MAX_LINGERING = 1.0, 1024 * 1024  # seconds and bytes
_MAX_REPLACEMENTS = 128  # connections above the limit, while others are being closed for them
_DISCONNECTED = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.EBADF)

# the answers to requests that cannot be passed to the application
_ANSWERS: tuple[tuple[type[Exception], int, str], ...] = (
    (PlainHttp, 400, "Bad Request: this port speaks https"),
    (HeadTimeout, 408, "Request Timeout"),
    (errors.LimitRequestLine, 414, "URI Too Long"),
    (errors.LimitRequestHeaders, 431, "Request Header Fields Too Large"),
    (errors.ParseException, 400, "Bad Request"),
    (Exception, 500, "Internal Server Error"),
)


class GunicornWorker(GeventWorker):
    """gunicorn's gevent worker, changed as follows.

    - Before it ends it waits for active requests, but not for idle connections.
    - At the limit of connections, a new connection replaces the connection that has been idle for longest
      (it may have sent half a head), or else the connection that has been waiting for its body for longest.
    - Heads are bounded in length and time. The log has nothing of a malformed head: a request line may hold a
      SAS, a header a MAC.
    - The rest of a body is discarded when its request is answered, for a limited time.
    """

    timeouts = HeadTimeouts()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # new connections wait in the kernel while all greenlets are in use
        replacements = min(_MAX_REPLACEMENTS, self.worker_connections // 4)
        self._max_connections = self.worker_connections - replacements
        self.connections: set[socket.socket] = set()
        self._idle: dict[socket.socket, None] = {}  # without an active request, the longest first
        self._stalled: dict[socket.socket, None] = {}  # waiting for a body, the longest first
        self._closing: set[socket.socket] = set()  # replaced; their greenlets have not ended yet
        self._new: set[socket.socket] = set()  # nothing has been read from them yet
        self._active: set[Any] = set()  # requests
        self._settings = SettingsReadOnce(self.cfg)
        self._tls: ssl.SSLContext | None = getattr(self.app, "tls_context", None)
        self._settings.is_ssl = self._tls is not None

    def init_signals(self) -> None:
        """Install the handlers, then take the signals that the arbiter has sent since the fork."""
        super().init_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WORKER_SIGNALS)

    def run(self) -> None:
        """Serve until a signal, then until the last connection is closed or the graceful timeout is over.

        gunicorn's method looks once a second. This one is woken by a signal and by the last connection.
        """
        (listener,) = self.sockets
        listener.setblocking(True)
        connections = Pool(self.worker_connections)
        server = StreamServer(listener, handle=partial(self.handle, listener), spawn=connections)
        if self.cfg.workers > 1:
            server.max_accept = 1
        server.start()
        while self.alive:
            self.notify()
            with suppress(TimeoutError):  # each signal writes to this pipe
                wait_read(self.PIPE[0], timeout=1.0)
                os.read(self.PIPE[0], 4096)
        server.close()
        end = time.monotonic() + self.cfg.graceful_timeout
        while connections and time.monotonic() < end:
            self.notify()
            connections.join(timeout=_NEW_CONNECTION_TIMEOUT)
        connections.kill(timeout=1)

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        """Serve one connection."""
        kind = TlsSocket if self._tls else ClientSocket
        connection = kind(client.family, client.type, client.proto, fileno=client.detach())
        self.connections.add(connection)
        self._new.add(connection)
        try:
            self._replace_oldest()
            if isinstance(connection, TlsSocket):
                self._handshake(connection)
            self._serve(listener, connection, addr)
        except (errors.NoMoreData, StopIteration):
            pass
        except TimeoutError:
            log.info("connection-aborted", error="the client does not read its answer")
        except ssl.SSLError as error:
            log.info("connection-aborted", error=f"TLS: {error.reason}")
        except OSError as error:
            if error.errno not in _DISCONNECTED:
                log.exception("connection-failed")
        except Exception as error:  # noqa: BLE001  a malformed head, or a bug
            self._refuse(connection, error)
        finally:
            for connections in (self._new, self._closing, self.connections):
                connections.discard(connection)
            connection.close()

    def _handshake(self, connection: TlsSocket) -> None:
        """In the greenlet of the connection, which counts as idle meanwhile."""
        assert self._tls  # noqa: S101
        try:
            with self._listed(self._idle, connection):
                connection.handshake(self._tls, self.timeouts.handshake)
        except TimeoutError:
            log.info("connection-aborted", error="no TLS handshake in time")
            raise StopIteration from None
        self._new.add(connection)  # it has sent no request yet

    def _serve(self, listener: Any, connection: Any, addr: Any) -> None:
        wait_for_body = partial(self._listed, self._stalled, connection)
        parser = HeadParser(self._settings, connection, addr, self.timeouts, wait_for_body)
        name, is_first = listener.getsockname(), True
        while is_first or self._surplus() <= 0:
            is_first = False
            with self._listed(self._idle, connection):
                if not self.alive and connection not in self._new:
                    _shut_reading(connection)  # its last request was active when the end began
                req = next(parser)
            req.proxy_protocol_info = {}
            self._active.add(req)
            try:
                respond(self.wsgi, req, (connection, addr, name), self._settings, not self.alive)
            finally:
                self._active.discard(req)
                self._discard_body(req, connection)

    def _replace_oldest(self) -> None:
        """Close the oldest replaceable connections, until the limit is kept.

        If each connection has an active request, each is closed when that is answered.
        """
        surplus = self._surplus()
        for connection in list(islice(chain(self._idle, self._stalled), max(0, surplus))):
            self._idle.pop(connection, None)
            self._stalled.pop(connection, None)
            self._closing.add(connection)
            _shut_reading(connection)  # a request that has arrived is still answered
        if surplus > 0 and not self._idle and not self._stalled:
            for req in self._active:
                req.force_close()

    def _surplus(self) -> int:
        return len(self.connections) - len(self._closing) - self._max_connections

    def _discard_body(self, req: Any, connection: Any) -> None:
        """Read the rest of an answered request: a client may read no answer before it has sent all."""
        if is_read_to_end(req) or has_failed(req):
            return
        set_failed(req, True)  # until its end is reached
        with (
            self._listed(self._idle, connection),
            gevent.Timeout(self.timeouts.idle, _SILENT),
            suppress(Exception),
        ):
            while req.body.read(_DISCARDED):
                gevent.sleep(0)
            set_failed(req, False)

    def _refuse(self, connection: Any, error: Exception) -> None:
        """Answer a request that cannot be passed to the application."""
        status, reason = next((code, text) for kind, code, text in _ANSWERS if isinstance(error, kind))
        write = log.info if status < 500 else log.error
        write("connection-aborted", status=status, error=type(error).__name__)
        # bytes that still arrive are discarded: a client may read no answer before it has sent all
        with (
            self._listed(self._idle, connection),
            gevent.Timeout(_LINGER_TIMEOUT, _SILENT),
            suppress(OSError),
        ):
            app: Any = self.app
            head = "".join(f"{name}: {value}\r\n" for name, value in app.headers)
            start = f"HTTP/1.1 {status} {reason}\r\nConnection: close\r\nContent-Length: 0\r\n"
            connection.sendall(f"{start}{head}\r\n".encode())
            connection.shutdown(socket.SHUT_WR)
            left = _MAX_LINGERING
            while left > 0 and (data := connection.recv(_DISCARDED)):
                left -= len(data)

    @contextmanager
    def _listed(self, connections: dict[socket.socket, None], connection: socket.socket) -> Iterator[None]:
        """List the connection as replaceable, within this context."""
        connections[connection] = None
        try:
            yield
        finally:
            self._new.discard(connection)
            connections.pop(connection, None)

    def notify(self) -> None:
        """Called every second, and more often while the process ends: idle connections are closed then.

        Requests that have arrived are still answered. A new connection has a moment for its first request.
        """
        super().notify()
        if not self.alive:
            app: Any = self.app
            app.end_streams()
            for client in self._idle.keys() - self._new:
                _shut_reading(client)
            self._new.clear()


def _shut_reading(client: socket.socket) -> None:
    # through another object: gevent's would end the wait with an error, and TLS would send an end
    with suppress(OSError), socket.fromfd(client.fileno(), client.family, client.type) as same:
        same.shutdown(socket.SHUT_RD)
