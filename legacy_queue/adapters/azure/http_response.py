"""Reads the answer to one HTTP/1.1 request from a socket, strictly: what is unclear is refused.

Source: RFC 9112, sections 2 to 7. No request has the method HEAD or CONNECT.
"""

import re
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_BUFFER = 64 * 1024  # bytes of one recv
_MAX_HEAD = 64 * 1024  # bytes of a status line and its headers, or of a chunk's line
_MAX_BODY = 256 * 1024 * 1024
_HEAD = re.compile(
    r"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [^\r\n]*)?((?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n]*)*)", re.ASCII
)
_HEADER = re.compile(r"\r\n([^:]+):([^\r]*)")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?")
_FRAMING = ("content-length", "transfer-encoding")


class BadResponse(Exception):
    """The answer is not HTTP, has two meanings, is too large, or ended too early."""


class Response(NamedTuple):
    """``headers`` by their names in lower case; ``can_continue`` says whether the connection can be kept."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    can_continue: bool


def read_response(connection: socket.socket) -> Response:
    """The final answer; raises BadResponse, and OSError where the connection fails."""
    stream = _Stream(connection)
    while True:
        version, status, headers = _head(stream)
        if status == 101:
            raise BadResponse("another protocol")
        if status >= 200:
            break
    body, is_framed = _body(stream, status, headers)
    can_continue = (
        is_framed
        and version == "1"
        and not stream.unread
        and "close" not in headers.get("connection", "").lower()
    )
    return Response(status, headers, body, can_continue)


class _Stream:
    """Bytes that were received, and what has been ``unread`` of them so far."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.unread = b""

    def until(self, end: bytes) -> bytes:
        """What comes before ``end``, which is taken away too."""
        while (found := self.unread.find(end)) < 0:
            if len(self.unread) > _MAX_HEAD:
                raise BadResponse("a head that does not end")
            self.unread += self._receive()
        taken = self.unread[:found]
        self.unread = self.unread[found + len(end) :]
        return taken

    def exactly(self, count: int) -> bytes:
        missing = count - len(self.unread)
        if missing > 0:
            parts = [self.unread]
            while missing > 0:
                parts.append(self._receive())
                missing -= len(parts[-1])
            self.unread = b"".join(parts)
        taken, self.unread = self.unread[:count], self.unread[count:]
        return taken

    def rest(self) -> bytes:
        """All that comes until the connection is closed."""
        parts, size = [self.unread], len(self.unread)
        while received := self._connection.recv(_BUFFER):
            parts.append(received)
            size += len(received)
            if size > _MAX_BODY:
                raise BadResponse("a body that does not end")
        self.unread = b""
        return b"".join(parts)

    def _receive(self) -> bytes:
        received = self._connection.recv(_BUFFER)
        if not received:
            raise BadResponse("the connection was closed")
        return received


def _head(stream: _Stream) -> tuple[str, int, dict[str, str]]:
    """The minor version, the status and the headers."""
    head = _HEAD.fullmatch(stream.until(b"\r\n\r\n").decode("latin-1"))
    if not head:  # nor is a folded line a header, or a name with a space
        raise BadResponse("no status line, or a header that is none")
    version, status, lines = head.groups()
    pairs = _HEADER.findall(lines)
    headers = {name.lower(): value.strip(" \t") for name, value in pairs}
    if len(headers) < len(pairs) and any(_count(pairs, name) > 1 for name in _FRAMING):
        raise BadResponse("two lengths")
    return version, int(status), headers


def _count(pairs: Sequence[tuple[str, str]], name: str) -> int:
    return sum(found.lower() == name for found, _ in pairs)


def _body(stream: _Stream, status: int, headers: Mapping[str, str]) -> tuple[bytes, bool]:
    """The body, and whether it says where it ends."""
    if status in (204, 304):
        return b"", True
    coding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if coding is not None:
        if length is not None or coding.lower() != "chunked":
            raise BadResponse("an unknown or second length")
        return _chunks(stream), True
    if length is None:
        return stream.rest(), False
    if not (length.isascii() and length.isdigit()) or len(length) > 10 or int(length) > _MAX_BODY:
        raise BadResponse("a length that is none, or is too large")
    return stream.exactly(int(length)), True


def _chunks(stream: _Stream) -> bytes:
    parts, size = [], 0
    while True:
        line = _CHUNK_LINE.fullmatch(stream.until(b"\r\n"))
        if not line:
            raise BadResponse("a chunk without a size")
        count = int(line[1], 16)
        size += count
        if size > _MAX_BODY:
            raise BadResponse("a body that does not end")
        if not count:
            break
        parts.append(stream.exactly(count))
        if stream.exactly(2) != b"\r\n":
            raise BadResponse("a chunk of another size")
    while stream.until(b"\r\n"):  # trailers, which have no use here
        pass
    return b"".join(parts)
