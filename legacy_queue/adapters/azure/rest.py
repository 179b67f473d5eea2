"""Requests to a service of a storage account: signed, counted and retried, and their errors.

A retried request may have succeeded the first time. Source: docs/explanation/azurite.md#the-sdk, and
Azure's "Authorize with Shared Key"; held to the SDK's own signing by tests.
"""

import base64
import binascii
import hmac
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from email.utils import formatdate, parsedate_to_datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

import structlog
from lxml import etree

from legacy_queue.adapters.azure.connection import Connections, NotAnswered, NotSent, Response
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.times import to_milliseconds
from legacy_queue.ports import Observe, ignore

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
_PARSER = etree.XMLParser(resolve_entities=False, no_network=True)
_NOT_RETRIED = (501, 505)
_MAX_RETRY_AFTER = 2.0  # seconds: with it, a call gives up before a client with a timeout of 30 s


class StorageRefused(Exception):
    """Storage refused the request, and no retry helps: the HTTP status and Azure's name of the error."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"{status} {code}".rstrip())
        self.status = status
        self.code = code


class Missing(Exception):
    """The resource does not exist."""


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


class Signer(Protocol):
    def authorization(self, service: Service, request: Request, path: str, headers: Mapping[str, str]) -> str:
        """The Authorization of a request at that path of its URL; it may raise ServiceUnavailable.

        ``headers`` are x-ms-date and others that every request has.
        """


class SharedKey:
    """The account and its base64 key; raises ValueError for a key that is not base64."""

    def __init__(self, account: str, key: str) -> None:
        self.account = account
        # a copy takes less time than a new one, which begins with the key
        self._hmac = hmac.new(base64.b64decode(key, validate=True), digestmod="sha256")

    def authorization(self, service: Service, request: Request, path: str, headers: Mapping[str, str]) -> str:
        own = request.headers
        if service.name == "table":
            # no request to tables has the parameter comp, which would be signed too
            content_type = own.get("content-type", "")
            date = headers["x-ms-date"]
            return self._header(f"{request.method}\n\n{content_type}\n{date}\n/{self.account}{path}")
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

    def _header(self, text: str) -> str:
        keyed = self._hmac.copy()
        keyed.update(text.encode())
        signature = binascii.b2a_base64(keyed.digest(), newline=False).decode()
        return f"SharedKey {self.account}:{signature}"


class RestClient:
    """Sends requests to a service: signed, counted, and sent again where they have failed."""

    def __init__(
        self,
        service: Service,
        connections: Connections,
        signer: Signer,
        counts: Counter[tuple[str, str]],
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
        observe: Observe = ignore,
    ) -> None:
        """``counts`` counts requests by service and HTTP method. ``now`` is in seconds since 1970."""
        self._service = service
        self._connections = connections
        self._signer = signer
        self._counts = counts
        self._sleep = sleep
        self._now = now
        self._observe = observe
        # the Date of the last answer, and the seconds of the process's own clock then
        self._dated: tuple[str, float] | None = None

    def now(self, request: Request) -> datetime:
        """The time of the service: the Date of its last answer, and what has passed since.

        Where there is none yet, ``request`` asks for one.
        """
        if self._dated is None:
            self.find(request, whole)
        assert self._dated  # noqa: S101
        date, received = self._dated
        passed = timedelta(seconds=time.monotonic() - received)
        return to_milliseconds(parsedate_to_datetime(date) + passed)

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
        try:
            response = self._answer(request, is_sent_once)
        except (NotSent, NotAnswered) as error:
            log.error("storage-unreachable", error=str(error))
            raise ServiceUnavailable("storage cannot be reached, try again") from error
        if not 200 <= response.status < 300:
            raise self._refusal(response, refusals)
        try:
            return read(response)
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            log.error("storage-unreachable", error=type(error).__name__)
            raise ServiceUnavailable("storage gave no answer that can be read, try again") from error

    def find(
        self,
        request: Request,
        read: Callable[[Response], ReadResult],
        refusals: Refusals = MappingProxyType({}),
    ) -> ReadResult | None:
        """As ``send``; None for a missing resource, and for refusals that are ``Missing``."""
        try:
            return self.send(request, read, {404: Missing, **refusals})
        except Missing:
            return None

    def _answer(self, request: Request, is_sent_once: bool) -> Response:
        """The last answer to up to three requests; raises NotSent, NotAnswered."""
        method, path, params, _, body = request
        path = self._connections.path + path
        query = "&".join([f"{name}={quote(value, safe='')}" for name, value in params])
        target = f"{path}?{query}" if query else path
        delays = iter(self._service.delays)
        while True:
            delay = next(delays, None)
            self._counts[self._service.name, method] += 1
            begun = time.perf_counter()
            status = 0
            try:
                response = self._connections.exchange(method, target, self._headers(request, path), body)
                status = response.status
                if date := response.headers.get("date"):
                    self._dated = date, time.monotonic()
            except (NotSent, NotAnswered) as error:
                wait = _pause(delay)
                if wait is None or (is_sent_once and isinstance(error, NotAnswered)):
                    raise
            else:
                if is_sent_once or not _helps_to_retry(response.status):
                    return response
                wait = _pause(delay, response.headers.get("retry-after", ""))
                if wait is None:
                    return response
            finally:
                self._observe(self._service.name, time.perf_counter() - begun, 0 < status < 500)
            self._sleep(wait)

    def _refusal(self, response: Response, refusals: Refusals) -> Exception:
        code = response.headers.get("x-ms-error-code") or error_code_in(response.body)
        by_status = refusals if code or self._service.name != "table" else {}  # tables name each error
        refused = refusals.get(code) or (code not in _NOT_NOW and by_status.get(response.status))
        return refused() if refused else refusal(response.status, code)

    def _headers(self, request: Request, path: str) -> Mapping[str, str]:
        """The headers of the request, dated now and signed."""
        date = http_date(int(self._now()))
        signed = {"x-ms-date": date, "x-ms-version": self._service.version}
        authorization = self._signer.authorization(self._service, request, path, signed)
        return {**self._service.headers, **signed, "authorization": authorization, **request.headers}


def refusal(status: int, code: str) -> ServiceUnavailable | StorageRefused:
    """The error to raise. It is logged where storage cannot serve now, also for a wrong account key.

    A worker gets 503 for that, since it is not the worker's fault.
    """
    if not _helps_to_retry(status) and status < 500 and code not in _NOT_NOW:
        return StorageRefused(status, code)
    log.error("storage-refused", status=status, azure_code=code, error=StorageRefused.__name__)
    return ServiceUnavailable("storage did not serve the request, try again")


def whole(response: Response) -> Response:
    """For ``send`` and ``find``, where the answer itself is wanted, or only that there is one."""
    return response


def elements(response: Response, root: str) -> Any:
    """The element of that name which the body is; raises ValueError for any other."""
    try:
        found = etree.fromstring(response.body, _PARSER)
    except etree.XMLSyntaxError as error:
        raise ValueError("no XML") from error
    if found.tag != root:  # such as a proxy's page
        raise ValueError(f"no {root}")
    return found


def header_lines(headers: Mapping[str, str]) -> str:
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])


def error_code_in(body: bytes) -> str:
    """The code that the body of a refusal names, or an empty string."""
    code = _CODE.search(body)
    return (code[1] or code[2]).decode() if code else ""


def _helps_to_retry(status: int) -> bool:
    return status in (408, 429) or (status >= 500 and status not in _NOT_RETRIED)


def _pause(delay: float | None, retry_after: str = "") -> float | None:
    """Seconds to wait before the next try, half as much more by chance, so that servers do not retry at once.

    ``delay`` is the least, None after the last try. None: do not try again, also where Retry-After asks for
    more than a call has.
    """
    if delay is None:
        return None
    asked = float(retry_after) if retry_after.isdecimal() else 0
    return max(delay, asked) * random.uniform(1, 1.5) if asked <= _MAX_RETRY_AFTER else None  # noqa: S311


@lru_cache(maxsize=4)
def http_date(seconds: int) -> str:
    """``Sun, 22 Nov 2026 01:02:03 GMT`` of so many seconds since 1970."""
    return formatdate(seconds, usegmt=True)
