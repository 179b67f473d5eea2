"""Requests to a queue over HTTP, for the commands, the test kit and conform. It imports nothing of the
server.

Each request uses its own connection. It is sent once, unless the caller says for how long it may be repeated.
If the server refuses a request, RequestFailed is raised. If there is no answer, another RequestException is
raised. Both name the server and the path. Neither shows the query or the headers of a request, because these
may contain a signature.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from time import monotonic, sleep
from typing import Any
from urllib.parse import urlsplit

import requests

from legacy_queue.credentials import ANONYMOUS, Credentials
from legacy_queue.domain.hawk import SignedRequest, sign_bewit

__tracebackhide__ = True  # so that the traceback of a test ends at the test's own call

# seconds to connect, and to wait for an answer, which takes long if a clock is moved by days
_TIMEOUTS = 10.0, 120.0
# seconds to connect, and to wait for a byte: the server sends a comment every 15 s
_STREAM_TIMEOUTS = 10.0, 45.0
_MIN_TIMEOUT = 0.001  # seconds; 0 would mean no timeout
_RETRY_INTERVAL = 0.5  # seconds
_PAGE = 1000  # requests of the journal
# the name of an event that the server sends if events before the next one are missing
EVENTS_LOST = "begins-anew"
_NOT_A_QUEUE = "the server is not a queue that has this endpoint"


class RequestFailed(requests.RequestException):
    """The server answered with a status of 300 or more, or not as a queue does.

    ``code`` and ``message`` are from the body of the answer; the text of the exception has the first line of
    the message. ``server`` is the root URL of the server, without a password.
    """

    def __init__(self, answer: requests.Response, message: str | None = None) -> None:
        self.status = answer.status_code
        self.server, self.path = _place(str(answer.request.url))
        self.code, self.message = _read_error(answer) if message is None else ("", message)
        what = self.message.partition("\n")[0]  # the other lines are the details of a conflict, as JSON
        asked = f"{answer.request.method} {self.server}{self.path}"
        super().__init__(f"{asked}: {self.status} {self.code} {what}".rstrip())


def _place(url: str) -> tuple[str, str]:
    """The root URL, without user and password, and the path."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", parts.path


def _read_error(answer: requests.Response) -> tuple[str, str]:
    """The code and the message of an error. It may come from the queue, from Azure, or from a proxy."""
    with suppress(ValueError, LookupError, TypeError, AttributeError, requests.RequestException):
        body = answer.json()
        if body["message"]:
            return str(body.get("code", "")), str(body["message"])
    code = answer.headers.get("x-ms-error-code", "")
    names_reason = code or answer.status_code >= 500
    return code, answer.reason if names_reason else _NOT_A_QUEUE


def is_temporary(failed: Exception) -> bool:
    """Whether the same request may succeed later: there was no answer, or a 5xx."""
    return not isinstance(failed, RequestFailed) or failed.status >= 500


class QueueClient:
    """Calls the queue at ``base_url``, which ends in ``/v1``.

    ``verify`` names a bundle of authorities that may sign the server's certificate, or is True for the public
    ones. Without ``verify``, the environment may name a bundle and a proxy. If there is no answer, ``check``
    is called: it may raise an error that says why.
    """

    def __init__(
        self,
        base_url: str,
        credentials: Credentials,
        verify: bool | str | None = None,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        self.base_url = base_url
        self.root_url = re.sub(r"(/api/queue)?/v1/?$", "", base_url)
        self.path = base_url.removeprefix(self.root_url).rstrip("/")  # /api/queue/v1 or /v1
        self.credentials = credentials
        self._verify = verify
        self._check = check

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        expected: str = "",
        credentials: Credentials | None = None,
        headers: Mapping[str, str] | None = None,
        retry_until: float = 0,
        **query: Any,
    ) -> Any:
        """The JSON object of the answer, which must have the property ``expected``.

        ``path`` is below the root URL. ``credentials`` sign the request in place of the client's own. If
        there is no answer, or a 5xx, the request is repeated until ``retry_until`` (monotonic). Raises what
        ``send`` raises.
        """
        content = {"json": body, "params": query, "headers": headers}
        while True:
            try:
                answer = self.send(method, self.root_url + path, credentials or self.credentials, **content)
                break
            except requests.RequestException as failed:
                if monotonic() > retry_until or not is_temporary(failed):
                    raise
            sleep(_RETRY_INTERVAL)
        with suppress(ValueError):
            found = answer.json()
            if isinstance(found, dict) and (not expected or expected in found):
                return found
        raise RequestFailed(answer, _NOT_A_QUEUE)

    def send(
        self, method: str, url: str, credentials: Credentials = ANONYMOUS, **content: Any
    ) -> requests.Response:
        """The answer to a request to any URL, for example a signed one.

        Raises RequestFailed, and requests.RequestException if there is no answer.
        """
        options = {"timeout": _TIMEOUTS, "allow_redirects": False, **content}
        with requests.Session() as session:
            session.trust_env = self._verify is None
            try:
                answer = session.request(method, url, auth=credentials.sign, verify=self._verify, **options)
            except (requests.RequestException, ValueError) as error:
                failed = _unanswered(error, method, url)
            else:
                if answer.status_code >= 300:
                    raise RequestFailed(answer)
                return answer
        self._check()
        raise failed  # here it does not get the original as its context, which has the signed URL

    def journal(self, after: int = 0, **query: Any) -> tuple[list[Mapping[str, Any]], str]:
        """The requests in the journal that come after this number, the oldest first, and the queue's time."""
        entries: list[Mapping[str, Any]] = []
        while True:
            query |= {"limit": _PAGE, "after": entries[-1]["sequence"] if entries else after}
            page = self.call("GET", "/control/v1/requests", expected="requests", **query)
            entries += page["requests"]
            if len(page["requests"]) < _PAGE:
                return entries, page["now"]

    def download(self, path: str) -> Iterator[bytes]:
        """The content as it arrives, after redirects. Raises as ``send``, also if the answer breaks off."""
        url = self.root_url + path
        answer = self.send("GET", url, self.credentials, stream=True, allow_redirects=True)
        try:
            yield from answer.iter_content(65536)
        except requests.RequestException as error:
            what = f"the answer of {_place(url)[0]} broke off ({type(error).__name__})"
            raise type(error)(what) from None

    @contextmanager
    def events(
        self, path: str, deadline: float | None = None, **query: str
    ) -> Iterator[Iterator[Mapping[str, str]]]:
        """Follow a stream of events. The iterator has the fields of each event since the context was entered.

        It ends when the server ends the stream, or when the connection breaks. It raises TimeoutError at
        ``deadline`` (monotonic).
        """
        options = {"params": query, "stream": True, "timeout": _STREAM_TIMEOUTS, "allow_redirects": True}
        with self.send("GET", self.root_url + path, self.credentials, **options) as answer:
            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                raise RequestFailed(answer, "the server is not a queue: it does not send events")
            yield parse_events(_lines(answer, deadline))

    def page_link(self, life: timedelta) -> str:
        """A link that signs a browser in to the web page. It works for the time ``life``."""
        own = self.credentials
        url = urlsplit(f"{self.root_url}/")
        port = url.port or (443 if url.scheme == "https" else 80)
        request = SignedRequest("GET", url.path, url.hostname or "", port)
        end = datetime.now(UTC) + life
        return f"{url.geturl()}?bewit={sign_bewit(request, own.client_id, own.access_token, end, own.ext)}"


def _unanswered(error: Exception, method: str, url: str) -> requests.RequestException:
    """An error of the same class that does not show the query. After a redirect it names the new server."""
    # a redirect may lead to a URL that urllib3 cannot parse
    kind: type[requests.RequestException] = requests.exceptions.InvalidURL
    if isinstance(error, requests.RequestException):
        kind = type(error)
        url = str(error.request.url) if error.request else url
    server, path = _place(url)
    if isinstance(error, requests.exceptions.SSLError):
        return kind(f"the certificate of {server} is not trusted, or is for another host")
    return kind(f"the server at {server} does not answer {method} {path} ({kind.__name__})")


def _lines(answer: requests.Response, deadline: float | None) -> Iterator[bytes]:
    """The lines of the answer until it ends. Raises TimeoutError at ``deadline`` (monotonic)."""
    lines = answer.iter_lines(chunk_size=None)
    if deadline is None:
        with suppress(requests.RequestException):  # the connection broke
            yield from lines
        return
    connection: Any = answer.raw.connection
    while connection.sock:  # None once the server has closed it
        connection.sock.settimeout(max(deadline - monotonic(), _MIN_TIMEOUT))
        try:
            yield next(lines)
        except StopIteration:
            return
        except requests.RequestException:
            if monotonic() < deadline:
                return
            raise TimeoutError from None


def parse_events(lines: Iterable[bytes]) -> Iterator[dict[str, str]]:
    """The fields of each event of a stream. ``lines`` have no line ends. The name of a comment is empty.

    An event that is cut off at the end of the stream is dropped. Source: HTML, "Server-sent events". Only the
    queue's own form is understood: no field is repeated, and a line ends with a line feed.
    """
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.decode().partition(":")
            fields[name] = value.removeprefix(" ")
        else:
            yield fields
            fields = {}
