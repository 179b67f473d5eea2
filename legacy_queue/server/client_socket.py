"""The connection of a client, with timeouts for its requests and answers."""

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import gevent
import structlog
from gevent.ssl import SSLSocket

from legacy_queue.cooperation import let_others_run

log = structlog.get_logger()

PIECE = 64 * 1024  # bytes of a request or an answer
MAX_UNSENT = 128 * 1024 * 1024  # bytes of answers in this process that wait for their clients
# A request must bring this many bytes in each second that the server waits for it. Then 16 concurrent uploads
# of a worker need an uplink of half a Mbit/s.
_MIN_RATE = 4096


class PlainHttp(Exception):
    """The client sent plain HTTP to a port that expects TLS."""


@dataclass(frozen=True)
class Timeouts:
    """How long the server waits for a client, in seconds."""

    # until the first byte of a request; long, because legacy clients and proxies keep connections open
    idle: float = 120.0
    # for a TLS handshake, or for a request; a request gets more time if at least 4 KiB a second arrive
    request: float = 30.0
    answer: float = 60.0  # for each piece of an answer, so the client must read about a KiB a second


class ClientSocket:
    """The connection of a client, plain or over TLS. A client that is too slow is disconnected.

    While the connection waits for its client, it is in ``waiting``. If more than MAX_UNSENT bytes of answers
    wait for their clients, the connection that has waited longest is shut down.
    """

    unsent: ClassVar[dict["ClientSocket", int]] = {}  # in bytes; the longest wait comes first

    def __init__(
        self,
        connection: Any,
        waiting: dict["ClientSocket", None],
        timeouts: Timeouts,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.scheme = "http"
        self._connection = connection
        self._file = connection.fileno()
        self._waiting = waiting
        self.timeouts = timeouts
        self._now = now
        self.expect_request()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def start_tls(self, context: Any) -> None:
        """Make the TLS handshake. Raises PlainHttp, TimeoutError and ssl.SSLError."""
        self._waiting[self] = None
        with gevent.Timeout(self.timeouts.request, TimeoutError("no TLS handshake in time")):
            if self._connection.recv(1, socket.MSG_PEEK).isalpha():
                raise PlainHttp
            self._connection = context.wrap_socket(self._connection, server_side=True)
        self.scheme = "https"
        self._waiting.pop(self, None)

    def expect_request(self, begin: bytes = b"") -> None:
        """Prepare for the next request and its answer. ``begin`` came together with the previous request."""
        self.begin = begin  # the part of the request that has arrived already
        # how many seconds the server still waits; arriving bytes add to them
        self._left = self.timeouts.request if begin else self.timeouts.idle
        self._head: bytes | None = None  # the head of the answer, kept until its body comes

    def recv(self, size: int) -> bytes:
        """Return bytes of a request, or b"" if none begins in time. Raises TimeoutError if it is too slow."""
        self._waiting[self] = None
        try:
            if self.begin:
                let_others_run()  # a client that sends without a pause must not delay other connections
            if self._left <= 0:  # without this check, bytes that arrived meanwhile would still be read
                raise TimeoutError
            begun = self._now()
            with gevent.Timeout(self._left, TimeoutError):
                data = bytes(self._connection.recv(min(size, PIECE)))
        except TimeoutError:
            self._left = 0
            if self.begin:
                raise
            return b""
        finally:
            self._waiting.pop(self, None)
        if self.begin:
            left = self._left - (self._now() - begun) + len(data) / _MIN_RATE
            self._left = min(left, self.timeouts.request)
        else:
            self.begin = data
            self._left = self.timeouts.request
        return data

    def sendall(self, data: bytes) -> None:
        """Send a part of an answer. The head is kept and sent together with the first part of the body.

        Raises TimeoutError if the client reads too slowly.
        """
        if self._head is None:
            self._head = data
        else:
            self._send(self._head + data)
            self._head = b""

    def end_answer(self) -> None:
        """Send the head of an answer that has no body."""
        if self._head:
            self.sendall(b"")

    def _send(self, data: bytes) -> None:
        left = memoryview(data)
        self._connection.settimeout(self.timeouts.answer)
        try:
            while left:
                self.unsent[self] = len(left)
                self._make_room()
                left = left[self._connection.send(left[:PIECE]) :]
        except TimeoutError:
            raise TimeoutError("the client does not read its answer") from None
        finally:
            self.unsent.pop(self, None)
            self._connection.settimeout(None)

    def _make_room(self) -> None:
        while len(self.unsent) > 1 and sum(self.unsent.values()) > MAX_UNSENT:
            longest = next(iter(self.unsent))
            del self.unsent[longest]
            log.info(
                "connection-aborted", error="the client does not read its answer, and others need the memory"
            )
            longest.shut(socket.SHUT_RDWR)

    def shut(self, how: int) -> None:
        """Shut down the connection through a socket object of its own.

        gevent's object would raise an error in whoever waits for it, and a TLS object would send
        close_notify.
        """
        with suppress(OSError), socket.fromfd(self._file, socket.AF_INET, socket.SOCK_STREAM) as same:
            same.shutdown(how)

    def close(self) -> None:
        """Close the connection. TLS first sends close_notify, but does not wait for the client's."""
        self._waiting.pop(self, None)
        if isinstance(self._connection, SSLSocket):
            with suppress(OSError, ValueError):
                self._connection.settimeout(0)
                self._connection.unwrap()
        self._connection.close()
