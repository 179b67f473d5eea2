"""gunicorn's worker and arbiter as `legacy-queue serve` runs them: to be imported once gevent has patched."""

import errno
import logging
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
from gunicorn import arbiter
from gunicorn.app.base import BaseApplication
from gunicorn.http.body import LengthReader
from gunicorn.http.errors import LimitRequestHeaders, LimitRequestLine, NoMoreData, ParseException
from gunicorn.workers.ggevent import GeventWorker

from legacy_queue.adapters.azurite import Azurite, AzuriteUnavailable
from legacy_queue.cli.request_head import HeadParser, HeadTimeout, HeadTimeouts, SettingsReadOnce
from legacy_queue.cli.response import ClientSocket, respond
from legacy_queue.cli.signals import ENDS, Unwinding
from legacy_queue.cli.tls_socket import PlainHttp, TlsSocket

log = structlog.get_logger()

_WORKER_ENDS = (*ENDS, signal.SIGQUIT)
# by which gunicorn changes the number of its processes, starts itself again, or leaves the terminal
_UNUSED = (signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR2, signal.SIGWINCH)
_FRESH = 0.2  # seconds that a connection has for its first request once the process ends
_QUIET: Any = False  # of a gevent.Timeout: it ends what is done within it, without an error
_DISCARDED = 64 * 1024  # bytes at once of what nobody reads
_LINGER, _MAX_LINGERING = 1.0, 1024 * 1024  # seconds and bytes
_MAX_ARRIVALS = 128  # connections beyond the most, while others are being closed for them
_DISCONNECTED = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.EBADF)

# what is answered to what never reached the application
_ANSWERS: tuple[tuple[type[Exception], int, str], ...] = (
    (PlainHttp, 400, "Bad Request: this port speaks https"),
    (HeadTimeout, 408, "Request Timeout"),
    (LimitRequestLine, 414, "URI Too Long"),
    (LimitRequestHeaders, 431, "Request Header Fields Too Large"),
    (ParseException, 400, "Bad Request"),
    (Exception, 500, "Internal Server Error"),
)


class GunicornWorker(GeventWorker):
    """gunicorn's own, with these things changed.

    Before it ends it waits for requests under way, but not for idle connections. When it has as many
    connections as it may have, a new one replaces the connection that has been longest without a request
    under way, be it idle or with half a head, else the one whose body has been waited for longest. Heads
    are bounded in length and time; what cannot be read is not repeated in the log: a request line may hold
    a SAS, a header a MAC. And what is left of a body when its request is answered keeps nobody else waiting.
    """

    timeouts = HeadTimeouts()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # its greenlets: where all of them are taken, new connections wait in the kernel
        self._max_connections = self.worker_connections - min(_MAX_ARRIVALS, self.worker_connections // 4)
        self._connections: set[socket.socket] = set()
        self._idle: dict[socket.socket, None] = {}  # without a request under way, the longest first
        self._stalled: dict[socket.socket, None] = {}  # whose body is waited for, likewise
        self._closing: set[socket.socket] = set()  # for others, their greenlets having to hear of it
        self._fresh: set[socket.socket] = set()  # connections on which nothing was heard yet
        self._under_way: set[Any] = set()  # requests
        self._settings = SettingsReadOnce(self.cfg)
        self._tls: ssl.SSLContext | None = getattr(self.app, "tls_context", None)
        self._settings.is_ssl = self._tls is not None

    def init_signals(self) -> None:
        """What the arbiter has sent meanwhile arrives now."""
        super().init_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WORKER_ENDS)

    def run(self) -> None:
        """Serve until a signal, then until the last connection is gone or the time for it is over.

        gunicorn's own looks once a second; here a signal, and the end of the last connection, wake it.
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
            with suppress(TimeoutError):  # gunicorn has each signal write to this pipe
                wait_read(self.PIPE[0], timeout=1.0)
                os.read(self.PIPE[0], 4096)
        server.close()
        end = time.monotonic() + self.cfg.graceful_timeout
        while connections and time.monotonic() < end:
            self.notify()
            connections.join(timeout=_FRESH)
        connections.kill(timeout=1)

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        """Serve one connection."""
        kind = TlsSocket if self._tls else ClientSocket
        connection = kind(client.family, client.type, client.proto, fileno=client.detach())
        self._connections.add(connection)
        self._fresh.add(connection)
        try:
            self._make_room()
            if isinstance(connection, TlsSocket):
                self._shake_hands(connection)
            self._serve(listener, connection, addr)
        except (NoMoreData, StopIteration):
            pass
        except TimeoutError:
            log.info("connection-aborted", error="the client does not read its answer")
        except ssl.SSLError as error:
            log.info("connection-aborted", error=f"TLS: {error.reason}")
        except OSError as error:
            if error.errno not in _DISCONNECTED:
                log.exception("connection-failed")
        except Exception as error:  # noqa: BLE001  gunicorn's, or a bug's
            self._refuse(connection, error)
        finally:
            for connections in (self._fresh, self._closing, self._connections):
                connections.discard(connection)
            connection.close()

    def _shake_hands(self, connection: TlsSocket) -> None:
        """In the greenlet of the connection, which counts as idle meanwhile."""
        assert self._tls  # noqa: S101
        try:
            with self._among(self._idle, connection):
                connection.handshake(self._tls, self.timeouts.handshake)
        except TimeoutError:
            log.info("connection-aborted", error="no TLS handshake in time")
            raise StopIteration from None
        self._fresh.add(connection)  # no request was heard yet

    def _serve(self, listener: Any, connection: Any, addr: Any) -> None:
        stalling = partial(self._among, self._stalled, connection)
        parser = HeadParser(self._settings, connection, addr, self.timeouts, stalling)
        name, is_first = listener.getsockname(), True
        while is_first or self._surplus() <= 0:
            is_first = False
            with self._among(self._idle, connection):
                if not self.alive and connection not in self._fresh:
                    _hear_no_more(connection)  # its last answer was under way when the end began
                req = next(parser)
            req.proxy_protocol_info = {}
            self._under_way.add(req)
            try:
                respond(self.wsgi, req, (connection, addr, name), self._settings, not self.alive)
            finally:
                self._under_way.discard(req)
                self._discard(req.body, connection)

    def _make_room(self) -> None:
        """For a new connection: close idle ones until there are no more than there may be.

        Where all have a request under way, they are closed when those are answered.
        """
        surplus = self._surplus()
        for connection in list(islice(chain(self._idle, self._stalled), max(0, surplus))):
            self._idle.pop(connection, None)
            self._stalled.pop(connection, None)
            self._closing.add(connection)
            _hear_no_more(connection)  # what has arrived is still answered
        if surplus > 0 and not self._idle and not self._stalled:
            for req in self._under_way:
                req.force_close()

    def _surplus(self) -> int:
        return len(self._connections) - len(self._closing) - self._max_connections

    def _discard(self, body: Any, connection: Any) -> None:
        """Read what is left of the body of an answered request: else the answer might never be read."""
        is_at_end = isinstance(body.reader, LengthReader) and body.reader.length == 0
        if is_at_end or body.failed:
            return
        body.failed = True  # the connection is closed, unless the end is reached
        with (
            self._among(self._idle, connection),
            gevent.Timeout(self.timeouts.idle, _QUIET),
            suppress(Exception),
        ):
            while body.read(_DISCARDED):
                gevent.sleep(0)
            body.failed = False

    def _refuse(self, connection: Any, error: Exception) -> None:
        """Answer to what never reached the application."""
        status, reason = next((code, said) for kind, code, said in _ANSWERS if isinstance(error, kind))
        tell = log.info if status < 500 else log.error
        tell("connection-aborted", status=status, error=type(error).__name__)
        # what is on its way is discarded: else the answer might never be read
        with self._among(self._idle, connection), gevent.Timeout(_LINGER, _QUIET), suppress(OSError):
            app: Any = self.app
            head = "".join(f"{name}: {value}\r\n" for name, value in app.headers)
            start = f"HTTP/1.1 {status} {reason}\r\nConnection: close\r\nContent-Length: 0\r\n"
            connection.sendall(f"{start}{head}\r\n".encode())
            connection.shutdown(socket.SHUT_WR)
            left = _MAX_LINGERING
            while left > 0 and (data := connection.recv(_DISCARDED)):
                left -= len(data)

    @contextmanager
    def _among(self, connections: dict[socket.socket, None], connection: socket.socket) -> Iterator[None]:
        """Around what is done for a connection that may be closed for another one meanwhile."""
        connections[connection] = None
        try:
            yield
        finally:
            self._fresh.discard(connection)
            connections.pop(connection, None)

    def notify(self) -> None:
        """Called every second, and more often while it ends: no idle connection hears a further request then.

        What has arrived already is still read, and answered; who has just connected has a moment for it.
        """
        super().notify()
        if not self.alive:
            app: Any = self.app
            app.end_streams()
            for client in self._idle.keys() - self._fresh:
                _hear_no_more(client)
            self._fresh.clear()


def _hear_no_more(client: socket.socket) -> None:
    # by another object: gevent's own would interrupt the wait with an error, and TLS's say an end
    with suppress(OSError), socket.fromfd(client.fileno(), client.family, client.type) as same:
        same.shutdown(socket.SHUT_RD)


class Arbiter(arbiter.Arbiter):
    """gunicorn's own, which also looks after Azurite once a second.

    An Azurite that died without a last save may have lost what the server's processes remember, even tables
    and queues: they are replaced once it is back, and the new ones begin by making the tables.
    """

    def __init__(self, app: BaseApplication, azurite: Azurite | None, unwinding: Unwinding) -> None:
        self._azurite, self._unwinding = azurite, unwinding
        super().__init__(app)
        logging.getLogger("gunicorn.error").propagate = True  # to where the words of all libraries go

    def init_signals(self) -> None:
        """From here on signals are queued; the one that ended nothing before is not lost.

        A terminal that is closed ends the server, unless it was started by nohup.
        """
        super().init_signals()
        self._unwinding.is_over = True
        for number in (*_UNUSED, *([] if self._unwinding.hangs_up else [signal.SIGHUP])):
            signal.signal(number, signal.SIG_IGN)
        if self._unwinding.is_stopping:
            self.SIG_QUEUE.put_nowait(signal.SIGTERM)

    def handle_hup(self) -> None:
        """As SIGTERM."""
        self.handle_term()

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
