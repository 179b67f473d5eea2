"""Responses as gunicorn writes them, at less cost: a head is sent with the first bytes of its body."""

import fcntl
import socket
import struct
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

import structlog
from gevent import socket as gevent_socket

from legacy_queue.cli import gunicorn_internals

log = structlog.get_logger()

_PEEK = int(socket.MSG_PEEK | socket.MSG_DONTWAIT)
_MIN_RATE = 1024  # bytes of an answer in each second of waiting for its client, as of a body
_LARGE = 64 * 1024  # bytes that are sent without a copy
MAX_UNSENT = 128 * 1024 * 1024  # bytes of answers in this process that wait for their clients


class ClientSocket(gevent_socket.socket):
    """A client's connection. Its timeout is for a part of an answer, not for the whole answer.

    If more than MAX_UNSENT wait for their clients, the connection that waits longest is shut down.
    """

    held = 0  # bytes of the answer beside those that are sent now
    unsent: ClassVar[dict["ClientSocket", int]] = {}  # bytes, the longest wait first

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Raises TimeoutError when the client was slower than _MIN_RATE for as long as the timeout."""
        left = memoryview(data)
        with suppress(BlockingIOError):
            left = left[self.at_once.send(data, flags) :]
        queued = self.queued() if left else 0
        try:
            while left:
                self._holds(self.held + len(left))
                try:
                    left = left[self.send(left, flags) :]
                except TimeoutError:
                    before, queued = queued, self.queued()
                    # a socket takes more only when much of its buffer is free
                    if before - queued <= _MIN_RATE * (self.gettimeout() or 0):
                        raise
                else:
                    queued = self.queued()
        finally:
            self.unsent.pop(self, None)

    def _holds(self, size: int) -> None:
        """So many bytes wait for this client from now on."""
        unsent = self.unsent
        unsent.pop(self, None)
        unsent[self] = size
        while len(unsent) > 1 and sum(unsent.values()) > MAX_UNSENT:
            longest = next(iter(unsent))
            del unsent[longest]
            log.info("connection-aborted", error="the client does not read its answer, others need its place")
            with suppress(OSError):
                longest.at_once.shutdown(socket.SHUT_RDWR)

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
        if self.chunked:
            head, tail = b"%b%X\r\n" % (head, len(data)), b"\r\n"
        else:
            tail = b""
        for piece in (head, data, tail) if len(data) > _LARGE else (b"%b%b%b" % (head, data, tail),):
            self.sock.sendall(piece)
