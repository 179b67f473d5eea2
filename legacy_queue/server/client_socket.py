"""A client's connection, which has to send its requests and take its answers in time."""

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
# bytes of a request in each second of waiting for it: 16 uploads of a worker need an uplink of half a Mbit/s
_MIN_RATE = 4096


class PlainHttp(Exception):
    """The client speaks HTTP without TLS."""


@dataclass(frozen=True)
class Timeouts:
    """How long the server waits for a client, in seconds."""

    idle: float = 120.0  # until the first byte of a request: legacy clients and proxies keep connections
    # of waiting for a handshake, or for a request, in which less than 4 KiB for each second is too slow
    request: float = 30.0
    answer: float = 60.0  # for each piece of an answer: a KiB for each second


class ClientSocket:
    """A client's connection, plain or over TLS, which has to send its requests and take its answers in time.

    It is in ``waiting`` while it waits for its client. If answers of more than MAX_UNSENT bytes wait for
    their clients, the connection that waits longest is shut down.
    """

    unsent: ClassVar[dict["ClientSocket", int]] = {}  # bytes, the longest wait first

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
        """Raises PlainHttp, TimeoutError and ssl.SSLError."""
        self._waiting[self] = None
        with gevent.Timeout(self.timeouts.request, TimeoutError("no TLS handshake in time")):
            if self._connection.recv(1, socket.MSG_PEEK).isalpha():
                raise PlainHttp
            self._connection = context.wrap_socket(self._connection, server_side=True)
        self.scheme = "https"
        self._waiting.pop(self, None)

    def expect_request(self, begin: bytes = b"") -> None:
        """Begin with the next request and its answer. ``begin`` came together with the last request."""
        self.begin = begin  # of the request, as far as it came at once
        # seconds of waiting; the bytes of a request add to them
        self._left = self.timeouts.request if begin else self.timeouts.idle
        self._head: bytes | None = None  # of the answer, until its body comes

    def recv(self, size: int) -> bytes:
        """Bytes of a request; none if none begins in time.

        Raises TimeoutError if the rest of a request comes too slowly.
        """
        self._waiting[self] = None
        try:
            if self.begin:
                let_others_run()  # what arrives without a pause does not delay other connections
            if self._left <= 0:  # bytes that have arrived meanwhile would be read without waiting
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
        """Send a part of an answer; the first, its head, together with the second.

        Raises TimeoutError for a client that is too slow.
        """
        if self._head is None:
            self._head = data
        else:
            self._send(self._head + data)
            self._head = b""

    def end_answer(self) -> None:
        """Send a head without a body."""
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
            log.info("connection-aborted", error="the client does not read its answer, others need its place")
            longest.shut(socket.SHUT_RDWR)

    def shut(self, how: int) -> None:
        """Shut down the connection through another object.

        gevent's would end a wait for it with an error, and TLS would send its end.
        """
        with suppress(OSError), socket.fromfd(self._file, socket.AF_INET, socket.SOCK_STREAM) as same:
            same.shutdown(how)

    def close(self) -> None:
        """Close the connection; over TLS after its end, without waiting for the client's."""
        self._waiting.pop(self, None)
        if isinstance(self._connection, SSLSocket):
            with suppress(OSError, ValueError):
                self._connection.settimeout(0)
                self._connection.unwrap()
        self._connection.close()
