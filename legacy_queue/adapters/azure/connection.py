"""Keep-alive HTTP connections to one endpoint: plain sockets, the same on threads and under gevent.

No redirects, cookies or netrc, and a proxy only where it is given: the settings alone say where storage is.
"""

import os
import re
import socket
import ssl
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache
from typing import NamedTuple
from urllib.parse import urlsplit

from requests.utils import DEFAULT_CA_BUNDLE_PATH

from legacy_queue.adapters.azure.http_response import BadResponse, Response, read_response

MAX_IDLE = 128  # connections; more concurrent calls open more, which are closed afterwards
_MAX_TUNNEL_ANSWER = 64 * 1024  # bytes
_TUNNEL = re.compile(rb"HTTP/1\.[01] 2\d\d .*\r\n\r\n", re.DOTALL)
_MAX_IDLE_TIME = 60.0  # seconds: a connection that a firewall has dropped costs a whole timeout


class NotSent(Exception):
    """Storage did not get the whole request: it cannot have acted on it."""


class ProxyRefused(OSError):
    """The proxy did not connect to storage."""


class NotAnswered(Exception):
    """The request was sent, but no complete answer came: storage may have acted on it."""


class StorageTimeouts(NamedTuple):
    """In seconds, for each step: a call gives up before a client with a timeout of 30 s."""

    connect: float = 5
    read: float = 7


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
        self._timeouts, self._now = timeouts or StorageTimeouts(), now
        # with the time of the last use; the newest last
        self._idle: deque[tuple[_Connection, float]] = deque()
        self._is_closed = False
        weakref.finalize(self, _close_all, self._idle)

    def exchange(self, request: bytes) -> Response:
        """Send the request and return the answer; raises NotSent, NotAnswered.

        An idle connection that fails while the request is sent is replaced at once.
        """
        while not self._is_closed:
            idle = self._take()
            connection = idle or _Connection(self.address, self._timeouts, self._context, self._proxy)
            try:
                response = connection.exchange(request)
            except NotSent as error:
                if idle and not isinstance(error.__cause__, TimeoutError):
                    continue
                raise
            self._put_back(connection, response)
            return response
        raise NotSent("closed")

    def close(self) -> None:
        """Send nothing from now on."""
        self._is_closed = True
        _close_all(self._idle)

    def _take(self) -> "_Connection | None":
        """An idle connection that is still open."""
        while True:
            try:
                connection, since = self._idle.pop()
            except IndexError:
                return None
            if self._now() - since < _MAX_IDLE_TIME and connection.is_open():
                return connection
            connection.close()

    def _put_back(self, connection: "_Connection", response: Response) -> None:
        if not response.can_continue:
            connection.close()
            return
        now = self._now()
        self._idle.append((connection, now))
        with suppress(IndexError):  # another call took the last connection
            if len(self._idle) > MAX_IDLE or now - self._idle[0][1] > _MAX_IDLE_TIME:
                self._idle.popleft()[0].close()


class _Connection:
    def __init__(
        self,
        address: tuple[str, int],
        timeouts: StorageTimeouts,
        context: ssl.SSLContext | None,
        proxy: tuple[str, int] | None,
    ) -> None:
        """Raises NotSent."""
        with ExitStack() as opened:
            try:
                connection = socket.create_connection(proxy or address, timeouts.connect)
                opened.callback(connection.close)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if proxy:
                    _tunnel(connection, address)
                if context:
                    connection = context.wrap_socket(connection, server_hostname=address[0])
            except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
                raise NotSent(type(error).__name__) from error
            opened.pop_all()
        connection.settimeout(timeouts.read)
        self._timeout, self._socket = timeouts.read, connection

    def exchange(self, request: bytes) -> Response:
        """The answer; raises NotSent, NotAnswered, after which the connection is closed."""
        try:
            try:
                self._socket.sendall(request)
            except OSError as error:
                raise NotSent(type(error).__name__) from error
            try:
                return read_response(self._socket)
            except (OSError, BadResponse) as error:
                raise NotAnswered(type(error).__name__) from error
        except BaseException:  # also where the greenlet is killed
            self.close()
            raise

    def is_open(self) -> bool:
        """Whether nothing was received since the last answer, not even the end of the connection."""
        self._socket.settimeout(0)
        try:
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            self._socket.settimeout(self._timeout)
            return True
        except OSError:
            pass
        return False

    def close(self) -> None:
        self._socket.close()


def _tunnel(connection: socket.socket, address: tuple[str, int]) -> None:
    """Ask the proxy at the other end to connect to ``address``; raises OSError."""
    host, port = address
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    connection.sendall(f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):  # nothing follows: in TLS, the client speaks first
        received = connection.recv(4096)
        answer += received
        if not received or len(answer) > _MAX_TUNNEL_ANSWER:
            break
    if not _TUNNEL.fullmatch(answer):
        raise ProxyRefused(f"the proxy did not connect to {target}")


@cache
def default_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or DEFAULT_CA_BUNDLE_PATH
    context.load_verify_locations(**{"capath" if os.path.isdir(bundle) else "cafile": bundle})
    return context


def _close_all(idle: deque[tuple[_Connection, float]]) -> None:
    while idle:
        idle.pop()[0].close()
