"""Requests that no client library sends: a broken or too long body is refused."""

import json
import socket
from collections.abc import Iterator

import pytest

from legacy_queue.http.bodies import MAX_BODY
from tests.parsers import PARSERS

from .processes import Server, read_all, serve

HEAD = (
    b"PUT /v1/task/RO4vBvwTSuitBVqaXmawiQ HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
)
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module", params=PARSERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with each parser of HTTP. Where the C parser cannot be imported the server does without it."""
    folder = tmp_path_factory.mktemp("server")
    hidden = {"TEST_HIDDEN_MODULE": "gunicorn_h1c"} if request.param == "python" else {}
    with serve(folder, "--storage", "memory", env=hidden) as started:
        yield started


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (MAX_BODY + 1, b" " * (MAX_BODY + 1)), 413, "InputTooLarge"),
        (b"Content-Length: %d\r\n\r\n{}" % (MAX_BODY + 1), 413, "InputTooLarge"),
        (b"Content-Length: 50\r\n\r\n{}", 400, "MalformedPayload"),
        (CHUNKED + b"zz\r\n{}\r\n", 400, "MalformedPayload"),
    ],
    ids=["long chunks", "long", "broken off", "malformed chunk"],
)
def test_a_broken_or_too_long_body_is_refused(server: Server, sent: bytes, status: int, code: str) -> None:
    with server.connect() as connection:
        connection.sendall(HEAD + sent)
        connection.shutdown(socket.SHUT_WR)
        head, _, body = read_all(connection).partition(b"\r\n\r\n")
    assert (int(head.split()[1]), json.loads(body)["code"]) == (status, code)
