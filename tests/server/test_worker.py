"""gunicorn's worker over real sockets, with an application that records its requests.

Each test runs with and without TLS, and over each parser of HTTP.
"""

import json
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gevent
import pytest
import structlog.testing
from gunicorn.app.base import BaseApplication
from gunicorn.config import Config
from gunicorn.glogging import Logger
from gunicorn.sock import TCPSocket
from lxml import etree

from legacy_queue.config import Settings
from legacy_queue.http.client_connection import disconnected
from legacy_queue.server.client_socket import MAX_UNSENT, ClientSocket
from legacy_queue.server.refusals import MAX_HEAD, MAX_LINE
from legacy_queue.server.tls import ServerTls
from legacy_queue.server.worker import GunicornWorker, Reader, http_parser
from tests.parsers import PARSERS
from tests.system.processes import read_all, wait_until

LONG = 60.0  # seconds, longer than anything takes
SHORT = 0.05
GET = b"GET / HTTP/1.1\r\nHost: x\r\n"


@dataclass(frozen=True)
class Tls:
    """The TLS contexts of server and client, which trust each other."""

    server: ssl.SSLContext
    client: ssl.SSLContext


TLS: list[Tls | None] = [None]  # the contexts of the servers that are started next
PARSER = ["python"]  # and gunicorn's setting


@pytest.fixture(
    scope="module",
    autouse=True,
    params=[*(("http", parser) for parser in PARSERS), ("https", PARSERS[-1])],
    ids="-".join,
)
def tls(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls | None]:
    protocol, PARSER[0] = request.param
    if protocol == "http":
        yield None
        return
    TLS[0] = contexts(tmp_path_factory.mktemp("tls"))
    yield TLS[0]
    TLS[0] = None


def contexts(folder: Path) -> Tls:
    """Contexts with a new authority."""
    settings = Settings(tls="auto", data_dir=folder)
    server = ServerTls(settings)
    assert server.authority
    return Tls(server.context, ssl.create_default_context(cafile=server.authority.certificate))


class Application(BaseApplication):
    """Answers with the length of the body, as soon as ``may_answer`` is set; or with a failure."""

    def __init__(self, tls: Tls | None) -> None:
        self.tls_context = tls and tls.server
        self.environs: list[dict[str, Any]] = []
        self.answer = b""
        self.reads = True
        self.failure: Exception | None = None
        self.headers = (("x-of-each-answer", "yes"),)
        self.pieces, self.pause = -1, 0.0  # bytes and seconds
        self.may_answer = threading.Event()
        self.may_answer.set()
        super().__init__()

    def load_config(self) -> None:
        pass

    def load(self) -> Callable[..., Any]:
        return self.serve

    def end_streams(self) -> None:
        self.may_answer.set()

    def serve(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.environs.append(environ)
        if self.failure:
            start_response("200 OK", [])
            raise self.failure
        while not self.may_answer.is_set():
            gevent.sleep(0.01)
        status, length = "200 OK", 0
        try:
            while self.reads and (piece := environ["wsgi.input"].read(self.pieces)):
                length += len(piece)
                gevent.sleep(self.pause)
        except TimeoutError:
            status = "503 Service Unavailable"
        body = self.answer or b"%d" % length
        start_response(status, [("Content-Length", str(len(body)))])
        return [body]


@dataclass
class Served:
    """A worker that serves in a thread of its own."""

    address: tuple[str, int]
    application: Application
    worker: GunicornWorker
    stack: ExitStack = field(default_factory=ExitStack)

    def connect(self, sent: bytes = b"") -> socket.socket:
        connection = self.stack.enter_context(socket.create_connection(self.address, LONG))
        if TLS[0]:
            connection = TLS[0].client.wrap_socket(connection, server_hostname="localhost")
            self.stack.enter_context(connection)
        connection.sendall(sent)
        return connection

    def stop(self) -> None:
        """As SIGTERM does."""
        self.worker.alive = False
        with suppress(OSError):  # it has ended
            os.write(self.worker.PIPE[1], b"!")


@contextmanager
def serving(worker_connections: int = 100, **limits: float) -> Iterator[Served]:
    application = Application(TLS[0])
    config = Config()
    config.set("worker_connections", worker_connections)
    config.set("limit_request_field_size", MAX_HEAD)
    config.set("http_parser", PARSER[0])
    logger = Logger(config)
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    ready, pipe = threading.Event(), os.pipe()
    kind = type(
        "Worker",
        (GunicornWorker,),
        {f"{name}_timeout": limit for name, limit in limits.items()} | {"PIPE": pipe},
    )
    worker: GunicornWorker | None = None

    def run() -> None:
        nonlocal worker
        sock = TCPSocket(address, config, logger, fd=listener.detach())
        # as gunicorn does in its process
        own = gevent.socket.socket(sock.FAMILY, socket.SOCK_STREAM, fileno=sock.sock.detach())
        worker = kind(1, os.getppid(), [own], application, 30, config, logger)
        worker.wsgi = application.load()
        gevent.spawn(ready.set)
        worker.run()
        for end in pipe:
            os.close(end)
        worker.tmp.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(LONG)
    assert worker
    served = Served(address, application, worker)
    try:
        yield served
    finally:
        application.may_answer.set()
        served.stack.close()
        served.stop()
        thread.join(LONG)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def served(tls: Tls | None) -> Iterator[Served]:  # noqa: ARG001  started after it
    with serving() as server:
        yield server


def answer(connection: socket.socket) -> bytes:
    """Read one whole answer."""
    data = b""
    while b"\r\n\r\n" not in data or not data.partition(b"\r\n\r\n")[2]:
        more = connection.recv(65536)
        assert more, data
        data += more
    return data


def closing(head: bytes) -> bytes:
    return head + b"Connection: close\r\n\r\n"


def head_of(length: int) -> bytes:
    """A complete head of ``length`` bytes."""
    head = GET + b"Connection: close\r\n"
    fill, count = length - len(head) - 2, 4
    for number in range(count):
        size = fill // count + (fill % count if number == 0 else 0)
        head += b"X-%d: " % number + b"a" * (size - 7) + b"\r\n"
    return head + b"\r\n"


def line_of(length: int) -> bytes:
    """A request with a request line of ``length`` bytes."""
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
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: x\n\n", 400),
        (closing(b"GET / HTTP/1.1\r\nHost: x\nX: y\r\n"), 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\n", 400),
        (closing(b"GET / HTTP/1.1\r\nHost: x\r\nX: y\r\n z\r\n"), 400),
        (chunked(b"1;" + b"a" * 20_000), 400),
        (chunked(b"0\r\nX: " + b"a" * 90_000), 431),
        (chunked(b"1\r\nx\r\n" * 20_001), 400),
        (chunked(b"1;a=b\r\nx\r\n" * 1000 + b"0\r\nX-Trailer: y\r\n\r\n"), 200),
    ],
    ids=lambda value: str(value)[:40],
)
def test_heads_and_the_framing_of_chunks_are_bounded(served: Served, sent: bytes, expected: int) -> None:
    received = read_all(served.connect(sent))
    assert int(received.split()[1]) == expected
    assert expected == 200 or b"\r\nx-of-each-answer: yes\r\n" in received


def test_a_refusal_below_the_application_has_the_form_of_its_errors(served: Served) -> None:
    for sent, code, said in (
        (line_of(MAX_LINE + 1), "InputTooLarge", f"expected at most {MAX_LINE} bytes"),
        (head_of(MAX_HEAD + 16 * 1024)[:-2], "InputTooLarge", "the headers are too long"),
        (b"GET / HTTP/1.1\r\n\r\n", "InvalidRequestArguments", "expected HTTP/1.1"),
        (b"\x00\xff azure/ nothing\r\n\r\n", "InvalidRequestArguments", "expected HTTP/1.1"),
    ):
        head, _, body = read_all(served.connect(sent)).partition(b"\r\n\r\n")
        assert b"\r\nContent-Type: application/json\r\n" in head
        error = json.loads(body)
        assert (error["code"], said in error["message"]) == (code, True)
        assert error["requestInfo"]["requestId"].encode() in head


def test_a_refusal_of_a_signed_url_below_the_application_is_one_of_azure(served: Served) -> None:
    for sent, code in (
        (line_of(MAX_LINE + 1).replace(b"aa", b"azure/", 1), "RequestUrlFailedToParse"),
        (b"get /azure/ HTTP/1.1\r\n\r\n", "InvalidInput"),
    ):
        head, _, body = read_all(served.connect(sent)).partition(b"\r\n\r\n")
        assert f"\r\nx-ms-error-code: {code}\r\n".encode() in head
        for name in (b"Date", b"x-ms-request-id", b"x-ms-version"):
            assert b"\r\n%b: " % name in head
        root = etree.fromstring(body)
        assert (root.tag, root.findtext("Code")) == ("Error", code)
        assert "\nRequestId:" in root.findtext("Message", "")


@pytest.mark.parametrize(
    ("installed", "expected"),
    [("0.6.9", "python"), ("0.6.10", "auto"), ("0.10.0.post1", "auto"), ("1.0rc1", "auto"), (None, "python")],
)
def test_a_c_parser_that_accepts_a_bare_lf_is_not_used(installed: str | None, expected: str) -> None:
    assert http_parser(installed) == expected


def test_a_head_that_arrives_byte_by_byte_gets_no_more_time() -> None:
    with serving(head=0.3) as served:
        connection = served.connect(b"GET / HTTP/1.1\r\nX: ")
        connection.settimeout(0.01)
        received = b""
        while not received:
            connection.sendall(b"x")
            try:
                received = connection.recv(65536)
            except TimeoutError:
                continue
        assert received.split()[1] == b"503", "a worker keeps its message and calls again"


def test_a_new_connection_replaces_the_oldest_idle_connection() -> None:
    with serving(worker_connections=16) as served:  # 12, and 4 that are being replaced
        kept = served.connect(GET + b"\r\n")
        assert answer(kept).split()[1] == b"200"
        half = [served.connect(GET) for _ in range(40)]
        assert read_all(kept) == b"", "it was idle for longest"
        assert read_all(served.connect(closing(GET))).split()[1] == b"200"
        assert [read_all(connection) for connection in half[:29]] == [b""] * 29
        for connection in half[29:]:
            connection.sendall(b"\r\n")
            assert answer(connection).split()[1] == b"200", "the youngest stay"


def test_a_new_connection_replaces_no_active_request() -> None:
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


def test_a_client_that_reads_nothing_of_its_answer_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClientSocket, "send_timeout", SHORT)
    with serving() as served:
        served.application.answer = bytes(32 * 1024 * 1024)
        connection = served.connect(GET + b"\r\n")
        wait_until(lambda: served.application.environs)
        wait_until(disconnected(served.application.environs[-1]))
        received = b""
        with suppress(ConnectionError):
            received = read_all(connection)
        assert len(received) < len(served.application.answer)


def test_of_too_many_answers_that_wait_for_their_clients_the_one_that_waits_longest_is_given_up() -> None:
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


POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"


def test_a_body_below_the_minimum_rate_times_out() -> None:
    with serving(body=0.5) as served:
        connection, received = served.connect(POST), b""
        connection.settimeout(0.01)
        while not received:
            connection.sendall(b"a")
            with suppress(TimeoutError):
                received = connection.recv(65536)
        assert received.split()[1] == b"503"


@pytest.mark.parametrize(
    ("bytes_a_second", "outcome"),
    [(1127, pytest.raises(TimeoutError)), (4000, pytest.raises(TimeoutError)), (4100, nullcontext())],
)
def test_a_body_that_no_workers_link_would_send_so_slowly_times_out(
    bytes_a_second: int, outcome: AbstractContextManager[object]
) -> None:
    client = SlowClient(bytes_a_second)
    reader = Reader(client, {}, 30.0, lambda: client.seconds)
    reader.wait_for_request(120.0)
    with outcome:
        for _ in range(10_000):
            reader.chunk()


class SlowClient:
    """A connection on which some bytes come in each second of its own clock."""

    def __init__(self, bytes_a_second: int) -> None:
        self.seconds = 0.0
        self._bytes = bytes_a_second

    def fileno(self) -> int:
        return -1

    def recv(self, _size: int) -> bytes:
        self.seconds += 1
        return bytes(self._bytes)


def test_pauses_of_the_server_do_not_count_as_waiting_for_a_body() -> None:
    with serving(body=SHORT) as served:
        served.application.pieces, served.application.pause = 250, 2 * SHORT
        connection = served.connect(POST + b"a" * 1000)
        assert answer(connection).endswith(b"\r\n\r\n1000")


def test_an_idle_connection_is_closed_in_time() -> None:
    with serving(idle=SHORT) as served, structlog.testing.capture_logs() as logged:
        connection = served.connect(GET + b"\r\n")
        assert answer(connection).split()[1] == b"200"
        assert read_all(connection) == b""
        assert not logged


def test_a_body_that_the_application_does_not_read_is_discarded_before_the_next_request() -> None:
    with serving() as served:
        served.application.reads = False
        post = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n"
        connection = served.connect(post + bytes(5_000_000) + closing(GET))
        assert read_all(connection).count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize(
    "sent",
    [POST, b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n"],
    ids=["the rest does not come", "malformed chunks"],
)
def test_a_connection_is_closed_if_the_end_of_a_discarded_body_is_not_found(sent: bytes) -> None:
    with serving(body=SHORT) as served:
        served.application.reads = False
        received = read_all(served.connect(sent))
        assert received.count(b"HTTP/1.1 ") == 1, "the request was answered already"


def test_a_failure_of_the_application_is_500_and_logged_without_its_text() -> None:
    with serving() as served, structlog.testing.capture_logs() as logged:
        served.application.failure = RuntimeError("secret")
        assert read_all(served.connect(GET + b"\r\n")).split()[1] == b"500"
    [line] = logged
    assert line.pop("request_id")
    assert line == {
        "event": "connection-aborted",
        "status": 500,
        "error": "RuntimeError",
        "log_level": "error",
    }


def test_at_the_end_active_requests_are_answered_and_idle_connections_closed() -> None:
    with serving() as served:
        idle = served.connect(GET + b"\r\n")
        answer(idle)
        served.application.may_answer.clear()
        before = len(served.application.environs)
        active = served.connect(GET + b"\r\n")
        wait_until(lambda: len(served.application.environs) > before)
        served.stop()
        received = read_all(active)
        assert received.startswith(b"HTTP/1.1 200")
        assert b"\r\nConnection: close\r\n" in received
        assert read_all(idle) == b""


def test_at_the_end_a_request_of_a_connection_that_was_just_opened_is_answered() -> None:
    with serving() as served:
        opened = served.connect()
        answer(served.connect(GET + b"\r\n"))
        served.stop()
        opened.sendall(GET + b"\r\n")
        assert b"\r\nConnection: close\r\n" in read_all(opened)


def test_at_the_end_the_body_of_an_active_request_may_still_arrive() -> None:
    with serving() as served:
        connection = served.connect(POST)
        wait_until(lambda: served.application.environs)
        served.stop()
        connection.settimeout(0.5)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.sendall(bytes(1000))
        assert answer(connection).endswith(b"\r\n\r\n1000")


def _end(connection: socket.socket) -> None:
    if isinstance(connection, ssl.SSLSocket):  # the tickets: with unread bytes a close would be a reset
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


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("leave", [_end, _end_tls_first, _reset])
def test_a_client_that_disconnects_is_detected_during_its_request(
    served: Served, leave: Callable[[socket.socket], None]
) -> None:
    with active(served) as (connection, is_disconnected):
        assert not is_disconnected()
        leave(connection)
        wait_until(is_disconnected)


def test_a_client_that_sends_its_next_request_counts_as_connected(served: Served) -> None:
    with active(served) as (connection, is_disconnected):
        connection.sendall(closing(GET))
        assert not is_disconnected()
    assert read_all(connection).count(b"HTTP/1.1 200") == 2


@contextmanager
def active(served: Served) -> Iterator[tuple[socket.socket, Callable[[], bool]]]:
    """A connection whose request is answered at the end of the context."""
    before = len(served.application.environs)
    served.application.may_answer.clear()
    try:
        connection = served.connect(GET + b"\r\n")
        wait_until(lambda: len(served.application.environs) > before)
        yield connection, disconnected(served.application.environs[-1])
    finally:
        served.application.may_answer.set()
