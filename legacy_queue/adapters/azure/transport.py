"""Sends the SDK's requests over keep-alive connections of http.client, on threads and under gevent alike.

The SDK's own transport, requests, takes several times as long as this one, and urllib3 takes twice as long.
This one has no redirects, cookies or netrc, and uses a proxy only if it is given one: only the settings say
where the storage is. A failed request is sent again, although it may have succeeded the first time. This
module never logs, because requests contain signatures.
"""

import os
import random
import ssl
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from traceback import clear_frames
from typing import Any
from urllib.parse import urlsplit

from azure.core.exceptions import ServiceRequestError, ServiceResponseError
from azure.core.pipeline.transport import HttpResponse, HttpTransport
from azure.core.rest import HttpRequest
from azure.core.utils import case_insensitive_dict
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from legacy_queue.ports import Observe, ignore

# seconds; longer, a firewall may have dropped the connection, and its use would cost a whole timeout
_MAX_IDLE_TIME = 60.0
_DELAYS = {"queue": (0.1, 1), "table": (0.1, 0.2), "blob": (0.1, 1)}  # minimum seconds before each retry
_AZURITE = "Azurite-"  # its Server header begins like this; some of its answers have no request id
_MAX_RETRY_AFTER = 2.0  # seconds; if an answer asks for a longer pause, there is no retry


class NotFromStorage(HTTPException):
    """The answer is not from the storage but from a middlebox or another server: it has no request id."""


@dataclass(eq=False, repr=False)  # no repr, because a URL may contain a password
class Transport(HttpTransport[HttpRequest, HttpResponse]):
    """Sends the requests of one service to its endpoint, ``url``. Raises ValueError if the URL is invalid.

    ``counts`` counts requests by service and HTTP method. ``proxy`` is the URL of an HTTP proxy. The default
    ``context`` trusts the authorities of the system and of the package requests. Each request may close the
    oldest idle connection, if there are more than ``max_idle`` or it has been idle for a minute.
    """

    service: str
    url: str
    counts: Counter[tuple[str, str]]
    context: ssl.SSLContext | None = None
    proxy: str | None = None
    observe: Observe = ignore
    wait: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    # seconds for each step, so that a call gives up before a client with a timeout of 30 s
    timeout: float = 7
    max_idle: int = 128

    def __post_init__(self) -> None:
        at = urlsplit(self.url)
        if at.scheme not in ("http", "https") or not at.hostname:
            raise ValueError(f"{at.scheme}://{at.hostname} is not the URL of a storage endpoint")
        if self.proxy and at.scheme != "https":
            raise ValueError(f"a proxy works for https only, but this is {at.scheme}://{at.netloc}")
        self._address = (at.hostname, at.port or (443 if at.scheme == "https" else 80))
        self._context = (self.context or default_context()) if at.scheme == "https" else None
        # each with the time of its last use, the newest last
        self._idle: deque[tuple[HTTPConnection, float]] = deque()
        self._is_closed = False
        weakref.finalize(self, _close_all, self._idle)

    def open(self) -> None: ...

    def close(self) -> None:
        """Close all connections and send nothing more."""
        self._is_closed = True
        _close_all(self._idle)

    def __exit__(self, *_: object) -> None: ...

    def send(self, request: HttpRequest, *, is_sent_once: bool = False, **_: object) -> HttpResponse:
        """Send the request up to three times, and return the last answer.

        With ``is_sent_once``, it is not sent again if the storage may have received it. The other options are
        left over from the SDK's policies. Raises ServiceRequestError and ServiceResponseError.
        """
        delays = iter(_DELAYS[self.service])
        while True:
            delay = next(delays, None)
            self.counts[self.service, request.method] += 1
            begun = time.perf_counter()
            status = 0
            try:
                response = self._exchange(request)
                status = response.status_code
                asked = response.headers.get("retry-after", "")
                pause = max(delay or 0, float(asked) if asked.isdecimal() else 0)
                is_last = delay is None or is_sent_once or pause > _MAX_RETRY_AFTER
                if is_last or not helps_to_retry(status):
                    return response
            except (ServiceRequestError, ServiceResponseError) as error:
                if delay is None or (is_sent_once and isinstance(error, ServiceResponseError)):
                    raise
                pause = delay
            finally:
                self.observe(self.service, time.perf_counter() - begun, 0 < status < 500)
            # a random pause, so that servers do not all retry at the same time
            self.wait(pause * random.uniform(1, 1.5))  # noqa: S311

    def _exchange(self, request: HttpRequest) -> "Response":
        """Send the request once and return the answer.

        Raises ServiceRequestError if the storage did not get the whole request, so it cannot have acted on
        it. Raises ServiceResponseError if the request was sent but no complete answer came, so the storage
        may have acted on it.
        """
        if self._is_closed:
            raise ServiceRequestError("closed")
        url = urlsplit(request.url)
        target = f"{url.path or '/'}?{url.query}" if url.query else url.path
        connection = self._take()
        is_sent = False
        try:
            connection.request(request.method, target, request.content, request.headers)
            is_sent = True
            answer = connection.getresponse()
            is_storage = answer.getheader("x-ms-request-id") or _AZURITE in answer.getheader("server", "")
            response = Response(request, answer)
            if not is_storage:
                raise NotFromStorage
            if answer.length is None and not answer.chunked:
                raise HTTPException("the answer has no length, so a cut would go unnoticed")
        except (OSError, UnicodeError, HTTPException) as error:  # UnicodeError: the host name is invalid
            connection.close()
            # these frames may have a proxy's answer, which would keep the socket open
            clear_frames(error.__traceback__)
            if is_sent:
                raise ServiceResponseError(type(error).__name__) from error
            is_refused = type(error) is OSError and str(error).startswith("Tunnel connection failed")
            raise ServiceRequestError("ProxyRefused" if is_refused else type(error).__name__) from error
        except BaseException:  # for example, the greenlet is killed
            connection.close()
            raise
        now = self.now()
        self._idle.append((connection, now))
        with suppress(IndexError):  # another call took the connection
            if len(self._idle) > self.max_idle or now - self._idle[0][1] > _MAX_IDLE_TIME or self._is_closed:
                self._idle.popleft()[0].close()
        return response

    def _take(self) -> HTTPConnection:
        """Return an open connection, or one that connects when it is used."""
        try:
            connection, since = self._idle.pop()
        except IndexError:
            return self._new()
        # if it has no socket, the last answer closed it
        if connection.sock and self.now() - since < _MAX_IDLE_TIME:
            connection.sock.settimeout(0)
            with suppress(OSError):
                try:
                    connection.sock.recv(1)  # it has ended, or sent something that nobody asked for
                except (BlockingIOError, ssl.SSLWantReadError):
                    connection.sock.settimeout(self.timeout)
                    return connection
        connection.close()
        return connection

    def _new(self) -> HTTPConnection:
        if self._context is None:
            return HTTPConnection(*self._address, timeout=self.timeout)
        by = urlsplit(self.proxy or "")
        host, port = (by.hostname or "", by.port or 80) if self.proxy else self._address
        connection = HTTPSConnection(host, port, timeout=self.timeout, context=self._context)
        if self.proxy:
            connection.set_tunnel(*self._address)
        return connection


class Response(HttpResponse):
    """An answer that was read completely. The SDK streams a blob from it, and sets ``properties`` on it."""

    def __init__(self, request: Any, answer: HTTPResponse) -> None:
        super().__init__(request, None)
        self.status_code = answer.status
        self.headers = case_insensitive_dict(answer.getheaders())
        self.content_type = self.headers.get("content-type")
        self._content = answer.read()
        self.content_length = len(self._content)

    def body(self) -> bytes:
        return self._content

    read = body

    @property
    def response(self) -> "Response":
        return self

    def stream_download(self, *_: object, **__: object) -> Any:
        return self

    def __iter__(self) -> Iterator[bytes]:
        yield self._content


def helps_to_retry(status: int) -> bool:
    return status in (408, 429) or (status >= 500 and status not in (501, 505))


@cache
def default_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or DEFAULT_CA_BUNDLE_PATH
    context.load_verify_locations(**{"capath" if os.path.isdir(bundle) else "cafile": bundle})
    return context


def _close_all(idle: deque[tuple[HTTPConnection, float]]) -> None:
    while idle:
        idle.pop()[0].close()
