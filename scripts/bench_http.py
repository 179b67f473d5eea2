"""Kept HTTP/1.1 connections with as little between as possible: what scripts/bench sends its load through."""

import asyncio
import re
from typing import NamedTuple

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_NO_CONTENT = 204


class Answer(NamedTuple):
    """``head`` is the status line and the headers, as they came."""

    status: int
    head: bytes
    body: bytes

    def header(self, name: str) -> str:
        """Its value; raises LookupError where it is missing."""
        found = re.search(rb"\r\n%s: *([^\r]*)" % name.encode(), self.head, re.IGNORECASE)
        if not found:
            raise LookupError(f"no {name} in the answer")
        return found[1].decode()


class Refused(Exception):
    """An answer that is an error."""


class Connection(asyncio.Protocol):
    """One request at a time; opened when it is first used, and again after the server has closed it."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._waits: asyncio.Future[Answer] | None = None

    async def send(self, request: bytes, may_be_refused: bool = False) -> Answer:
        """The answer to a whole request. Raises Refused from status 400 on, unless ``may_be_refused``."""
        for is_last in (False, True):
            try:
                answer = await self._send(request)
                break
            except ConnectionError:
                if is_last:  # the server may close a connection in the moment in which it is used again
                    raise
        if answer.status >= 400 and not may_be_refused:
            what = request.split(b"?")[0].split(b" HTTP")[0].decode()
            raise Refused(f"{what}: {answer.status} {answer.body[:300]!r}")
        return answer

    async def _send(self, request: bytes) -> Answer:
        loop = asyncio.get_running_loop()
        if self._transport is None or self._transport.is_closing():
            self._transport, _ = await loop.create_connection(lambda: self, self._host, self._port)
        self._waits = loop.create_future()
        self._transport.write(request)
        return await self._waits

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head, rest = bytes(self._received[:end]), bytes(self._received[end + 4 :])
        status, length = int(head[9:12]), _LENGTH.search(head)
        body: bytes | None = rest
        if length:
            body = rest if len(rest) >= int(length[1]) else None
        elif status != _NO_CONTENT and _CHUNKED.search(head):
            body = _joined(rest)
        if body is not None and self._waits and not self._waits.done():
            self._received.clear()
            self._waits.set_result(Answer(status, head, body))

    def connection_lost(self, exc: Exception | None) -> None:
        self._received.clear()
        if self._waits and not self._waits.done():
            self._waits.set_exception(ConnectionResetError(str(exc or "closed")))

    def close(self) -> None:
        if self._transport:
            self._transport.close()


def _joined(chunks: bytes) -> bytes | None:
    """The body that came in chunks; None while it is not whole."""
    parts: list[bytes] = []
    while b"\r\n" in chunks:
        size, _, chunks = chunks.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            return b"".join(parts)
        if len(chunks) < length + 2:
            return None
        parts.append(chunks[:length])
        chunks = chunks[length + 2 :]
    return None


def request(method: str, host: str, target: str, body: bytes = b"", headers: str = "") -> bytes:
    """A whole request; ``headers`` are lines that end in CRLF."""
    length = f"Content-Length: {len(body)}\r\n" if body or method != "GET" else ""
    return f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{headers}{length}\r\n".encode() + body
