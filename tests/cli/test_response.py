"""Responses as they go out, over a real socket that keeps what is sent at once together."""

import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from gunicorn.config import Config

from legacy_queue.cli.request_head import HeadParser, HeadTimeouts, SettingsReadOnce
from legacy_queue.cli.response import ClientSocket, respond


def answered(
    *chunks: bytes,
    status: str = "200 OK",
    headers: Sequence[tuple[str, str]] = (),
    method: str = "GET",
    version: str = "1.1",
    is_last: bool = False,
    failure: Exception | None = None,
) -> tuple[list[bytes], bool]:
    """What the client receives, send by send, and whether the connection is to be closed."""

    def app(_environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response(status, list(headers))
        yield from chunks
        if failure:
            raise failure

    return exchanged(app, method, version, is_last)


def exchanged(
    app: Callable[..., Any], method: str = "GET", version: str = "1.1", is_last: bool = False
) -> tuple[list[bytes], bool]:
    client, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with client, ClientSocket(server.family, server.type, server.proto, fileno=server.detach()) as connection:
        client.sendall(f"{method} /path HTTP/{version}\r\nHost: x\r\n\r\n".encode())
        cfg, address = SettingsReadOnce(Config()), ("127.0.0.1", 1)
        req = next(HeadParser(cfg, connection, address, HeadTimeouts(5, 5, 5, 5)))
        req.proxy_protocol_info, is_closed = {}, False
        try:
            respond(app, req, (connection, address, address), cfg, is_last)
        except StopIteration:
            is_closed = True
        connection.close()
        received = []
        while data := client.recv(100_000):
            received.append(data)
        return received, is_closed


def test_head_and_body_are_sent_at_once() -> None:
    (sent,), is_closed = answered(b"body", headers=[("Content-Length", "4"), ("X-Y", "z")])
    head, _, body = sent.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 200 OK"
    assert [line.partition(":")[0] for line in lines[1:4]] == ["Server", "Date", "Connection"]
    assert lines[3:] == ["Connection: keep-alive", "Content-Length: 4", "X-Y: z"]
    assert (body, is_closed) == (b"body", False)


def test_a_body_without_a_length_is_sent_in_chunks_the_first_with_the_head() -> None:
    (first, second, end), is_closed = answered(b"a" * 26, b"", b"b")
    head, _, body = first.partition(b"\r\n\r\n")
    assert b"\r\nTransfer-Encoding: chunked" in head
    assert (body, second, end) == (b"1A\r\n" + b"a" * 26 + b"\r\n", b"1\r\nb\r\n", b"0\r\n\r\n")
    assert not is_closed


@pytest.mark.parametrize(("status", "method"), [("204 No Content", "GET"), ("200 OK", "HEAD")])
def test_an_answer_without_a_body_is_sent_as_a_head_alone(status: str, method: str) -> None:
    for chunks in ((), (b"",), (b"not to be sent",)):
        (sent,), is_closed = answered(*chunks, status=status, method=method)
        assert sent.startswith(f"HTTP/1.1 {status}\r\n".encode())
        assert sent.endswith(b"\r\n\r\n")
        assert b"chunked" not in sent
        assert not is_closed


@pytest.mark.parametrize(("version", "is_last"), [("1.1", True), ("1.0", False)])
def test_the_last_answer_of_a_connection_has_the_header_connection_close(version: str, is_last: bool) -> None:
    (sent,), is_closed = answered(b"x", headers=[("Content-Length", "1")], version=version, is_last=is_last)
    assert sent.startswith(f"HTTP/{version} 200 OK\r\n".encode())
    assert b"\r\nConnection: close\r\n" in sent
    assert is_closed


def test_an_answer_that_fails_midway_closes_the_connection() -> None:
    (sent,), is_closed = answered(b"x", failure=RuntimeError())
    assert sent.endswith(b"\r\n1\r\nx\r\n"), "the last chunk is missing, so the client sees it"
    assert is_closed


def test_an_error_before_the_first_byte_is_raised() -> None:
    with pytest.raises(RuntimeError):
        answered(failure=RuntimeError())


def test_an_application_is_closed_once_its_answer_is_sent() -> None:
    class Chunks(list[bytes]):
        is_closed = False

        def close(self) -> None:
            self.is_closed = True

    chunks = Chunks([b"x"])

    def app(_environ: Any, start_response: Any) -> Chunks:
        start_response("200 OK", [])
        return chunks

    exchanged(app)
    assert chunks.is_closed


def test_a_header_that_would_inject_another_is_refused() -> None:
    for headers in ([("X", "a\r\nb: c")], [("X: a", "b")]):
        with pytest.raises(Exception, match="X"):
            answered(b"x", headers=headers)
