"""Sends given bytes to one Azurite and keeps a transcript of what it answers.

Host and date are the same for every Azurite, so that two of them can be sent exactly the same requests.
"""

import base64
import hashlib
import hmac
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http.client import HTTPConnection, HTTPResponse
from typing import TypedDict, Unpack
from urllib.parse import quote, unquote

from legacy_queue.adapters.azurite import ACCOUNT, ACCOUNT_KEY, Ports
from tests.adapters.azurite_patches.normal import normal, text

HOST = "azurite.test:10000"
DATE = formatdate(usegmt=True)
VERSION = "2021-12-02"
JSON = "application/json;odata=minimalmetadata"
FULL = "application/json;odata=fullmetadata"
_TIMEOUT = 60  # seconds; far beyond what any answer takes


@dataclass(frozen=True)
class Answer:
    """One response as it came, chunks joined."""

    version: int
    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str:
        return next(value for key, value in self.headers if key.lower() == name.lower())

    def element(self, name: str) -> str:
        """The text of the first XML element of that name."""
        return self.body.decode().partition(f"<{name}>")[2].partition(f"</{name}>")[0]


class Given(TypedDict, total=False):
    """What ``Wire.send`` takes beside the request line and the body."""

    headers: Mapping[str, str | None] | None
    sign: str
    chunks: tuple[bytes, ...]
    account: str


@dataclass
class Wire:
    """The three services of one Azurite."""

    ports: Ports
    transcript: list[object] = field(default_factory=list)
    _connections: dict[str, HTTPConnection] = field(default_factory=dict)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def queue(
        self, method: str, path: str, query: str = "", body: bytes | str = b"", **given: Unpack[Given]
    ) -> Answer:
        return self.send("queue", method, path, query, body, **given)

    def blob(
        self, method: str, path: str, query: str = "", body: bytes | str = b"", **given: Unpack[Given]
    ) -> Answer:
        return self.send("blob", method, path, query, body, **given)

    def table(
        self, method: str, path: str, query: str = "", body: bytes | str = b"", **given: Unpack[Given]
    ) -> Answer:
        return self.send("table", method, path, query, body, **given)

    def send(
        self,
        service: str,
        method: str,
        path: str,
        query: str = "",
        body: bytes | str = b"",
        headers: Mapping[str, str | None] | None = None,
        sign: str = "SharedKey",
        chunks: tuple[bytes, ...] = (),
        account: str = ACCOUNT,
    ) -> Answer:
        """The answer, which is in the transcript too.

        ``path`` follows the account; ``sign`` is SharedKey, SharedKeyLite or nothing, where the query
        holds a SAS. A header that is None is left out. ``chunks`` are sent instead of a body with a length.
        """
        content = body.encode() if isinstance(body, str) else body
        target = f"/{account}{path}"
        sent = self._headers(service, content, bool(chunks)) | dict(headers or {})
        present = {name: value for name, value in sent.items() if value is not None}
        if sign:
            present["Authorization"] = authorization(service, method, target, query, present, sign)
        connection = self._connections.get(service)
        if connection is None:
            port = self.ports._asdict()[service]
            connection = self._connections[service] = HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT)
        connection.putrequest(
            method, target + (f"?{query}" if query else ""), skip_host=True, skip_accept_encoding=True
        )
        for name, value in present.items():
            connection.putheader(name, value)
        connection.endheaders(None if chunks else content or None)
        if chunks:
            for chunk in (*chunks, b""):
                connection.send(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        answer = self._last = read(connection.getresponse())
        self.transcript.append((service, method, text(target), text(query), normal(answer)))
        return answer

    @property
    def last(self) -> Answer:
        return self._last

    def unrecorded(self, method: str, path: str, query: str = "", sign: str = "SharedKey") -> Answer:
        """An answer of the queue service that is not noted: it is asked for as often as it takes."""
        answer = self.queue(method, path, query, sign=sign)
        self.transcript.pop()
        return answer

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _TIMEOUT
        while not holds():
            assert time.monotonic() < deadline, "it never came true"
            time.sleep(0.02)

    def tick(self) -> None:
        """Waits for the next millisecond: Azurite tells what happens then from all that has happened."""
        now = time.time_ns() // 10**6
        while time.time_ns() // 10**6 == now:
            pass

    def exchange(self, service: str, sent: bytes) -> None:
        """Notes all that a connection of its own answers to the bytes, the last of which ask for its end."""
        with self._connect(service) as connection:
            connection.sendall(sent)
            answered = b"".join(iter(lambda: connection.recv(65536), b""))
        self.transcript.append((service, text(answered.decode(errors="replace"))))

    def cut(self, service: str, sent: bytes) -> None:
        """Sends the bytes on a connection of its own, which breaks then."""
        with self._connect(service) as connection:
            connection.sendall(sent)

    def _connect(self, service: str) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.ports._asdict()[service]), _TIMEOUT)

    @staticmethod
    def _headers(service: str, body: bytes, chunked: bool) -> dict[str, str | None]:
        headers: dict[str, str | None] = {"Host": HOST, "x-ms-version": VERSION, "x-ms-date": DATE}
        if service == "table":
            headers |= {"Accept": JSON, "DataServiceVersion": "3.0"}
        if chunked:
            headers["Transfer-Encoding"] = "chunked"
        elif body:
            headers["Content-Length"] = str(len(body))
        if body or chunked:
            headers["Content-Type"] = "application/json" if service == "table" else "application/xml"
        return headers


def read(response: HTTPResponse) -> Answer:
    body = response.read()
    return Answer(response.version, response.status, response.reason, response.headers.items(), body)


def authorization(
    service: str, method: str, target: str, query: str, headers: Mapping[str, str], scheme: str = "SharedKey"
) -> str:
    """Source: Azure Storage documentation, "Authorize with Shared Key"."""
    small = {name.lower(): value for name, value in headers.items()}
    resource = f"/{ACCOUNT}{target}"
    pairs = [pair.partition("=") for pair in query.split("&") if pair]
    if service == "table":
        resource += "".join(f"?comp={value}" for name, _, value in pairs if name == "comp")
        words = [small.get("date") or small["x-ms-date"], resource]
        if scheme == "SharedKey":
            words = [method, small.get("content-md5", ""), small.get("content-type", ""), *words]
    else:
        length = small.get("content-length", "")
        signed = ("content-md5", "content-type", "date", "if-modified-since", "if-match", "if-none-match")
        words = [method, "", "", "" if length == "0" else length, *(small.get(name, "") for name in signed)]
        words += ["", small.get("range", "")]
        words += [f"{name}:{value}" for name, value in sorted(small.items()) if name.startswith("x-ms-")]
        words.append(resource)
        words += [f"{name.lower()}:{unquote(value)}" for name, _, value in sorted(pairs)]
    return f"{scheme} {ACCOUNT}:{mac(chr(10).join(words))}"


def mac(text: str) -> str:
    digest = hmac.new(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def quoted(text: str) -> str:
    return quote(text, safe="")
