"""One HTTP request at a time: bounded in time, repeated where a repetition can help.

What a failed request says of itself never holds its URL, which may be a signed one.
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
    """Leave the request as it is: also without what ~/.netrc holds, which would spoil a signed URL."""
    return request


class Content:
    """The bytes that a file has now, read piece by piece, and from the start for each request.

    What is appended later is not sent: it would not fit the content-length. Needs the file open.
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
    """The connections of one thread. Once ``give_up`` is set, no request is repeated any more."""

    def __init__(self, clock: WorkerClock, give_up: threading.Event) -> None:
        self._clock, self._give_up = clock, give_up
        self._session = requests.Session()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, _OneRequestAdapter(self._connected))
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
        """The first answer below 500; 5xx and broken connections are tried again with growing delays.

        ``content`` is requests' ``json``, or ``data`` and ``headers``. Raises Unavailable when the last try
        failed as well. A 4xx is an answer and never tried again.
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
        """End the current request, and every later one, as if its connection broke. For any thread."""
        self._is_disconnected = True
        for connected in list(self._sockets):
            with suppress(OSError):  # it is closed already
                connected.shutdown(socket.SHUT_RDWR)

    def _connected(self, connected: socket.socket) -> None:
        self._sockets.add(connected)
        if self._is_disconnected:
            self.disconnect()


class _OneRequestAdapter(HTTPAdapter):
    """Tells of each socket that is connected: requests cannot end a request from another thread."""

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
