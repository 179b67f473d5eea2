"""What is read of an answer, and what is refused: http.client reads the same, where it is as strict."""

import http.client
import io
import socket
from collections.abc import Iterable
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legacy_queue.adapters.azure.http_response import BadResponse, Response, read_response

OK = b"HTTP/1.1 200 OK\r\n"


class Pieces:
    """A connection from which these come, and then its end."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    def recv(self, _size: int) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


def read(*pieces: bytes) -> Response:
    return read_response(cast(socket.socket, Pieces(pieces)))


READ: dict[str, tuple[bytes, int, bytes, bool]] = {
    "a length": (OK + b"Content-Length: 4\r\n\r\nbody", 200, b"body", True),
    "no body": (OK + b"content-length: 0\r\n\r\n", 200, b"", True),
    "204 without a body": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    "204 with a length": (b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", 204, b"", True),
    "304": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", 304, b"", True),
    "chunks": (
        OK + b"Transfer-Encoding: Chunked\r\n\r\n3\r\nbod\r\n1;a=b\r\ny\r\n0\r\n\r\n",
        200,
        b"body",
        True,
    ),
    "trailers": (
        OK + b"transfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\na: b\r\n\r\n",
        200,
        b"body",
        True,
    ),
    "no chunk": (OK + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n", 200, b"", True),
    "no length": (OK + b"\r\nbody until the end", 200, b"body until the end", False),
    "close": (OK + b"Connection: Close\r\nContent-Length: 4\r\n\r\nbody", 200, b"body", False),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nbody", 200, b"body", False),
    "no reason": (b"HTTP/1.1 500\r\nContent-Length: 0\r\n\r\n", 500, b"", True),
    "an interim answer": (
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 4\r\n\r\nbody",
        200,
        b"body",
        True,
    ),
}


@pytest.mark.parametrize(("sent", "status", "body", "can_continue"), READ.values(), ids=READ)
def test_an_answer_is_read_with_its_status_body_and_end(
    sent: bytes, status: int, body: bytes, can_continue: bool
) -> None:
    response = read(sent)
    assert (response.status, response.body, response.can_continue) == (status, body, can_continue)
    assert read(*[bytes([byte]) for byte in sent]) == response


@pytest.mark.parametrize("sent", [sent for sent, *_ in READ.values()], ids=READ)
def test_answers_are_read_as_by_http_client(sent: bytes) -> None:
    class Connection:
        def makefile(self, _mode: str) -> io.BytesIO:
            return io.BytesIO(sent)

    theirs = http.client.HTTPResponse(cast(socket.socket, Connection()), method="GET")
    theirs.begin()
    ours = read(sent)
    assert (ours.status, ours.body) == (theirs.status, theirs.read())
    assert {name.lower(): value for name, value in theirs.getheaders()} == ours.headers


@given(st.binary(max_size=300), st.lists(st.integers(1, 400)), st.booleans())
def test_an_answer_in_any_pieces_is_read_whole(body: bytes, cuts: list[int], is_chunked: bool) -> None:
    if is_chunked:
        chunks = b"".join(
            b"%x\r\n%s\r\n" % (len(body[i : i + 7]), body[i : i + 7]) for i in range(0, len(body), 7)
        )
        sent = OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    else:
        sent = OK + b"Content-Length: %d\r\n\r\n" % len(body) + body
    places = [0, *sorted(cuts), len(sent)]
    response = read(*[sent[start:end] for start, end in pairwise(places)])
    assert (response.status, response.body, response.can_continue) == (200, body, True)


def test_header_names_become_lower_case_and_values_are_stripped() -> None:
    response = read(OK + b'ETag: \t W/"1" \r\nx-empty:\r\nContent-Length:0\r\n\r\n')
    assert response.headers == {"etag": 'W/"1"', "x-empty": "", "content-length": "0"}


def test_a_connection_with_unread_bytes_cannot_continue() -> None:
    assert read(OK + b"Content-Length: 4\r\n\r\nbodyHTTP/1.1 200 OK\r\n").can_continue is False


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"<html></html>\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        OK,
        OK + b"Content-Length: 4\r\n\r\nbod",
        OK + b"Content-Length: 4\r\nContent-Length: 4\r\n\r\nbody",
        OK + b"Content-Length: -4\r\n\r\nbody",
        OK + b"Content-Length: +4\r\n\r\nbody",
        OK + b"Content-Length: 4, 4\r\n\r\nbody",
        OK + b"Content-Length: \xb2\r\n\r\nbody",
        OK + b"Content-Length: 99999999999\r\n\r\nbody",
        OK + b"Content-Length: 300000000\r\n\r\nbody",
        OK + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n0x4\r\nbody\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\nbodyX\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nfffffff\r\nbody\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\ntrailer\r\n",
        OK + b"header: one\r\n folded\r\nContent-Length: 0\r\n\r\n",
        OK + b"header : one\r\nContent-Length: 0\r\n\r\n",
        OK + b"no colon\r\nContent-Length: 0\r\n\r\n",
        OK + b": no name\r\nContent-Length: 0\r\n\r\n",
        OK + b"bare: one\nContent-Length: 0\r\n\r\n",
        OK + b"a: " + b"x" * 200_000,
        b"x" * 200_000,
    ],
)
def test_an_ambiguous_too_large_or_incomplete_answer_is_refused(sent: bytes) -> None:
    with pytest.raises(BadResponse):
        read(sent)


def test_a_body_that_does_not_end_is_refused() -> None:
    mib = b"." * (1024 * 1024)
    with pytest.raises(BadResponse):
        read(OK + b"\r\n", *[mib] * 257)
    with pytest.raises(BadResponse):
        read(OK + b"Transfer-Encoding: chunked\r\n\r\n", *[b"100000\r\n" + mib + b"\r\n"] * 257)
