"""Requests to the server under test: each is signed, has its own connection, and is sent once.

No request is repeated: a test must see the fault that it has created. Proxies and ~/.netrc are ignored. No
error has a request's query, which may hold a signature.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import requests

from legacy_queue.credentials import Credentials, unsigned

__tracebackhide__ = True  # a traceback ends at the test's call

_TIMEOUT = (5.0, 60.0)  # seconds to connect, and for an answer: claimWork may take 20
_EVENTS_LOST = "begins-anew"  # comes before the first event of a server, and where events are missing
_MIN_TIMEOUT = 0.001  # seconds; 0 would mean no timeout


class RequestFailed(Exception):
    """The server answered with a status from 300 on. ``code`` and ``message`` are those of its body; the
    text has the first line of the message.
    """

    def __init__(self, method: str, path: str, answer: requests.Response) -> None:
        try:
            body = answer.json()
        except ValueError:
            body = {"code": answer.headers.get("x-ms-error-code", ""), "message": ""}
        self.status = answer.status_code
        self.code = str(body.get("code", ""))
        self.message = str(body.get("message", ""))
        what = self.message.partition("\n")[0]  # behind it are the details of a conflict, as JSON
        super().__init__(f"{method} {path}: {self.status} {self.code} {what}".rstrip())


class QueueHttp:
    """Requests to one server. ``check`` is called without an answer; it raises if the server has ended.

    ``verify`` is the bundle of authorities that check the server's certificate, or True.
    """

    def __init__(
        self, root_url: str, credentials: Credentials, verify: bool | str, check: Callable[[], None]
    ) -> None:
        self._root_url = root_url
        self._credentials = credentials
        self._check = check
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.verify = verify
        self.close = self._session.close

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        credentials: Credentials | None = None,
        headers: Mapping[str, str] | None = None,
        **query: Any,
    ) -> Any:
        """The JSON of the answer. ``credentials`` sign the request, by default those of the tests' client.

        Raises RequestFailed, and requests.RequestException if there is no answer.
        """
        sign = (credentials or self._credentials).sign
        content = {"json": body, "params": query, "headers": headers or {}}
        return self.send(method, self._root_url + path, sign=sign, **content).json()

    def send(self, method: str, url: str, sign: Any = unsigned, **content: Any) -> requests.Response:
        """The answer to a request to any URL. Raises as ``call``."""
        headers = {"Connection": "close", **content.pop("headers", {})}
        options = {"timeout": _TIMEOUT, "allow_redirects": False, "headers": headers, **content}
        try:
            answer = self._session.request(method, url, auth=sign, **options)
        except requests.RequestException as error:
            self._check()
            what = f"{method} {urlsplit(url).path}: there is no answer ({type(error).__name__})"
            raise type(error)(what) from None  # the original has the URL with its signature
        if answer.status_code >= 300:
            raise RequestFailed(method, urlsplit(url).path, answer)
        return answer

    @contextmanager
    def events(self, deadline: float, **query: str) -> Iterator[Iterator[Mapping[str, Any]]]:
        """Follow the events of the server's only process, with a broker too. No event is missed from the
        begin of the context on.

        Events are as in the reference, with their ``id``. The iterator raises TimeoutError at ``deadline``
        (monotonic), and ends when the server ends the stream.
        """
        options = {"params": query, "stream": True, "headers": {"Connection": "keep-alive"}}
        with self.send(
            "GET", f"{self._root_url}/inspect/v1/events", self._credentials.sign, **options
        ) as answer:
            events = parse_events(_lines(answer, deadline))
            yield (
                {"id": event.get("id", ""), **json.loads(event["data"])}
                for event in events
                if "data" in event and event.get("event") != _EVENTS_LOST
            )


def _lines(answer: requests.Response, deadline: float) -> Iterator[bytes]:
    """The lines of the answer, until the server ends it. Raises TimeoutError at ``deadline`` (monotonic)."""
    lines = answer.iter_lines(chunk_size=None)
    connection: Any = answer.raw.connection
    while connection.sock:  # None if the server is ending and has closed it
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
    """The fields of each event of a stream, whose lines have no line ends. A comment has no name.

    An event that the stream cuts off is dropped. Source: HTML, "Server-sent events". Reads only the queue's
    form: no field is repeated, and lines end with a line feed.
    """
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.decode().partition(":")
            fields[name] = value.removeprefix(" ")
        else:
            yield fields
            fields = {}
