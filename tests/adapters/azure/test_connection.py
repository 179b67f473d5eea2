"""Kept connections: what is sent on which, and what becomes of it where they fail."""

import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from legacy_queue.adapters.azure.connection import (
    MAX_IDLE,
    Connections,
    NotAnswered,
    NotSent,
    Response,
    StorageTimeouts,
    default_context,
)

from .stub import Reply, Stub, answer, hang_up, reset, then_hang_up

SHORT = StorageTimeouts(connect=60, read=0.05)
OK = answer(200, b"body")
LARGE = b"." * 50_000_000


def get(connections: Connections) -> Response:
    return connections.exchange("GET", "/", {})


def test_a_connection_is_kept_and_used_again() -> None:
    with Stub(OK) as stub:
        connections = Connections(stub.url)
        for _ in range(3):
            assert get(connections).body == b"body"
    assert (stub.connections, len(stub.heard)) == (1, 3)


def test_a_connection_that_was_closed_meanwhile_is_not_used_again() -> None:
    closed = threading.Event()

    def answer_and_close(connection: socket.socket) -> None:
        connection.sendall(OK)
        hang_up(connection)
        closed.set()

    with Stub(answer_and_close) as stub:
        connections = Connections(stub.url)
        for _ in range(3):
            closed.clear()
            assert get(connections).body == b"body"
            assert closed.wait(10)
    assert (stub.connections, len(stub.heard)) == (3, 3)


def test_a_request_that_the_server_does_not_read_in_time_raises_not_sent() -> None:
    with Stub(None) as stub, pytest.raises(NotSent, match="TimeoutError"):
        Connections(stub.url, SHORT).exchange("PUT", "/", {}, LARGE)  # which the stub does not read


@pytest.mark.parametrize(
    "reply",
    [
        hang_up,
        reset,
        then_hang_up(OK[:20]),
        then_hang_up(OK[:-1]),
        then_hang_up(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n"),
        then_hang_up(b"HTTP/1.1 200 OK\r\n\r\nbody"),
        b"SSH-2.0-OpenSSH\r\n\r\n",
    ],
    ids=["closed", "reset", "half a head", "half a body", "a chunk is missing", "no length", "no HTTP"],
)
def test_an_incomplete_answer_raises_not_answered(reply: Reply) -> None:
    with Stub(reply, OK) as stub:
        connections = Connections(stub.url)
        with pytest.raises(NotAnswered):
            get(connections)
        assert get(connections).body == b"body"
    assert stub.connections == 2


def test_an_answer_that_is_too_slow_raises_not_answered() -> None:
    with Stub(None) as stub, pytest.raises(NotAnswered, match="TimeoutError"):
        get(Connections(stub.url, SHORT))


def test_concurrent_calls_have_a_connection_each_and_at_most_max_idle_are_kept() -> None:
    calls = MAX_IDLE + 2
    together = threading.Barrier(calls)

    def wait_for_all(connection: socket.socket) -> None:
        together.wait(60)
        connection.sendall(OK)

    with Stub(wait_for_all) as stub, ThreadPoolExecutor(calls) as threads:
        connections = Connections(stub.url)
        for _ in range(2):
            answers = [threads.submit(get, connections) for _ in range(calls)]
            assert [answer.result().body for answer in answers] == [b"body"] * calls
        assert stub.connections == calls + 2


def test_a_connection_that_was_idle_for_a_minute_is_replaced() -> None:
    """A firewall may have forgotten it without a word."""
    times = iter([0.0, 59.0, 59.0, 120.0, 120.0])
    with Stub(OK) as stub:
        connections = Connections(stub.url, now=lambda: next(times))
        made = []
        for _ in range(3):
            get(connections)
            made.append(stub.connections)
    assert made == [1, 1, 2]


def test_a_request_that_a_kept_connection_takes_only_in_part_is_sent_again() -> None:
    """Storage, which did not get all of it, cannot have acted on it."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
        connections = Connections(f"http://127.0.0.1:{listener.getsockname()[1]}")
        first = threads.submit(get, connections)
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.sendall(OK)
        assert first.result().body == b"body"
        second = threads.submit(connections.exchange, "PUT", "/", {}, LARGE)
        connection.recv(1)
        reset(connection)
        connection, _ = listener.accept()
        with connection:
            left = len(LARGE)
            while left > 0:
                left -= len(connection.recv(1 << 20))
            connection.sendall(OK)
            assert second.result().body == b"body"


@pytest.fixture
def secure(serving: ssl.SSLContext) -> Iterator[Stub]:
    with Stub(OK, context=serving) as stub:
        yield stub


def test_nothing_is_sent_to_an_untrusted_certificate(secure: Stub) -> None:
    with pytest.raises(NotSent, match="SSLCertVerificationError"):
        get(Connections(secure.url))
    assert secure.heard == []


def test_the_ca_bundle_of_the_sdk_is_trusted(
    secure: Stub, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    connections = Connections(secure.url, context=default_context.__wrapped__())
    assert get(connections).body == b"body"


def test_nothing_is_sent_to_a_certificate_of_another_name(secure: Stub, trusting: ssl.SSLContext) -> None:
    other = secure.url.replace("localhost", "127.0.0.1")
    with pytest.raises(NotSent, match="SSLCertVerificationError"):
        get(Connections(other, context=trusting))
    assert secure.heard == []
