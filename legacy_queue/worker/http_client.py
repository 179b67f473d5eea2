"""Sends one HTTP request at a time, with timeouts, and repeats it if that can help.

Never puts a URL into an error: it may be a signed URL.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, Any
from weakref import WeakSet

import requests
from requests.adapters import HTTPAdapter

from legacy_queue.worker.worker_settings import Sign, WorkerClock

TIMEOUT = (5.0, 30.0)  # seconds to connect, and between two bytes of the answer
LONG_POLL = (5.0, 60.0)  # for an answer that may take 20 s
UPLOAD = (30.0, 300.0)  # for a server that stores a large file before it answers
RETRIES = 5
FIRST_DELAY = 0.5  # seconds; doubled for each further retry
MAX_DELAY = 30.0
PIECE = 64 * 1024  # bytes of a file that are in memory at a time


class Unavailable(Exception):
    """No answer, a 5xx, or an answer that is not understood: the same request may succeed later."""


def unsigned(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Leave the request unsigned, also without the credentials of ~/.netrc: Azure would refuse them."""
    return request


class Content:
    """The bytes that an open file has now, read piece by piece, from the start for each request.

    Leaves out bytes that are appended later: they would not fit the content-length.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._fd = file.fileno()
        self._length = os.fstat(self._fd).st_size

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[bytes]:
        for at in range(0, self._length, PIECE):
            size = min(PIECE, self._length - at)
            piece = os.pread(self._fd, size, at)
            if len(piece) < size:
                raise OSError("the file has become shorter")
            yield piece


class Http:
    """The connections of one thread. Repeats no request after ``give_up`` is set.

    The loop is written by hand. urllib3's Retry would repeat a request with its first Hawk signature, whose
    nonce the queue has seen, and would not repeat a request whose answer breaks off in its body.
    """

    def __init__(self, clock: WorkerClock, give_up: threading.Event) -> None:
        self._clock, self._give_up = clock, give_up
        self._session = requests.Session()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, _ObservedAdapter(self._connected))
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._is_disconnected = False
        self.close = self._session.close

    def send(
        self,
        method: str,
        url: str,
        *,
        sign: Sign = unsigned,
        timeout: tuple[float, float] = TIMEOUT,
        retries: int = RETRIES,
        **content: Any,
    ) -> requests.Response:
        """The first answer below 500; repeats a 5xx and a broken connection, with growing delays.

        ``content`` is requests' ``json``, or ``data`` and ``headers``. Raises Unavailable if the last attempt
        fails too. A 4xx is an answer and is never repeated.
        """
        for attempt in range(retries + 1):
            delay = FIRST_DELAY * 2**attempt
            try:
                answer = self._session.request(
                    method, url, auth=sign, timeout=timeout, allow_redirects=False, **content
                )
            except requests.RequestException as broken:
                failure = f"no answer ({type(broken).__name__})"
                if isinstance(broken, requests.exceptions.SSLError):
                    failure += ": if its certificate is not trusted, see legacy-queue ca"
            else:
                if answer.status_code < 500:
                    return answer
                failure, pause = f"answered {answer.status_code}", answer.headers.get("Retry-After", "")
                delay = max(delay, float(pause) if pause.isdecimal() else 0)
            if attempt < retries and self._clock.wait(self._give_up, min(delay, MAX_DELAY)):
                break
        raise Unavailable(failure)

    def disconnect(self) -> None:
        """Break the connection of the current request and of every later one. For any thread."""
        self._is_disconnected = True
        for connected in list(self._sockets):
            with suppress(OSError):  # it is closed already
                connected.shutdown(socket.SHUT_RDWR)

    def _connected(self, connected: socket.socket) -> None:
        self._sockets.add(connected)
        if self._is_disconnected:
            self.disconnect()


class _ObservedAdapter(HTTPAdapter):
    """Passes each connected socket to ``on_connect``: requests cannot end a request of another thread."""

    def __init__(self, on_connect: Callable[[socket.socket], None]) -> None:
        super().__init__()
        self._on_connect = on_connect

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        if "ConnectionCls" not in vars(pool):
            on_connect = self._on_connect

            class Observed(pool.ConnectionCls):  # type: ignore[misc]
                def connect(self) -> None:
                    super().connect()
                    on_connect(self.sock)

            pool.ConnectionCls = Observed
        return pool
