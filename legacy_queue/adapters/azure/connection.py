"""Kept HTTP connections to one endpoint: plain sockets, which work the same on threads and under gevent.

There are no proxies, no redirects, no cookies and no netrc: storage is where the connection string says.
"""

import os
import socket
import ssl
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from urllib.parse import urlsplit

from requests.utils import DEFAULT_CA_BUNDLE_PATH

from legacy_queue.adapters.azure.http_response import BadResponse, Response, read_response

_Idle = deque[tuple[socket.socket, float]]  # connections, and since when; the newest last

MAX_IDLE = 128  # connections that are kept; more calls at once open more, which are closed afterwards
_MAX_IDLE_TIME = 60.0  # seconds: a connection that a firewall has forgotten costs a whole timeout


class NotSent(Exception):
    """There is no connection, or storage did not get the whole request: it cannot have acted on it."""


class NotAnswered(Exception):
    """The request was sent, and no whole answer came: storage may have acted on it."""


@dataclass(frozen=True)
class Timeouts:
    """In seconds, for each step: storage that hangs is given up before a client that waits for 30 s is."""

    connect: float = 5
    read: float = 7


class Connections:
    """Connections to the host of ``url``, each used by one request at a time."""

    def __init__(
        self,
        url: str,
        timeouts: Timeouts | None = None,
        context: ssl.SSLContext | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``context`` says whom https trusts, by default whom the system and the SDK do.

        ``now`` is in seconds. Raises ValueError.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{parts.scheme}://{parts.hostname} is not a URL of a storage endpoint")
        self.host = parts.netloc.rpartition("@")[2]  # as the Host header has it
        self.path = parts.path.rstrip("/")
        self.address = (parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
        self._context = (context or _default_context()) if parts.scheme == "https" else None
        self._timeouts = timeouts or Timeouts()
        self._now = now
        self._idle: _Idle = deque()
        weakref.finalize(self, _close_all, self._idle)

    def exchange(self, request: bytes) -> Response:
        """Send the request and return the answer; raises NotSent, NotAnswered.

        A kept connection that fails while it takes the request is replaced at once.
        """
        while True:
            kept = self._take()
            try:
                connection = kept or self._connect()
            except (OSError, UnicodeError) as error:  # of a host name that is none, too
                raise NotSent(type(error).__name__) from error
            try:
                response = self._exchange(connection, request, is_kept=bool(kept))
            except BaseException:
                connection.close()
                raise
            if response is None:
                connection.close()
                continue
            self._put_back(connection, response)
            return response

    def _exchange(self, connection: socket.socket, request: bytes, is_kept: bool) -> Response | None:
        """The answer; None where the connection had been kept too long to take the request."""
        try:
            connection.sendall(request)
        except OSError as error:
            if is_kept and not isinstance(error, TimeoutError):
                return None
            raise NotSent(type(error).__name__) from error
        try:
            return read_response(connection)
        except (OSError, BadResponse) as error:
            raise NotAnswered(type(error).__name__) from error

    def _take(self) -> socket.socket | None:
        """A kept connection that is still open."""
        while True:
            try:
                connection, since = self._idle.pop()
            except IndexError:
                return None
            if self._now() - since < _MAX_IDLE_TIME and self._is_open(connection):
                return connection
            connection.close()

    def _is_open(self, connection: socket.socket) -> bool:
        """Nothing has come since the last answer, not even an end."""
        try:
            connection.settimeout(0)
            connection.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            connection.settimeout(self._timeouts.read)
            return True
        except OSError:
            pass
        return False

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(self.address, self._timeouts.connect)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context:
                connection = self._context.wrap_socket(connection, server_hostname=self.address[0])
            connection.settimeout(self._timeouts.read)
        except BaseException:
            connection.close()
            raise
        return connection

    def _put_back(self, connection: socket.socket, response: Response) -> None:
        if not response.can_continue:
            connection.close()
            return
        now = self._now()
        self._idle.append((connection, now))
        with suppress(IndexError):  # another call has taken it
            if len(self._idle) > MAX_IDLE or now - self._idle[0][1] > _MAX_IDLE_TIME:
                self._idle.popleft()[0].close()


@cache
def _default_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or DEFAULT_CA_BUNDLE_PATH
    context.load_verify_locations(**{"capath" if os.path.isdir(bundle) else "cafile": bundle})
    return context


def _close_all(idle: _Idle) -> None:
    while idle:
        idle.pop()[0].close()
