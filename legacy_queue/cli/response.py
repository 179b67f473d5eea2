"""Responses as gunicorn writes them, at less cost: a head is sent with the first bytes of its body."""

import fcntl
import socket
import struct
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog
from gevent import socket as gevent_socket

from legacy_queue.cli import gunicorn_internals

log = structlog.get_logger()

_PEEK = int(socket.MSG_PEEK | socket.MSG_DONTWAIT)


class ClientSocket(gevent_socket.socket):
    """A client's connection. Its timeout is for each byte of an answer, not for the whole answer."""

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Raises TimeoutError when the client has taken nothing for as long as the timeout."""
        left = memoryview(data)
        with suppress(BlockingIOError):
            left = left[self.at_once.send(data, flags) :]
        queued = self.queued() if left else 0
        while left:
            try:
                left = left[self.send(left, flags) :]
            except TimeoutError:
                before, queued = queued, self.queued()
                if queued >= before:  # else it is slow: a socket takes more when much of its buffer is free
                    raise
            else:
                queued = self.queued()

    @property
    def at_once(self) -> socket.socket:
        """The same connection; its methods never wait."""
        return self._sock  # type: ignore[attr-defined,no-any-return]

    def is_closed(self) -> bool:
        """Whether the client has closed its side, or the connection is broken.

        Any greenlet may call this at any time. It costs a system call and reads nothing.
        """
        try:
            return not self.at_once.recv(1, _PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def queued(self) -> int:
        """Bytes that the client has not acknowledged. Source: tcp(7), SIOCOUTQ."""
        return int(struct.unpack("i", fcntl.ioctl(self.fileno(), termios.TIOCOUTQ, bytes(4)))[0])


def respond(app: Callable[..., Any], req: Any, peers: tuple[Any, Any, Any], cfg: Any, is_last: bool) -> None:
    """Let the application answer the request. Raises StopIteration if the connection is to be closed.

    ``peers`` are the connection, the client's address and the server's address. An error of the application
    goes through if no byte was sent. Later it shuts the connection down, so that the client sees an
    incomplete answer.
    """
    response, environ = gunicorn_internals.create(req, *peers, cfg, _Response)
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
        log.exception("answer-aborted")
        with suppress(OSError):
            peers[0].shutdown(socket.SHUT_RDWR)
        raise StopIteration from None
    if response.should_close():
        raise StopIteration


class _Response(gunicorn_internals.Response):
    _head = b""

    def send_headers(self) -> None:
        """Prepare the head, once. It is sent with the next bytes."""
        if not self.headers_sent:
            headers = (f"{name}: {value}\r\n" for name, value in self.headers)
            self._head = "".join([*self.default_headers(), *headers, "\r\n"]).encode("latin-1")
            self.headers_sent = True

    def close(self) -> None:
        """Send the rest of the response."""
        self.send_headers()
        if self.chunked or self._head:
            self._emit_body(b"")

    def _emit_body(self, data: bytes) -> None:
        head, self._head = self._head, b""
        self.sock.sendall(head + (b"%X\r\n%b\r\n" % (len(data), data) if self.chunked else data))
