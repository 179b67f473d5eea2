"""Requests that no client library sends: a broken or too long body is refused."""

import json
import socket
from urllib.parse import urlsplit

import pytest

from legacy_queue.http.bodies import MAX_BODY

from .processes import Server

CREATE = (
    b"PUT /v1/task/RO4vBvwTSuitBVqaXmawiQ HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
)


def answer_to(server: Server, request: bytes) -> tuple[int, dict[str, str]]:
    """Status and JSON body of the answer."""
    address = urlsplit(server.root_url)
    with socket.create_connection((address.hostname, address.port), 30) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        head, _, body = b"".join(iter(lambda: connection.recv(65536), b"")).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def chunked(*chunks: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


@pytest.mark.parametrize("size", [MAX_BODY + 1, MAX_BODY + 5000])
def test_a_chunked_body_that_is_too_long_is_refused(server: Server, size: int) -> None:
    body = chunked(b"{}", b" " * (size - 2))
    status, answer = answer_to(server, CREATE + b"Transfer-Encoding: chunked\r\n\r\n" + body)
    assert (status, answer["code"]) == (413, "InputTooLarge")


def test_a_content_length_that_is_too_long_is_refused(server: Server) -> None:
    status, answer = answer_to(server, CREATE + b"Content-Length: %d\r\n\r\n{}" % (MAX_BODY + 1))
    assert (status, answer["code"]) == (413, "InputTooLarge")


def test_a_body_that_breaks_off_is_refused(server: Server) -> None:
    status, answer = answer_to(server, CREATE + b"Content-Length: 50\r\n\r\n{}")
    assert (status, answer["code"]) == (400, "MalformedPayload")


def test_a_malformed_chunk_is_refused(server: Server) -> None:
    status, answer = answer_to(server, CREATE + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n")
    assert (status, answer["code"]) == (400, "MalformedPayload")
