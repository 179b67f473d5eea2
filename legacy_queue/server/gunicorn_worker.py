"""gunicorn's worker as `legacy-queue serve` runs it. Let gevent patch before you import this module.

This module and server.arbiter change internals of gunicorn that its documentation does not promise.
tests/server/test_gunicorn_internals.py records their source, and fails if a new gunicorn has changed them.
"""

import os
import signal
import socket
import ssl
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
from gunicorn.http.message import Request
from gunicorn.http.parser import RequestParser
from gunicorn.workers.ggevent import GeventWorker

from legacy_queue.cooperation import let_others_run
from legacy_queue.server.client_socket import PIECE, ClientSocket, Timeouts
from legacy_queue.server.refusals import MAX_HEAD, MAX_LINE, new_request_id, refusal_of
from legacy_queue.server.tls_socket import TlsSocket

log = structlog.get_logger()

# gunicorn's settings for this worker
SETTINGS: dict[str, Any] = {
    "http_parser": "python",  # always the same parser, even if gunicorn_h1c is installed
    "limit_request_field_size": MAX_HEAD,
    # gunicorn trusts no peer's headers: http.client_connection reads the headers of proxies
    "forwarded_allow_ips": "*",
    "forwarder_headers": "",
    "secure_scheme_headers": {},
    "sendfile": False,  # answers go through ClientSocket
}
WORKER_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
_LINGER_TIMEOUT = 1.0  # seconds that a client has to read a refusal
# seconds that a new connection has to send a request when the process is ending
_FIRST_REQUEST_TIMEOUT = 0.05


class _BoundedRequest(Request):
    """Bounds the head: gunicorn's settings allow lines of at most 8,190 bytes, and headers of 8 MB."""

    def parse(self, unreader: Any) -> Any:
        self.scheme = unreader.sock.scheme
        self.limit_request_line = MAX_LINE
        return super().parse(unreader)

    def parse_request_line(self, line_bytes: bytes) -> None:
        self.max_buffer_headers = MAX_HEAD - len(line_bytes)
        super().parse_request_line(line_bytes)


class _Parser(RequestParser):
    mesg_class = _BoundedRequest

    def finish_body(self, deadline: Any = None, max_bytes: Any = None) -> Any:  # noqa: ARG002
        """Returns whether the end of the last body was found. A malformed rest gets no second answer."""
        body: Any = self.mesg and self.mesg.body
        # the application has read the whole body
        if body is None or getattr(body.reader, "length", None) == 0:
            return True
        client: Any = self.unreader
        limit = client.sock.timeouts.idle  # even if it arrives quickly, because a body may have any length
        with suppress(errors.ParseException, OSError), gevent.Timeout(limit, TimeoutError):
            while not body.failed:
                if not body.read(PIECE):
                    return True
        return False


class GunicornWorker(GeventWorker):
    """gunicorn's gevent worker, changed as follows.

    - On a signal it ends as soon as the active requests are answered. It does not wait for idle connections.
    - At the limit of connections, a new connection replaces the one that has waited longest for its client:
      for a request, or for the rest of a head or a body.
    - Heads and bodies are limited in length and time. The log shows nothing of a malformed head, because a
      request line may contain a SAS, and a header a MAC.
    - When a request is answered, the rest of its body is read and discarded, even if the connection is closed
      after that. Some clients read no answer before they have sent everything.
    """

    timeouts = Timeouts()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # a request reads thirty settings: as plain attributes they need no function call
        vars(self.cfg).update({name: setting.get() for name, setting in self.cfg.settings.items()})
        self._app: Any = self.app
        # above this number, others are closed; while all greenlets are in use, new connections wait in the
        # kernel
        self._max_connections = self.worker_connections - min(128, self.worker_connections // 4)
        self._connections = 0
        # connections that wait for their clients, the longest wait first
        self._waiting: dict[ClientSocket, None] = {}
        self._active: dict[ClientSocket, Request] = {}

    def init_signals(self) -> None:
        """Install the handlers, then handle the signals that the arbiter has sent since the fork."""
        super().init_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WORKER_SIGNALS)

    def run(self) -> None:
        """Serve until a signal, then until the last connection is closed or the graceful timeout has passed.

        gunicorn's own method polls once a second. This one wakes up on a signal and when the last connection
        closes.
        """
        SSLContext.sslsocket_class = TlsSocket  # also for the connections to storage and to the broker
        (listener,) = self.sockets
        listener.setblocking(True)
        # Connections inherit this option. With it, the kernel accepts the next piece of an answer as soon as
        # the client has made room for it. Without it, a third of a buffer of megabytes must be free. Source:
        # tcp(7).
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, PIECE)
        connections = Pool(self.worker_connections)
        server = StreamServer(listener, handle=partial(self.handle, listener), spawn=connections)
        if self.cfg.workers > 1:
            server.max_accept = 1
        server.start()
        while self.alive:
            self.notify()
            with suppress(TimeoutError):  # a signal writes to this pipe and ends the wait
                wait_read(self.PIPE[0], timeout=1.0)
                os.read(self.PIPE[0], 4096)
        server.close()
        self._app.end_streams()
        self._close_when_answered()
        with suppress(TimeoutError), gevent.Timeout(self.cfg.graceful_timeout, TimeoutError):
            while not connections.join(timeout=_FIRST_REQUEST_TIMEOUT):
                self.notify()
                for client in self._waiting.keys() - self._active.keys():
                    client.shut(socket.SHUT_RD)
        connections.kill(timeout=1)

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        """Serve one connection."""
        connection = ClientSocket(client, self._waiting, self.timeouts)
        self._replace_oldest()
        self._connections += 1
        try:
            if self._app.tls_context:
                connection.start_tls(self._app.tls_context)
            self._serve(listener.getsockname(), connection, addr)
        except (StopIteration, errors.NoMoreData, ConnectionError, ssl.SSLEOFError):
            pass
        except OSError as error:
            log.info("connection-aborted", error=str(error))
        except Exception as error:  # noqa: BLE001  the client sent plain HTTP, or this is a bug
            self._refuse(connection, error)
        finally:
            self._connections -= 1
            connection.close()

    def _serve(self, name: Any, client: Any, addr: Any) -> None:
        """Serve the requests of a connection. Raises StopIteration when the connection must be closed."""
        parser: Any = _Parser(self.cfg, client, addr)
        while True:
            client.expect_request(parser.unreader.buf.getvalue())
            if client.begin:
                let_others_run()  # a client that sends many requests at once must not delay other connections
            try:
                req = next(parser)
            except (errors.ParseException, TimeoutError) as error:
                return self._refuse(client, error)
            self._active[client] = req
            try:
                self.handle_request(name, req, client, addr)
            except StopIteration:
                req.force_close()
            finally:
                del self._active[client]
            client.end_answer()
            parser.finish_body()  # within the time limit of its request

    def _replace_oldest(self) -> None:
        """At the limit, close the connection that has waited longest for its client.

        If every connection has an active request, each connection is closed when its request is answered.
        """
        if self._connections < self._max_connections:
            return
        if self._waiting:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.shut(socket.SHUT_RD)  # only for reading: a request that has arrived is still answered
        else:
            self._close_when_answered()

    def _close_when_answered(self) -> None:
        for req in self._active.values():
            req.force_close()

    def _refuse(self, client: ClientSocket, error: Exception) -> None:
        """Answer a request that does not reach the application. The log shows only the type of the error."""
        refusal = refusal_of(error)
        request_id = new_request_id()
        write = log.error if refusal.status == 500 else log.info
        write("connection-aborted", status=refusal.status, error=type(error).__name__, request_id=request_id)
        with suppress(OSError), gevent.Timeout(_LINGER_TIMEOUT, TimeoutError):
            client.sendall(refusal.answer(client.begin, request_id, self._app.headers))
            client.end_answer()
            client.expect_request()  # gives the client time to send the rest
            client.shutdown(socket.SHUT_WR)
            while client.recv(PIECE):  # some clients read no answer before they have sent everything
                pass
