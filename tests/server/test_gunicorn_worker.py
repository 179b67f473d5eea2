"""Our gunicorn worker on real sockets. Tests run with and without TLS only if TLS makes a difference."""

import json
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from itertools import repeat

import pytest
from lxml import etree
from structlog.testing import capture_logs

from legacy_queue.http.client_connection import disconnected
from legacy_queue.server.client_socket import MAX_UNSENT, ClientSocket, Timeouts
from legacy_queue.server.refusals import MAX_HEAD, MAX_LINE
from tests.server.serving import GET, LONG, POST, SHORT, Served, Tls, answer, closing, reset, serving
from tests.system.processes import read_all, wait_until


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as server:
        yield server


def head_of(length: int) -> bytes:
    """The complete head of a request, with ``length`` bytes."""
    head = GET + b"Connection: close\r\n"
    while length - len(head) > 2:
        size = min(8000, length - len(head) - 2)
        head += b"X: ".ljust(size - 2, b"a") + b"\r\n"
    return head + b"\r\n"


def line_of(length: int) -> bytes:
    """A request whose request line has ``length`` bytes."""
    return closing(b"GET /".ljust(length - 9, b"a") + b" HTTP/1.1\r\nHost: x\r\n")


def chunked(body: bytes) -> bytes:
    return closing(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n") + body


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (head_of(MAX_HEAD - 1024), 200),
        (head_of(MAX_HEAD + 16 * 1024)[:-2], 431),
        (line_of(MAX_LINE), 200),
        (line_of(MAX_LINE + 1), 414),
        (line_of(MAX_LINE)[:-2] + b"X: " + b"a" * 16 * 1024, 431),
        (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: x\n\n", 400),
        (closing(b"GET / HTTP/1.1\r\nHost: x\nX: y\r\n"), 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\n", 400),
        (closing(b"GET / HTTP/1.1\r\nHost: x\r\nX: y\r\n z\r\n"), 400),
        (chunked(b"1;" + b"a" * 90_000), 400),
        (chunked(b"0\r\nX: " + b"a" * 90_000), 431),
        (chunked(b"1;a=b\r\nx\r\n" * 1000 + b"0\r\nX-Trailer: y\r\n\r\n"), 200),
    ],
    ids=lambda value: str(value)[:40],
)
def test_heads_and_the_framing_of_chunks_have_limits(served: Served, sent: bytes, expected: int) -> None:
    received = read_all(served.connect(sent))
    assert int(received.split()[1]) == expected
    assert expected == 200 or b"\r\nx-of-each-answer: yes\r\n" in received


def test_a_client_cannot_change_its_scheme_or_path_by_headers(served: Served) -> None:
    said = b"X-Forwarded-Proto: https\r\nX-Forwarded-Ssl: on\r\nSCRIPT_NAME: /a\r\nPATH_INFO: /b\r\n"
    assert read_all(served.connect(closing(GET + said))).split()[1] == b"200"
    environ = served.application.environs[-1]
    assert [environ[name] for name in ("wsgi.url_scheme", "SCRIPT_NAME", "PATH_INFO")] == ["http", "", "/"]


def test_an_error_of_the_gunicorn_worker_has_the_form_of_the_queues_errors_or_of_azures(
    served: Served,
) -> None:
    for sent, code, of_azure in (
        (line_of(MAX_LINE + 1), "InputTooLarge", "RequestUrlFailedToParse"),
        (b"get / HTTP/1.1\r\n\r\n", "InvalidRequestArguments", "InvalidInput"),
    ):
        head, _, body = read_all(served.connect(sent)).partition(b"\r\n\r\n")
        assert b"\r\nContent-Type: application/json\r\n" in head
        error = json.loads(body)
        assert (error["code"], "expected" in error["message"]) == (code, True)
        assert error["requestInfo"]["requestId"].encode() in head
        for before in (b"", GET + b"\r\n"):
            received = read_all(served.connect(before + sent.replace(b" /", b" /azure/")))
            head, _, body = received[received.rindex(b"HTTP/1.1 4") :].partition(b"\r\n\r\n")
            assert f"\r\nx-ms-error-code: {of_azure}\r\n".encode() in head
            assert etree.fromstring(body).findtext("Code") == of_azure


def test_a_head_that_arrives_byte_by_byte_does_not_extend_the_timeout() -> None:
    with serving(request=0.3) as served:
        connection = served.connect(b"GET / HTTP/1.1\r\nX: ")
        connection.settimeout(0.01)
        received = b""
        while not received:
            connection.sendall(b"x")
            try:
                received = connection.recv(65536)
            except TimeoutError:
                continue
        assert received.split()[1] == b"503", "after a 503, a worker keeps its message and calls again"
        connection.settimeout(LONG)
        read_all(connection)
        for _ in range(100):
            connection.sendall(b"x")  # a reset here could destroy an answer that the client has not read yet


def test_a_new_connection_replaces_the_oldest_idle_connection(with_and_without_tls: Tls | None) -> None:
    with serving(
        with_and_without_tls, worker_connections=16
    ) as served:  # 12 connections, and 4 that are being replaced
        kept = served.connect(GET + b"\r\n")
        assert answer(kept).split()[1] == b"200"
        half = [served.connect(GET) for _ in range(40)]
        assert read_all(kept) == b"", "the connection that was idle for longest is closed"
        assert read_all(served.connect(closing(GET))).split()[1] == b"200"
        assert [read_all(connection) for connection in half[:29]] == [b""] * 29
        for connection in half[29:]:
            connection.sendall(b"\r\n")
            assert answer(connection).split()[1] == b"200", "the youngest connections stay open"


def test_a_new_connection_does_not_replace_an_active_request() -> None:
    with serving(worker_connections=16) as served, ThreadPoolExecutor(1) as client:
        served.application.may_answer.clear()
        asked: list[socket.socket] = []
        for _ in range(16):
            asked.append(served.connect(GET + b"\r\n"))
            wait_until(lambda: len(served.application.environs) == len(asked))
        late = client.submit(lambda: answer(served.connect(GET + b"\r\n")))
        served.application.may_answer.set()
        assert [answer(connection).split()[1] for connection in asked] == [b"200"] * 16
        assert late.result(LONG).split()[1] == b"200"


def test_a_client_that_does_not_read_its_answer_is_disconnected() -> None:
    with serving(answer=SHORT) as served:
        served.application.answer = bytes(32 * 1024 * 1024)
        connection = served.connect(GET + b"\r\n")
        wait_until(lambda: served.application.environs)
        wait_until(disconnected(served.application.environs[-1]))
        received = b""
        with suppress(ConnectionError):
            received = read_all(connection)
        assert len(received) < len(served.application.answer)


def test_if_too_many_answers_wait_for_their_clients_the_oldest_answer_is_given_up() -> None:
    with serving() as served:
        served.application.answer = bytes(MAX_UNSENT // 2)
        first = served.connect(closing(GET))
        wait_until(lambda: len(ClientSocket.unsent) == 1)
        second = served.connect(closing(GET))
        wait_until(lambda: len(ClientSocket.unsent) == 2)
        third = served.connect(closing(GET))
        wait_until(disconnected(served.application.environs[0]))
        received = b""
        with suppress(ConnectionError, ssl.SSLError):
            received = read_all(first)
        assert len(received) < len(served.application.answer)
        with ThreadPoolExecutor() as threads:
            for whole in threads.map(read_all, (second, third)):
                assert len(whole) > len(served.application.answer)


def test_a_client_that_begins_fast_gets_no_extra_time_for_the_rest_of_its_body() -> None:
    client = Client(1_000_000)
    connection = ClientSocket(client, {}, Timeouts(), lambda: client.seconds)
    for _ in range(100):
        connection.recv(8192)
    client.bytes_a_second = 1
    with pytest.raises(TimeoutError):
        deque((connection.recv(8192) for _ in range(32)), maxlen=0)


@pytest.mark.parametrize(
    ("bytes_a_second", "pause", "is_too_slow"),
    [(1127, 0, True), (4000, 0, True), (4100, 0, False), (4100, 60, False)],
)
def test_a_body_times_out_if_the_client_is_too_slow_but_not_if_the_server_pauses(
    bytes_a_second: int, pause: int, is_too_slow: bool
) -> None:
    client = Client(bytes_a_second)
    connection = ClientSocket(client, {}, Timeouts(), lambda: client.seconds)
    connection.recv(8192)
    with pytest.raises(TimeoutError) if is_too_slow else nullcontext():
        for _ in range(10_000):
            connection.recv(8192)
            client.seconds += pause


class Client:
    """A connection that accepts all answers, and receives this many bytes in each second of its own clock."""

    def __init__(self, bytes_a_second: int = 0) -> None:
        self.seconds = 0.0
        self.taken: list[bytes] = []
        self.bytes_a_second = bytes_a_second

    def fileno(self) -> int:
        return -1

    def recv(self, _size: int) -> bytes:
        self.seconds += 1
        return bytes(self.bytes_a_second)

    def settimeout(self, _seconds: float | None) -> None: ...

    def send(self, data: bytes) -> int:
        self.taken.append(bytes(data))
        return len(data)


def test_a_head_is_sent_together_with_the_first_bytes_of_its_body() -> None:
    client = Client()
    connection = ClientSocket(client, {}, Timeouts())
    for answer_of in ((b"head", b"body", b"more"), (b"head",)):
        connection.expect_request()
        for data in answer_of:
            connection.sendall(data)
        connection.end_answer()
    assert client.taken == [b"headbody", b"more", b"head"]


def test_an_idle_connection_is_closed_in_time() -> None:
    with serving(idle=SHORT, request=1.0) as served, capture_logs() as logged:
        served.application.reads = False
        for sent, rest in ((GET + b"\r\n", b""), (POST, bytes(1000))):
            connection = served.connect(sent)
            assert answer(connection).split()[1] == b"200"
            connection.sendall(rest)
            assert read_all(connection) == b""
        assert not logged


def test_an_unread_body_is_discarded_before_the_next_request_and_before_the_connection_closes() -> None:
    with serving() as served:
        served.application.reads = False
        post = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n"
        body = bytes(5_000_000)
        connection = served.connect(post + b"\r\n" + body + closing(post) + body)
        assert read_all(connection).count(b"HTTP/1.1 200") == 2


def test_if_the_end_of_a_discarded_body_is_not_found_the_connection_is_closed() -> None:
    with serving(request=SHORT) as served:
        served.application.reads = False
        for sent in (POST, b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n"):
            received = read_all(served.connect(sent))
            assert received.count(b"HTTP/1.1 ") == 1, "there is no second answer"


def test_discarding_a_body_stops_after_a_while() -> None:
    with serving(idle=SHORT) as served:
        served.application.reads = False
        connection = served.connect(POST.replace(b"1000", b"9" * 30))
        with pytest.raises(ConnectionError):
            deque(map(connection.sendall, repeat(b"x", 1_000_000)), maxlen=0)


def test_an_error_of_the_application_is_a_500_and_logged_without_its_text() -> None:
    with serving() as served, capture_logs() as logged:
        served.application.failure = RuntimeError("secret")
        assert read_all(served.connect(GET + b"\r\n")).split()[1] == b"500"
    [line] = logged
    assert (line["event"], line["log_level"]) == ("connection-aborted", "error")
    assert "secret" not in str(line)


def test_a_stopping_worker_answers_active_requests_and_closes_idle_connections(
    with_and_without_tls: Tls | None,
) -> None:
    with serving(with_and_without_tls) as served:
        idle = served.connect(GET + b"\r\n")
        answer(idle)
        active = served.connect(POST)
        wait_until(lambda: len(served.application.environs) == 2)
        opened = served.connect()
        answer(served.connect(GET + b"\r\n"))
        served.stop()
        opened.sendall(GET + b"\r\n")
        assert b"\r\nConnection: close\r\n" in read_all(opened), (
            "a connection that was opened just before the stop is answered"
        )
        assert read_all(idle) == b""
        active.sendall(bytes(1000))
        received = read_all(active)
        assert b"\r\nConnection: close\r\n" in received
        assert received.endswith(b"\r\n\r\n1000")


def _end(connection: socket.socket) -> None:
    # read the session tickets, because closing with unread bytes would be a reset
    if isinstance(connection, ssl.SSLSocket):
        connection.settimeout(0)
        with suppress(ssl.SSLWantReadError):
            connection.recv(1)
    connection.close()


def _end_tls_first(connection: socket.socket) -> None:
    if isinstance(connection, ssl.SSLSocket):
        connection.settimeout(0)
        with suppress(OSError):
            connection.unwrap()
    _end(connection)


@pytest.mark.parametrize("leave", [_end, _end_tls_first, reset])
def test_a_client_that_disconnects_is_detected_during_its_request(
    with_and_without_tls: Tls | None, leave: Callable[[socket.socket], None]
) -> None:
    with active(with_and_without_tls) as (connection, is_disconnected):
        leave(connection)
        wait_until(is_disconnected)


def test_a_client_that_sends_its_next_request_counts_as_connected(with_and_without_tls: Tls | None) -> None:
    with active(with_and_without_tls) as (connection, is_disconnected):
        connection.sendall(closing(GET))
        assert not is_disconnected()


@contextmanager
def active(tls: Tls | None) -> Iterator[tuple[socket.socket, Callable[[], bool]]]:
    """A connection with an active request, and whether it is disconnected.

    The request is answered at the end.
    """
    with serving(tls) as served:
        served.application.may_answer.clear()
        connection = served.connect(GET + b"\r\n")
        wait_until(lambda: served.application.environs)
        yield connection, disconnected(served.application.environs[0])
