"""Request heads and chunk framing within limits: gunicorn parses a head only once it is complete.

gunicorn scans the whole head again with each byte that arrives, and accepts 6.5 MB. Here the cost of a head
is in proportion to its length, and the whole head must arrive in time.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from gevent import sleep

from legacy_queue.cli.gunicorn_internals import (
    Body,
    ChunkedReader,
    Request,
    RequestParser,
    SocketUnreader,
    errors,
    has_failed,
)

MAX_HEAD = 64 * 1024  # bytes: request line and all headers; a certificate with 30 KiB of scopes fits
_MAX_CHUNKS = 20_000  # in one body: only bodies of at most 1 MiB may come in chunks
_MAX_CHUNK_SIZE_LINE = 1024  # bytes
_MAX_TRAILERS = 8 * 1024  # bytes: gunicorn scans them again with each byte
_MIN_RATE = 1024  # bytes of a body in each second of waiting for it
_YIELD_AFTER = 32 * 1024  # bytes that are read before other greenlets run
_REQUEST_COST = 4 * 1024  # bytes that a request adds to this count

WaitForBody = Callable[[], AbstractContextManager[None]]


class HeadTimeout(errors.ParseException):
    """The head was not complete in time."""


@dataclass(frozen=True)
class HeadTimeouts:
    """In seconds."""

    idle: float = 120.0  # until the first byte of a request: legacy clients and proxies keep connections
    handshake: float = 10.0  # of TLS
    head: float = 10.0  # from the first byte of a head to its end
    body: float = 30.0  # of waiting for a body, in which less than a KiB for each second is too slow
    send: float = 60.0  # until the client takes a byte of the answer


class SettingsReadOnce:
    """gunicorn's settings, each looked up once: a head needs twenty, which cost more than parsing it."""

    is_ssl: bool

    def __init__(self, cfg: Any) -> None:
        self._cfg = cfg

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._cfg, name)
        setattr(self, name, value)
        return value


class _BoundedRequest(Request):
    """A request whose head is complete."""

    def _peer_is_trusted_proxy(self) -> bool:
        """All peers or none: gunicorn's method parses each peer's address."""
        return "*" in self.cfg.forwarded_allow_ips

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
    def __init__(self, request: Any, unreader: Any) -> None:
        super().__init__(request, unreader)
        self.limit_chunk_size_line, self.limit_trailer_section = _MAX_CHUNK_SIZE_LINE, _MAX_TRAILERS
        self._chunks = 0

    def parse_chunk_size(self, unreader: Any, data: bytes | None = None) -> Any:
        """Raises InvalidChunkSize for more chunks than are accepted."""
        self._chunks += 1
        if self._chunks > _MAX_CHUNKS:
            raise errors.InvalidChunkSize(b"more than %d chunks" % _MAX_CHUNKS)
        return super().parse_chunk_size(unreader, data)


class _Reader(SocketUnreader):
    """Reads from one connection."""

    def __init__(
        self, connection: Any, max_line: int, timeouts: HeadTimeouts, wait_for_body: WaitForBody
    ) -> None:
        super().__init__(connection)
        self._max_line, self._timeouts, self._wait_for_body = max_line, timeouts, wait_for_body
        self._since_yield = 0  # bytes
        self._waited, self._received = 0.0, 0  # seconds and bytes of a body, in this period

    def receive_head(self) -> None:
        """Read until the buffer holds a whole head; raises as HeadParser."""
        timeouts, self._waited, self._received = self._timeouts, 0.0, 0
        self._count(_REQUEST_COST)
        head = bytearray(self.take_buffered())
        end = time.monotonic() + timeouts.head if head else None
        is_complete = _scanner(head, self._max_line)
        while not is_complete():
            left = timeouts.idle if end is None else end - time.monotonic()
            if left <= 0:
                raise HeadTimeout
            self.sock.settimeout(left)
            try:
                data = self.sock.recv(self.mxchunk)
            except TimeoutError:
                if end is None:
                    raise StopIteration from None
                raise HeadTimeout from None
            if not data:
                raise StopIteration
            end = end or time.monotonic() + timeouts.head
            head += data
            self._count(len(data))
        self.unread(bytes(head))

    def chunk(self, size_hint: int | None = None) -> bytes:
        """Read the bytes of a body that have arrived, or wait for some. Raises TimeoutError for a slow body.

        Only the time counts in which there is nothing to read. Now and then other greenlets run first.
        """
        self._count(0)
        send_timeout = self.sock.gettimeout()
        read: Any = super().chunk
        try:
            self.sock.settimeout(0)
            try:
                data = bytes(read(size_hint))
            except BlockingIOError:
                data = self._wait(lambda: bytes(read(size_hint)))
        finally:
            self.sock.settimeout(send_timeout)
        self._since_yield += len(data)
        self._received += len(data)
        return data

    def _count(self, size: int) -> None:
        self._since_yield += size
        if self._since_yield >= _YIELD_AFTER:
            self._since_yield = 0
            sleep(0)

    def _wait(self, read: Callable[[], bytes]) -> bytes:
        period = self._timeouts.body
        while True:
            if self._waited >= period:
                if self._received < _MIN_RATE * period:
                    raise TimeoutError
                self._waited, self._received = 0.0, 0
            begun = time.monotonic()
            self.sock.settimeout(period - self._waited)
            try:
                with self._wait_for_body():
                    return read()
            except TimeoutError:
                continue
            finally:
                self._waited += time.monotonic() - begun


class HeadParser(RequestParser):
    """gunicorn's parser of the requests on one connection; it gets whole heads only.

    Before ``next`` the body of the last request must have been read to its end, or have failed. Raises
    StopIteration when the client closes the connection or stays idle, HeadTimeout, LimitRequestLine,
    LimitRequestHeaders, and gunicorn's errors for a malformed head.
    """

    mesg_class = _BoundedRequest

    def __init__(
        self,
        cfg: Any,
        connection: Any,
        address: Any,
        timeouts: HeadTimeouts,
        wait_for_body: WaitForBody = nullcontext,
    ) -> None:
        """``wait_for_body`` makes a context for each wait for a body."""
        super().__init__(cfg, connection, address)
        self._timeouts = timeouts
        self.unreader = self._reader = _Reader(connection, cfg.limit_request_line, timeouts, wait_for_body)

    def __next__(self) -> Any:
        last: Any = self.mesg
        if last and (last.should_close() or has_failed(last)):
            raise StopIteration
        connection = self._reader.sock
        try:
            self._reader.receive_head()
        finally:
            connection.settimeout(self._timeouts.send)
        return super().__next__()


def _scanner(head: bytearray, max_line: int) -> Callable[[], bool]:
    """Returns a function that says whether ``head`` is complete. Each call scans only the added bytes.

    The function raises as soon as no further bytes can complete the head.
    """
    scanned, has_line = 0, False

    def is_complete() -> bool:
        nonlocal scanned, has_line
        end = head.find(b"\r\n\r\n", max(0, scanned - 3))
        size = len(head) if end < 0 else end + 4
        added = head[scanned - 1 if head[scanned - 1 : scanned] == b"\r" else scanned : size]
        if added.count(b"\n") != added.count(b"\r\n"):
            raise errors.InvalidHeader("bare LF as line terminator")
        if not has_line and size > max_line + 4:  # an empty line may come first
            if head.find(b"\r\n", 2, max_line + 4) < 0:
                raise errors.LimitRequestLine(len(head), max_line)
            has_line = True
        if size > MAX_HEAD:
            raise errors.LimitRequestHeaders("the head is too long")
        scanned = size
        return end >= 0

    return is_complete
