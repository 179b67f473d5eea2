"""gunicorn's worker as `legacy-queue serve` runs it. gevent must have patched before this is imported.

No documentation promises the internals of gunicorn that this module and server.arbiter change.
tests/server/test_gunicorn_internals.py records the source of each, and fails when gunicorn changes it.
"""

import os
import signal
import socket
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import gevent
import structlog
from gevent.pool import Pool
from gevent.server import StreamServer
from gevent.socket import wait_read
from gevent.ssl import SSLContext
from gunicorn.http import errors
from gunicorn.http.body import Body, ChunkedReader
from gunicorn.http.message import Request
from gunicorn.http.parser import RequestParser
from gunicorn.http.unreader import SocketUnreader
from gunicorn.workers.ggevent import GeventWorker

from legacy_queue.server.client_socket import PIECE, ClientSocket, shut
from legacy_queue.server.refusals import MAX_HEAD, MAX_LINE, PlainHttp, new_request_id, refusal_of
from legacy_queue.server.tls_socket import TlsSocket

log = structlog.get_logger()

WORKER_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
_MAX_CHUNKS = 20_000  # in one body: only bodies of at most 1 MiB may come in chunks
# bytes of a body in each second of waiting for it: 16 uploads of a worker need an uplink of half a Mbit/s
_MIN_RATE = 4096
_DISCARDED = 256 * 1024  # bytes in each read that is discarded
_LINGER_TIMEOUT = 1.0  # seconds in which a client may read a refusal
_FIRST_REQUEST_TIMEOUT = 0.05  # seconds in which a new connection may send a request once the process ends


class _SettingsReadOnce:
    """gunicorn's settings, each looked up once: a request needs thirty, which cost more than parsing it."""

    def __init__(self, cfg: Any, is_ssl: bool) -> None:
        self._cfg = cfg
        self.is_ssl = is_ssl

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._cfg, name)
        setattr(self, name, value)
        return value


class _BoundedRequest(Request):
    # gunicorn allows 8,190 bytes for the line, and 6.5 MB for the headers
    limit_request_line: Any = property(lambda _: MAX_LINE, lambda *_: None)
    max_buffer_headers: Any = property(lambda self: MAX_HEAD - len(self.uri), lambda *_: None)

    def _peer_is_trusted_proxy(self) -> bool:
        return False  # http.client_connection knows the proxies: no address needs to be looked at here

    def set_body_reader(self) -> None:
        """Raises InvalidHeader for HTTP/1.1 without Host. Source: RFC 9112, 3.2."""
        version: Any = self.version
        if version >= (1, 1) and not any(name == "HOST" for name, _ in self.headers):
            raise errors.InvalidHeader("HOST", req=self)
        super().set_body_reader()
        body: Any = self.body
        if isinstance(body.reader, ChunkedReader):
            self.body = Body(_BoundedChunks(self, self.unreader))


class _BoundedChunks(ChunkedReader):
    limit_chunk_size_line: Any = property(lambda _: 1024, lambda *_: None)  # bytes
    _chunks = 0

    def parse_chunk_size(self, unreader: Any, data: bytes | None = None) -> Any:
        """Raises InvalidChunkSize for more chunks than are accepted."""
        gevent.sleep(0)  # the framing of many chunks does not delay other connections
        self._chunks += 1
        if self._chunks > _MAX_CHUNKS:
            raise errors.InvalidChunkSize(b"more than %d chunks" % _MAX_CHUNKS)
        return super().parse_chunk_size(unreader, data)


class _Parser(RequestParser):
    mesg_class = _BoundedRequest

    def finish_body(self, deadline: Any = None, max_bytes: Any = None) -> Any:  # noqa: ARG002
        """The worker has read the body of the last request: ``_discard``."""
        return True


class Reader(SocketUnreader):
    """Reads from one connection, which is in ``waiting`` while it waits for its client."""

    def __init__(
        self,
        client: Any,
        waiting: dict[int, None],
        body_timeout: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(client)
        self._now = now
        self._connection = client.fileno()
        self._waiting = waiting
        self._body_timeout = body_timeout
        self._left = 0.0  # seconds of waiting; the bytes of a body add to them
        self.begin = b""  # of the last request, as far as it came at once

    def wait_for_request(self, timeout: float) -> None:
        """Wait for the first bytes of a request. Raises StopIteration if none come in time."""
        if self.buf.tell():
            self.begin = self.buf.getvalue()
            gevent.sleep(0)  # requests that were sent together do not delay other connections
        else:
            self._left = timeout
            try:
                self.begin = self.chunk()
            except TimeoutError:
                raise StopIteration from None
            self.unread(self.begin)
        self._left = self._body_timeout

    def chunk(self, size_hint: int | None = None) -> bytes:
        """Read bytes that have arrived, or wait for some. Raises TimeoutError for a slow body."""
        read: Any = super().chunk
        begun = self._now()
        if self._left <= 0:  # bytes that have arrived meanwhile would be read without waiting
            raise TimeoutError
        self._waiting[self._connection] = None
        try:
            with gevent.Timeout(self._left, TimeoutError):
                data = bytes(read(size_hint))
        finally:
            self._waiting.pop(self._connection, None)
        left = self._left - (self._now() - begun) + len(data) / _MIN_RATE
        self._left = min(left, self._body_timeout)
        return data


class GunicornWorker(GeventWorker):
    """gunicorn's gevent worker, changed as follows.

    - It ends at once on a signal: it waits for active requests, but not for idle connections.
    - At the limit of connections, a new connection replaces the connection that has been waiting for its
      client for longest: for a request, or for the rest of a head or a body.
    - Heads and bodies are bounded in length and time. The log has nothing of a malformed head: a request line
      may hold a SAS, a header a MAC.
    - The rest of a body is discarded when its request is answered, for a limited time.
    """

    # in seconds
    idle_timeout = 120.0  # until the first byte of a request: legacy clients and proxies keep connections
    handshake_timeout = 10.0  # of TLS
    head_timeout = 10.0  # from the first byte of a head to its end
    body_timeout = 30.0  # of waiting for a body, in which less than 4 KiB for each second is too slow

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        app: Any = self.app
        self._app = app
        self.cfg: Any = _SettingsReadOnce(self.cfg, is_ssl=bool(self._app.tls_context))
        # above it others are closed; new connections wait in the kernel while all greenlets are in use
        self._max_connections = self.worker_connections - min(128, self.worker_connections // 4)
        self._connections = 0
        # connections that wait for their client, the longest first
        self._waiting: OrderedDict[int, None] = OrderedDict()
        self._active: dict[int, Any] = {}  # requests, by their connection

    def init_signals(self) -> None:
        """Install the handlers, then take the signals that the arbiter has sent since the fork."""
        super().init_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WORKER_SIGNALS)

    def run(self) -> None:
        """Serve until a signal, then until the last connection is closed or the graceful timeout is over.

        gunicorn's method looks once a second. This one is woken by a signal and by the last connection.
        """
        SSLContext.sslsocket_class = TlsSocket  # of the connections to storage and to the broker too
        (listener,) = self.sockets
        listener.setblocking(True)
        # Connections inherit it: the kernel takes the next piece of an answer when the client has made room
        # for it, not only when a third of a buffer of megabytes is free. Source: tcp(7).
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, PIECE)
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
        self._app.end_streams()
        self._close_when_answered()
        with suppress(TimeoutError), gevent.Timeout(self.cfg.graceful_timeout, TimeoutError):
            while not connections.join(timeout=_FIRST_REQUEST_TIMEOUT):
                self.notify()
                for connection in self._waiting.keys() - self._active.keys():
                    shut(connection, socket.SHUT_RD)
        connections.kill(timeout=1)

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        """Serve one connection."""
        connection = client.fileno()
        self._replace_oldest()
        self._connections += 1
        try:
            if self._app.tls_context:
                self._waiting[connection] = None
                client = self._with_tls(client)
            self._serve(listener.getsockname(), connection, ClientSocket(client), addr)
        except (StopIteration, errors.NoMoreData, ConnectionError, ssl.SSLEOFError):
            pass
        except ssl.SSLError as error:
            log.info("connection-aborted", error=f"TLS: {error.reason}")
        except OSError as error:
            log.info("connection-aborted", error=str(error))
        except (Exception, gevent.Timeout) as error:  # noqa: BLE001  a malformed head, or a bug
            self.handle_error(None, client, addr, error)
        finally:
            self._connections -= 1
            self._waiting.pop(connection, None)
            if isinstance(client, TlsSocket):
                with suppress(OSError, ValueError):  # the end of TLS, without waiting for the client's
                    client.settimeout(0)
                    client.unwrap()
            client.close()

    def _with_tls(self, client: Any) -> Any:
        """The connection after its handshake. Raises PlainHttp, TimeoutError and ssl.SSLError."""
        with gevent.Timeout(self.handshake_timeout, TimeoutError("no TLS handshake in time")):
            if client.recv(1, socket.MSG_PEEK).isalpha():
                raise PlainHttp
            return self._app.tls_context.wrap_socket(client, server_side=True)

    def _serve(self, name: Any, connection: int, client: Any, addr: Any) -> None:
        """Serve the requests of a connection, until it is to be closed."""
        parser = _Parser(self.cfg, client, addr)
        parser.unreader = reader = Reader(client, self._waiting, self.body_timeout)
        while True:
            reader.wait_for_request(self.idle_timeout)
            try:
                with gevent.Timeout(self.head_timeout):
                    req = next(parser)
            except (errors.ParseException, gevent.Timeout) as error:
                self._refuse(client, error, reader.begin)
                return
            self._active[connection] = req
            try:
                self.handle_request(name, req, client, addr)
            finally:
                del self._active[connection]
                is_read = self._discard(req.body)
            if not is_read:
                return

    def _discard(self, body: Any) -> bool:
        """Whether the body of an answered request is read to its end, so that the next request can follow.

        Its rest is read here: a client may read no answer before it has sent all.
        """
        if getattr(body.reader, "length", None) == 0:  # the application has read all, as it mostly does
            return not body.failed
        with suppress(Exception), gevent.Timeout(self.idle_timeout, TimeoutError):
            while not body.failed and body.read(_DISCARDED):
                gevent.sleep(0)
            return not body.failed
        return False

    def _replace_oldest(self) -> None:
        """At the limit, close the connection that has been waiting for longest.

        If each connection has an active request, each is closed when that is answered.
        """
        if self._connections < self._max_connections:
            return
        if self._waiting:
            connection, _ = self._waiting.popitem(last=False)
            shut(connection, socket.SHUT_RD)  # a request that has arrived is still answered
        else:
            self._close_when_answered()

    def _close_when_answered(self) -> None:
        for req in self._active.values():
            req.force_close()

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:  # noqa: ARG002
        """Answer a request that the application has failed to answer."""
        self._refuse(client, exc, f"{req.method} {req.uri}".encode("latin-1") if req else b"")

    def _refuse(self, client: Any, error: BaseException, begin: bytes) -> None:
        """Answer a request that the application does not. Only the type of the error is logged."""
        refusal = refusal_of(error)
        request_id = new_request_id()
        write = log.error if refusal.status == 500 else log.info
        write("connection-aborted", status=refusal.status, error=type(error).__name__, request_id=request_id)
        with suppress(OSError), gevent.Timeout(_LINGER_TIMEOUT, TimeoutError):
            client.sendall(refusal.answer(begin, request_id, self._app.headers))
            client.shutdown(socket.SHUT_WR)
            while client.recv(_DISCARDED):  # a client may read no answer before it has sent all
                gevent.sleep(0)
