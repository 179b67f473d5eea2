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

from legacy_queue.adapters.azure.connection import Connections, NotAnswered, NotSent, Response
from legacy_queue.domain.errors import ServiceUnavailable

log = structlog.get_logger()

ReadResult = TypeVar("ReadResult")
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
        self.status = status
        self.code = code


class Service(NamedTuple):
    """``delays`` are the seconds before each retry, at least; ``headers`` are those of each request."""

    name: Literal["queue", "table", "blob"]
    version: str  # of the API
    delays: Sequence[float]
    headers: Mapping[str, str]


QUEUE = Service("queue", "2021-12-02", (0.1, 1), {"accept": "application/xml"})
_ODATA = {"accept": "application/json;odata=minimalmetadata", "dataserviceversion": "3.0"}
# the first version of tables that takes tokens of Microsoft Entra ID
TABLE = Service("table", "2020-12-06", (0.1, 0.2), _ODATA)
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
        content_type = request.headers.get("content-type", "")
        date = headers["x-ms-date"]
        return self._header(f"{request.method}\n\n{content_type}\n{date}\n/{self.account}{path}")

    def _header(self, text: str) -> str:
        inner = self._inner.copy()
        outer = self._outer.copy()
        inner.update(text.encode())
        outer.update(inner.digest())
        signature = binascii.b2a_base64(outer.digest(), newline=False).decode()
        return f"SharedKey {self.account}:{signature}"


class Sender:
    """Sends requests of a service, counts them, and sends those again that have failed."""

    def __init__(
        self,
        service: Service,
        connections: Connections,
        counts: Counter[tuple[str, str]],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``counts`` counts requests by service and HTTP method."""
        self.service = service
        self.connections = connections
        self._counts = counts
        self._sleep = sleep

    def send(
        self,
        method: str,
        target: str,
        headers: Callable[[], Mapping[str, str]],
        body: bytes | None,
        *,
        is_sent_once: bool = False,
    ) -> Response:
        """Send the request up to three times; the last answer. Raises NotSent, NotAnswered.

        With ``is_sent_once``, it is not sent again once storage may have received it.
        """
        delays = iter((*self.service.delays, None))
        while True:
            delay = next(delays)
            self._counts[self.service.name, method] += 1
            try:
                response = self.connections.exchange(method, target, headers(), body)
            except (NotSent, NotAnswered) as error:
                wait = _pause(delay)
                if wait is None or (is_sent_once and isinstance(error, NotAnswered)):
                    raise
            else:
                wait = _pause(delay, response.headers.get("retry-after"))
                if wait is None or is_sent_once or not _helps_to_retry(response.status):
                    return response
            self._sleep(wait)


class RestClient:
    """Sends the frequent requests, which it signs itself, and reads their answers."""

    def __init__(self, sender: Sender, signer: Signer, now: Callable[[], float] = time.time) -> None:
        """``now`` is in seconds since 1970."""
        self._sender = sender
        self._service = sender.service
        self._authorization = signer.authorizer(self._service)
        self._now = now

    def send(
        self,
        request: Request,
        read: Callable[[Response], ReadResult],
        refusals: Refusals = MappingProxyType({}),
        *,
        is_sent_once: bool = False,
    ) -> ReadResult:
        """The result of ``read`` for an answer of 2xx.

        Raises one of the ``refusals``, or else ServiceUnavailable or StorageRefused. With ``is_sent_once``,
        the request is not sent again once storage may have received it.
        """
        method, path, params, _, body = request
        path = self._sender.connections.path + path
        query = "&".join([f"{name}={quote(value, safe='')}" for name, value in params])
        target = f"{path}?{query}" if query else path
        try:
            response = self._sender.send(
                method, target, lambda: self._headers(request, path), body, is_sent_once=is_sent_once
            )
        except (NotSent, NotAnswered) as error:
            log.error("storage-unreachable", error=str(error))
            raise ServiceUnavailable("storage cannot be reached, try again") from error
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

    def _headers(self, request: Request, path: str) -> Mapping[str, str]:
        """The headers of the request, dated now and signed."""
        date = http_date(int(self._now()))
        signed = {"x-ms-date": date, "x-ms-version": self._service.version}
        authorization = self._authorization(request, path, signed)
        return {**self._service.headers, **signed, "authorization": authorization, **request.headers}


def refusal(status: int, code: str) -> ServiceUnavailable | StorageRefused:
    """The error to raise. It is logged where storage cannot serve now, also for a wrong account key.

    A worker gets 503 for that, since it is not the worker's fault.
    """
    if not _helps_to_retry(status) and status < 500 and code not in _NOT_NOW:
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


def _helps_to_retry(status: int) -> bool:
    return status in (408, 429) or (status >= 500 and status not in _NOT_RETRIED)


def _pause(delay: float | None, retry_after: str | None = None) -> float | None:
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
