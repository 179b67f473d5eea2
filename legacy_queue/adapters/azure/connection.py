"""Keep-alive connections of http.client to one endpoint, the same on threads and under gevent.

No redirects, cookies or netrc, and a proxy only where it is given: the settings alone say where storage is.
"""

import os
import ssl
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from traceback import clear_frames
from typing import NamedTuple
from urllib.parse import urlsplit

from requests.utils import DEFAULT_CA_BUNDLE_PATH

MAX_IDLE = 128  # connections; more concurrent calls open more, which are closed afterwards
_MAX_LINE = 64 * 1024  # bytes of a header
_MAX_FIELDS = 100
_MAX_IDLE_TIME = 60.0  # seconds: a connection that a firewall has dropped costs a whole timeout


class NotSent(Exception):
    """Storage did not get the whole request: it cannot have acted on it."""


class NotAnswered(Exception):
    """The request was sent, but no complete answer came: storage may have acted on it."""


class Response(NamedTuple):
    """``headers`` have names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class StorageTimeouts(NamedTuple):
    """In seconds, for each step: a call gives up before a client with a timeout of 30 s."""

    connect: float = 5
    read: float = 7


class _LeanResponse(HTTPResponse):
    """Reads its headers without the e-mail parser of http.client, which takes as long as all the rest."""

    fields: Mapping[str, str]

    def begin(self) -> None:
        """Read the head of the answer; raises HTTPException, also where its end could not be noticed."""
        version = ""
        status = 100
        while status < 200:
            version, status, _ = self._read_status()  # type: ignore[attr-defined]
            self.fields = dict(self._fields())
        self.status = status
        length = self.fields.get("content-length")
        self.chunked = self.fields.get("transfer-encoding", "").lower() == "chunked"
        self.chunk_left = None
        self.length = None
        if status in (204, 304) or self._method == "HEAD":  # type: ignore[attr-defined]
            self.chunked = False
            self.length = 0
        elif not self.chunked:
            if length is None or not length.isdecimal():
                raise HTTPException("no length of the body")
            self.length = int(length)
        self.will_close = version == "HTTP/1.0" or "close" in self.fields.get("connection", "").lower()

    def _fields(self) -> Iterator[tuple[str, str]]:
        for _ in range(_MAX_FIELDS):
            line = self.fp.readline(_MAX_LINE).decode("latin-1")
            if line == "\r\n":
                return
            name, colon, value = line.partition(":")
            if not colon or not line.endswith("\n"):
                break
            yield name.lower(), value.strip()
        raise HTTPException("invalid headers")


class Connections:
    """Connections to the host of ``url``, each used by a single request at a time."""

    def __init__(
        self,
        url: str,
        timeouts: StorageTimeouts | None = None,
        context: ssl.SSLContext | None = None,
        now: Callable[[], float] = time.monotonic,
        proxy: str | None = None,
    ) -> None:
        """``context`` is for https, by default with the authorities of the system and the SDK.

        ``now`` is in seconds. ``proxy`` is the URL of an HTTP proxy for https. Raises ValueError.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{parts.scheme}://{parts.hostname} is not a URL of a storage endpoint")
        self.host = parts.netloc.rpartition("@")[2]  # as in the Host header
        self.path = parts.path.rstrip("/")
        self.address = (parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
        if proxy and parts.scheme != "https":
            raise ValueError(f"a proxy is used for https only, and this is {parts.scheme}://{parts.netloc}")
        through = urlsplit(proxy or "")
        self._proxy = (through.hostname, through.port or 80) if through.hostname else None
        self._context = (context or default_context()) if parts.scheme == "https" else None
        self._timeouts = timeouts or StorageTimeouts()
        self._now = now
        # with the time of the last use; the newest last
        self._idle: deque[tuple[HTTPConnection, float]] = deque()
        self._is_closed = False
        weakref.finalize(self, _close_all, self._idle)

    def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Response:
        """Send the request and return the answer; raises NotSent, NotAnswered.

        An idle connection that fails while the request is sent is replaced at once.
        """
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        length = f"content-length: {len(body)}\r\n" if body is not None else ""
        head = f"{method} {target} HTTP/1.1\r\nhost: {self.host}\r\n{lines}{length}\r\n"
        request = head.encode("latin-1") + (body or b"")
        while not self._is_closed:
            idle = self._take()
            connection = idle or self._open()
            answer = _LeanResponse(connection.sock, method=method)
            is_sent = False
            try:
                connection.sock.sendall(request)
                is_sent = True
                answer.begin()
                content = answer.read()
            except (OSError, HTTPException) as error:
                answer.close()
                connection.close()
                if is_sent:
                    raise NotAnswered(type(error).__name__) from error
                if idle and not isinstance(error, TimeoutError):
                    continue
                raise NotSent(type(error).__name__) from error
            except BaseException:  # the greenlet is killed
                answer.close()
                connection.close()
                raise
            if answer.will_close:
                connection.close()
            else:
                self._put_back(connection)
            return Response(answer.status, answer.fields, content)
        raise NotSent("closed")

    def close(self) -> None:
        """Send nothing from now on."""
        self._is_closed = True
        _close_all(self._idle)

    def _open(self) -> HTTPConnection:
        host, port = self._proxy or self.address
        connection: HTTPConnection
        if self._context:
            connection = HTTPSConnection(host, port, timeout=self._timeouts.connect, context=self._context)
            if self._proxy:
                connection.set_tunnel(*self.address)
        else:
            connection = HTTPConnection(host, port, timeout=self._timeouts.connect)
        try:
            connection.connect()
        except (OSError, UnicodeError, HTTPException) as error:  # UnicodeError: an invalid host name
            connection.close()
            clear_frames(error.__traceback__)  # of the proxy's answer, which keeps the socket open
            is_refused = type(error) is OSError and str(error).startswith("Tunnel connection failed")
            raise NotSent("ProxyRefused" if is_refused else type(error).__name__) from error
        connection.sock.settimeout(self._timeouts.read)
        return connection

    def _take(self) -> HTTPConnection | None:
        """An idle connection that is still open."""
        while True:
            try:
                connection, since = self._idle.pop()
            except IndexError:
                return None
            if self._now() - since < _MAX_IDLE_TIME and self._is_open(connection):
                return connection
            connection.close()

    def _is_open(self, connection: HTTPConnection) -> bool:
        """Whether nothing was received since the last answer, not even the end of the connection."""
        connection.sock.settimeout(0)
        try:
            connection.sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            connection.sock.settimeout(self._timeouts.read)
            return True
        except OSError:
            pass
        return False

    def _put_back(self, connection: HTTPConnection) -> None:
        now = self._now()
        self._idle.append((connection, now))
        with suppress(IndexError):  # another call took the last connection
            if len(self._idle) > MAX_IDLE or now - self._idle[0][1] > _MAX_IDLE_TIME:
                self._idle.popleft()[0].close()


@cache
def default_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or DEFAULT_CA_BUNDLE_PATH
    context.load_verify_locations(**{"capath" if os.path.isdir(bundle) else "cafile": bundle})
    return context


def _close_all(idle: deque[tuple[HTTPConnection, float]]) -> None:
    while idle:
        idle.pop()[0].close()
