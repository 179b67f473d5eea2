"""Responses as gunicorn writes them, at less cost: a head goes out with what comes first of its body."""

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any

import structlog
from gunicorn.http import wsgi
from gunicorn.util import http_date

log = structlog.get_logger()


def respond(app: Callable[..., Any], req: Any, peers: tuple[Any, Any, Any], cfg: Any, is_last: bool) -> None:
    """Have the application answer the request; raises StopIteration where the connection is to be closed.

    ``peers`` are the connection, the client's address and the server's.

    It closes it where the answer breaks off, so that the client sees that, and raises what the application
    raises before it has begun to answer.
    """
    response, environ = wsgi.create(req, *peers, cfg, _Response)
    environ["wsgi.multithread"] = True
    if is_last:
        response.force_close()
    try:
        chunks = app(environ, response.start_response)
        try:
            for chunk in chunks:
                response.write(chunk)
            response.close()
        finally:
            if hasattr(chunks, "close"):
                chunks.close()
    except OSError:
        raise
    except Exception:
        if not response.headers_sent:
            raise
        log.exception("answer-broken-off")
        with suppress(OSError):
            peers[0].shutdown(socket.SHUT_RDWR)
        raise StopIteration from None
    if response.should_close():
        raise StopIteration


class _Response(wsgi.Response):
    _head = b""

    def send_headers(self) -> None:
        """Once: with the next bytes that are sent."""
        if self.headers_sent:
            return
        version: Any = self.req.version
        lines = [
            f"HTTP/{version[0]}.{version[1]} {self.status}",
            f"Server: {self.version}",
            f"Date: {_date(int(time.time()))}",
            f"Connection: {'close' if self.should_close() else 'keep-alive'}",
            *(["Transfer-Encoding: chunked"] if self.chunked else []),
            *(f"{name}: {value}" for name, value in self.headers),
            "\r\n",
        ]
        self._head = "\r\n".join(lines).encode("latin-1")
        self.headers_sent = True

    def close(self) -> None:
        """What is left of the response is sent."""
        self.send_headers()
        if self.chunked:
            self._emit_body(b"")
        elif self._head:
            self._send(b"")

    def _emit_body(self, data: bytes) -> None:
        self._send(b"%X\r\n%b\r\n" % (len(data), data) if self.chunked else data)

    def _send(self, data: bytes) -> None:
        head, self._head = self._head, b""
        self.sock.sendall(head + data if head else data)


@lru_cache(maxsize=1)
def _date(seconds: int) -> str:
    return str(http_date(seconds))
