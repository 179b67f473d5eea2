"""Reads the answer to an HTTP/1.1 request strictly: an ambiguous answer is refused.

Source: RFC 9112, sections 2 to 7. No request has the method HEAD or CONNECT.
"""

import re
import socket
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_BUFFER = 64 * 1024  # bytes of one recv
_MAX_HEAD = 64 * 1024  # bytes of a status line and its headers, or of a chunk's line
_MAX_BODY = 256 * 1024 * 1024
_HEAD = re.compile(
    r"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [^\r\n]*)?((?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n]*)*)", re.ASCII
)
_HEADER = re.compile(r"\r\n([^:]+):([^\r]*)")
_LENGTH = re.compile(r"[0-9]{1,10}")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?")


class BadResponse(Exception):
    """The answer is not HTTP, is ambiguous, too large or incomplete."""


class Response(NamedTuple):
    """``headers`` have names in lower case; ``can_continue``: the connection can be used again."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    can_continue: bool


def read_response(connection: socket.socket) -> Response:
    """The final answer; raises BadResponse, and OSError where the connection fails."""
    stream, status = _Stream(connection), 100
    while status < 200:
        version, status, headers = _head(stream)
        if status == 101:
            raise BadResponse("another protocol")
    body = b"" if status in (204, 304) else _framed_body(stream, headers)
    if body is None:
        return Response(status, headers, stream.rest(), False)
    can_continue = version == "1" and "close" not in headers.get("connection", "").lower()
    return Response(status, headers, body, can_continue and not stream.unread)


class _Stream:
    """Received bytes; ``unread`` are the bytes that no method has returned yet."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self.unread = connection, b""

    def until(self, end: bytes) -> bytes:
        """The bytes before ``end``; skips ``end``."""
        while (position := self.unread.find(end)) < 0:
            if len(self.unread) > _MAX_HEAD:
                raise BadResponse("a head that does not end")
            self.unread += self._receive()
        before, self.unread = self.unread[:position], self.unread[position + len(end) :]
        return before

    def exactly(self, count: int) -> bytes:
        parts, missing = [self.unread], count - len(self.unread)
        while missing > 0:
            parts.append(self._receive())
            missing -= len(parts[-1])
        received = b"".join(parts)
        self.unread = received[count:]
        return received[:count]

    def rest(self) -> bytes:
        """All bytes until the connection is closed."""
        parts, left = [self.unread], _MAX_BODY
        while received := self._connection.recv(_BUFFER):
            parts.append(received)
            left -= len(received)
            if left < 0:
                raise BadResponse("a body that does not end")
        return b"".join(parts)

    def _receive(self) -> bytes:
        received = self._connection.recv(_BUFFER)
        if not received:
            raise BadResponse("the connection was closed")
        return received


def _head(stream: _Stream) -> tuple[str, int, dict[str, str]]:
    """The minor version, the status and the headers."""
    head = _HEAD.fullmatch(stream.until(b"\r\n\r\n").decode("latin-1"))
    if not head:  # a folded line and a name with a space are invalid headers
        raise BadResponse("no status line, or an invalid header")
    version, status, lines = head.groups()
    pairs = _HEADER.findall(lines)
    headers = {name.lower(): value.strip(" \t") for name, value in pairs}
    if len(headers) < len(pairs):
        names = [name.lower() for name, _ in pairs]
        if names.count("content-length") > 1 or names.count("transfer-encoding") > 1:
            raise BadResponse("two lengths")
    return version, int(status), headers


def _framed_body(stream: _Stream, headers: Mapping[str, str]) -> bytes | None:
    """The body; None where its length is not given."""
    coding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if coding is not None:
        if length is not None or coding.lower() != "chunked":
            raise BadResponse("an unknown or second length")
        return b"".join(_chunks(stream))
    if length is None:
        return None
    if not _LENGTH.fullmatch(length) or int(length) > _MAX_BODY:
        raise BadResponse("an invalid or too large length")
    return stream.exactly(int(length))


def _chunks(stream: _Stream) -> Iterator[bytes]:
    left = _MAX_BODY
    while True:
        line = _CHUNK_LINE.fullmatch(stream.until(b"\r\n"))
        if not line:
            raise BadResponse("a chunk without a size")
        count = int(line[1], 16)
        left -= count
        if left < 0:
            raise BadResponse("a body that does not end")
        if not count:
            break
        chunk = stream.exactly(count + 2)
        if not chunk.endswith(b"\r\n"):
            raise BadResponse("a chunk of another size")
        yield chunk[:-2]
    while stream.until(b"\r\n"):  # trailers are ignored
        pass
