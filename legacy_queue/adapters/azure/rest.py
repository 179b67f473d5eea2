"""Requests to a service of a storage account: signed, counted and retried, and their errors.

A retried request may have succeeded the first time. Source: docs/explanation/azurite.md#the-sdk, and
Azure's "Authorize with Shared Key"; held to the SDK's own signing by tests.
"""

import base64
import binascii
import hashlib
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from email.utils import formatdate, parsedate_to_datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

import structlog

from legacy_queue.adapters.azure.connection import Connections, NotAnswered, NotSent
from legacy_queue.adapters.azure.http_response import Response
from legacy_queue.domain.errors import ServiceUnavailable

log = structlog.get_logger()

Answer = TypeVar("Answer")
Refusals = Mapping[Any, type[Exception]]  # by Azure's name of the error (str) or the status (int)

# codes that mean that storage cannot serve now, although the status blames the request
_NOT_NOW = {
    "TableNotFound",
    "TableBeingDeleted",
    "QueueBeingDeleted",
    "ContainerNotFound",
    "ContainerBeingDeleted",
    "AuthenticationFailed",
    "InvalidAuthenticationInfo",  # of Azure for a token that it does not take
    "AuthorizationFailure",  # of Azurite's tables for a wrong key, of Azure for a blocked address
    "AccountIsDisabled",
}
_CODE = re.compile(rb"<Code>(\w{1,100})</Code>|\"code\"\s*:\s*\"(\w{1,100})\"")
_NOT_RETRIED = (501, 505)
_MAX_RETRY_AFTER = 2.0  # seconds: with it, a call gives up before a client with a timeout of 30 s
_BLOCK = 64  # bytes, of SHA-256


class StorageRefused(Exception):
    """Storage refused the request, and no retry helps: the HTTP status and Azure's name of the error."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"{status} {code}".rstrip())
        self.status, self.code = status, code


class Service(NamedTuple):
    """``delays`` are the seconds before each retry, at least; ``headers`` are those of each request."""

    name: Literal["queue", "table", "blob"]
    version: str  # of the API
    delays: Sequence[float]
    headers: Mapping[str, str]


QUEUE = Service("queue", "2021-12-02", (0.1, 1), {"accept": "application/xml"})
_ODATA = {"accept": "application/json;odata=minimalmetadata", "dataserviceversion": "3.0"}
TABLE = Service("table", "2019-02-02", (0.1, 0.2), _ODATA)
BLOB = Service("blob", "2021-12-02", (0.1, 1), {})


class Request(NamedTuple):
    """``path`` is percent-encoded and begins below the endpoint; ``params`` of the query are not encoded, and
    sorted by their names; names of ``headers`` are in lower case.
    """

    method: str
    path: str
    params: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = {}
    body: bytes | None = None


Authorize = Callable[[Request, str, Mapping[str, str]], str]


class Signer(Protocol):
    def authorizer(self, service: Service) -> Authorize:
        """Makes the Authorization of a request from it, the path of its URL, and x-ms-date and other headers
        of every request. It may raise ServiceUnavailable.
        """


class SharedKey:
    """The account and its base64 key; raises ValueError for a key that is not base64.

    HMAC-SHA256 with both halves precomputed takes half as long as ``hmac.digest``.
    """

    def __init__(self, account: str, key: str) -> None:
        self.account = account
        secret = base64.b64decode(key, validate=True)
        padded = (secret if len(secret) <= _BLOCK else hashlib.sha256(secret).digest()).ljust(_BLOCK, b"\0")
        self._inner, self._outer = (
            hashlib.sha256(bytes(byte ^ mask for byte in padded)) for mask in (0x36, 0x5C)
        )

    def authorizer(self, service: Service) -> Authorize:
        return self._table_header if service.name == "table" else self._storage_header

    def _storage_header(self, request: Request, path: str, headers: Mapping[str, str]) -> str:
        own = request.headers
        names = sorted(name for name in (*own, *headers) if name.startswith("x-ms-"))
        lines = [
            request.method,
            *("", ""),  # Content-Encoding, Content-Language
            str(len(request.body)) if request.body else "",
            "",  # Content-MD5
            own.get("content-type", ""),
            *("", ""),  # Date, If-Modified-Since
            own.get("if-match", ""),
            own.get("if-none-match", ""),
            *("", ""),  # If-Unmodified-Since, Range
            *[f"{name}:{own.get(name) or headers[name]}" for name in names],
            f"/{self.account}{path}",
            *[f"{name}:{value}" for name, value in request.params],
        ]
        return self._header("\n".join(lines))

    def _table_header(self, request: Request, path: str, headers: Mapping[str, str]) -> str:
        """No request to tables has the parameter ``comp``, which would be signed too."""
        content_type, date = request.headers.get("content-type", ""), headers["x-ms-date"]
        return self._header(f"{request.method}\n\n{content_type}\n{date}\n/{self.account}{path}")

    def _header(self, text: str) -> str:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(text.encode())
        outer.update(inner.digest())
        signature = binascii.b2a_base64(outer.digest(), newline=False).decode()
        return f"SharedKey {self.account}:{signature}"


class RestClient:
    def __init__(
        self,
        service: Service,
        connections: Connections,
        signer: Signer,
        counts: Counter[tuple[str, str]],
        *,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``counts`` counts requests by service and HTTP method; ``now`` is in seconds since 1970."""
        self._service, self._connections, self._counts = service, connections, counts
        self._authorization = signer.authorizer(service)
        self._now, self._sleep = now, sleep
        fixed = {"host": connections.host, "x-ms-version": service.version, **service.headers}
        self._fixed = header_lines(fixed)

    def send(
        self,
        request: Request,
        read: Callable[[Response], Answer],
        refusals: Refusals = MappingProxyType({}),
        *,
        is_sent_once: bool = False,
    ) -> Answer:
        """The result of ``read`` for an answer of 2xx.

        Raises one of the ``refusals``, or else ServiceUnavailable or StorageRefused. With ``is_sent_once``,
        the request is not sent again once storage may have received it.
        """
        response = self._answer(request, is_sent_once)
        if not 200 <= response.status < 300:
            code = error_code(response)
            by_status = refusals if code or self._service.name != "table" else {}  # tables name each error
            refused = refusals.get(code) or by_status.get(response.status)
            raise refused if refused and code not in _NOT_NOW else refusal(response.status, code)
        try:
            return read(response)
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            log.error("storage-unreachable", error=type(error).__name__)
            raise ServiceUnavailable("storage gave no answer that can be read, try again") from error

    def _answer(self, request: Request, is_sent_once: bool) -> Response:
        """Send the request up to three times; the last answer."""
        delays = iter((*self._service.delays, None))
        while True:
            delay = next(delays)
            self._counts[self._service.name, request.method] += 1
            try:
                response = self._connections.exchange(self.signed(request))
            except (NotSent, NotAnswered) as error:
                wait = pause(delay)
                if wait is None or (is_sent_once and isinstance(error, NotAnswered)):
                    log.error("storage-unreachable", error=str(error))
                    raise ServiceUnavailable("storage cannot be reached, try again") from error
            else:
                wait = pause(delay, response.headers.get("retry-after"))
                if wait is None or is_sent_once or not helps_to_retry(response.status):
                    return response
            self._sleep(wait)

    def signed(self, request: Request) -> bytes:
        """The request as it is sent, dated now."""
        method, path, params, headers, body = request
        path = self._connections.path + path
        date = http_date(int(self._now()))
        signed_headers: Mapping[str, str] = {"x-ms-date": date, "x-ms-version": self._service.version}
        authorization = self._authorization(request, path, signed_headers)
        query = "&".join([f"{name}={quote(value, safe='')}" for name, value in params])
        length = f"content-length: {len(body)}\r\n" if body is not None else ""
        head = (
            f"{method} {path}{'?' if query else ''}{query} HTTP/1.1\r\n{self._fixed}x-ms-date: {date}\r\n"
            f"authorization: {authorization}\r\n{header_lines(headers)}{length}\r\n"
        )
        return head.encode("latin-1") + (body or b"")


def refusal(status: int, code: str) -> ServiceUnavailable | StorageRefused:
    """The error to raise. It is logged where storage cannot serve now, also for a wrong account key.

    A worker gets 503 for that, since it is not the worker's fault.
    """
    if not helps_to_retry(status) and status < 500 and code not in _NOT_NOW:
        return StorageRefused(status, code)
    log.error("storage-refused", status=status, azure_code=code, error=StorageRefused.__name__)
    return ServiceUnavailable("storage did not serve the request, try again")


def header_lines(headers: Mapping[str, str]) -> str:
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])


def error_code(response: Response) -> str:
    """Azure's name of the error, or an empty string: some refusals of Azurite have no body."""
    return response.headers.get("x-ms-error-code") or error_code_in(response.body)


def error_code_in(body: bytes) -> str:
    """The code that the body of a refusal names, or an empty string."""
    code = _CODE.search(body)
    return (code[1] or code[2]).decode() if code else ""


def helps_to_retry(status: int) -> bool:
    return status in (408, 429) or (status >= 500 and status not in _NOT_RETRIED)


def pause(delay: float | None, retry_after: str | None = None) -> float | None:
    """Seconds to wait before the next try, half as much more by chance, so that servers do not retry at once.

    ``delay`` is the least, None after the last try. None: do not try again, also where Retry-After asks for
    more than a call has.
    """
    if delay is None:
        return None
    asked = _seconds(retry_after)
    return max(delay, asked) * random.uniform(1, 1.5) if asked <= _MAX_RETRY_AFTER else None  # noqa: S311


def _seconds(retry_after: str | None) -> float:
    """The seconds of a Retry-After, which is a number or a date; 0 where it cannot be read."""
    if not retry_after:
        return 0
    if retry_after.isdecimal():
        return float(retry_after)
    try:
        return parsedate_to_datetime(retry_after).timestamp() - time.time()
    except ValueError:
        return 0


@lru_cache(maxsize=4)
def http_date(seconds: int) -> str:
    """``Sun, 22 Nov 2026 01:02:03 GMT`` of so many seconds since 1970."""
    return formatdate(seconds, usegmt=True)
