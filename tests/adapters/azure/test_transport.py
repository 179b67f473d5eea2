"""Connections to Azure are kept and used again. What happens if they fail, and how a proxy is used."""

import shutil
import socket
import ssl
import subprocess
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ServiceRequestError, ServiceResponseError
from azure.core.rest import HttpRequest
from structlog.testing import capture_logs

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.adapters.azure.transport import Transport, default_context
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.server.local_authority import LocalAuthority

from .storage_stub import (
    NO_CONTENT,
    REQUEST_ID,
    Reply,
    Stub,
    answer,
    connection_string,
    hang_up,
    read_request,
    reset,
    then_hang_up,
)

OK = answer(200, b"body")
HEAD = f"HTTP/1.1 200 OK\r\n{REQUEST_ID}\r\n"
LARGE = b"." * 50_000_000


class Sender:
    """Sends requests to ``url`` without retries."""

    def __init__(self, url: str, **options: Any) -> None:
        self._url = url
        self._transport = Transport("table", url, Counter(), wait=lambda _: None, **options)

    def send(self, method: str = "GET", content: bytes | None = None) -> bytes:
        """Send a request. Returns the body of its answer."""
        request = HttpRequest(method, self._url, content=content)
        return self._transport.send(request, is_sent_once=True).body()


def test_a_connection_that_storage_has_closed_is_not_used_again() -> None:
    closed = threading.Event()

    def answer_and_close(connection: socket.socket) -> None:
        connection.sendall(OK)
        hang_up(connection)
        closed.set()

    with Stub(answer_and_close) as stub:
        sender = Sender(stub.url)
        for _ in range(3):
            closed.clear()
            assert sender.send() == b"body"
            assert closed.wait(10)
    assert (stub.connections, len(stub.heard)) == (3, 3)


def test_after_a_timeout_the_error_says_whether_the_request_was_sent() -> None:
    with Stub(None) as stub:
        with pytest.raises(ServiceRequestError, match="TimeoutError"):
            Sender(stub.url, timeout=0.05).send("PUT", LARGE)  # the stub does not read it
        with pytest.raises(ServiceResponseError, match="TimeoutError"):
            Sender(stub.url, timeout=0.05).send()


@pytest.mark.parametrize(
    "reply",
    [
        hang_up,
        reset,
        then_hang_up(OK[:20]),
        then_hang_up(OK[:-1]),
        then_hang_up(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n".encode()),
        then_hang_up(f"{HEAD}\r\nbody".encode()),
        b"SSH-2.0-OpenSSH\r\n\r\n",
    ],
    ids=["closed", "reset", "half a head", "half a body", "a chunk is missing", "no length", "not HTTP"],
)
def test_an_incomplete_answer_counts_as_no_answer(reply: Reply) -> None:
    with Stub(reply, OK) as stub:
        sender = Sender(stub.url)
        with pytest.raises(ServiceResponseError):
            sender.send()
        assert sender.send() == b"body"
    assert stub.connections == 2


def test_each_concurrent_call_has_a_connection_and_at_most_max_idle_of_them_are_kept() -> None:
    together = threading.Barrier(5)

    def wait_for_all(connection: socket.socket) -> None:
        together.wait(60)
        connection.sendall(OK)

    with Stub(wait_for_all) as stub, ThreadPoolExecutor(5) as threads:
        sender = Sender(stub.url, max_idle=3)
        for _ in range(2):
            answers = [threads.submit(sender.send) for _ in range(5)]
            assert [answer.result() for answer in answers] == [b"body"] * 5
        assert stub.connections == 5 + 2


def test_a_connection_that_was_idle_for_a_minute_is_closed_and_not_used_again() -> None:
    """A firewall may have dropped the connection silently."""
    together, ended = threading.Barrier(3), threading.Semaphore(0)

    def answer_until_the_end(connection: socket.socket) -> None:
        together.wait(60)
        connection.sendall(OK)
        if not connection.recv(1):
            ended.release()

    times = {"now": 0.0}
    with Stub(*[answer_until_the_end] * 3, OK) as stub, ThreadPoolExecutor(3) as threads:
        sender = Sender(stub.url, now=lambda: times["now"])
        for answered in [threads.submit(sender.send) for _ in range(3)]:
            answered.result()
        for times["now"], made in ((61.0, 4), (120.0, 4), (181.0, 5)):
            sender.send()
            assert stub.connections == made
        assert all(ended.acquire(timeout=10) for _ in range(3))


def test_a_request_that_a_kept_connection_sent_only_in_part_is_repeated() -> None:
    """This is safe, because the storage cannot have acted on an incomplete request."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
        listener.settimeout(30)
        sender = Sender(f"http://127.0.0.1:{listener.getsockname()[1]}")
        first = threads.submit(sender.send)
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.sendall(OK)
        assert first.result() == b"body"
        second = threads.submit(sender.send, "PUT", LARGE)
        connection.recv(1)
        reset(connection)
        connection, _ = listener.accept()
        with connection:
            left = len(LARGE)
            while left > 0:
                left -= len(connection.recv(1 << 20))
            connection.sendall(OK)
            assert second.result() == b"body"


@pytest.mark.processes
def test_the_variables_for_a_ca_bundle_are_respected_and_nothing_is_sent_to_an_untrusted_server(
    server_context: ssl.SSLContext, authority: LocalAuthority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a folder of certificates, the file names are hashes made by openssl rehash."""
    shutil.copy(authority.certificate, tmp_path / "ca.pem")
    subprocess.run(["openssl", "rehash", tmp_path], check=True)
    with Stub(OK, context=server_context) as stub:
        with pytest.raises(ServiceRequestError, match="SSLCertVerificationError"):
            Sender(stub.url).send()
        assert stub.heard == []
        for bundle in (tmp_path, tmp_path / "ca.pem"):
            monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
            assert Sender(stub.url, context=default_context.__wrapped__()).send() == b"body"


def account_through(proxy: Stub, client_context: ssl.SSLContext) -> AzureAccount:
    """An account whose URLs have no path, like Azure's."""
    transport = partial(Transport, proxy=proxy.url, context=client_context, wait=lambda _: None)
    return AzureAccount(connection_string("https://localhost:1"), "t", transport=transport)


def test_requests_to_storage_go_through_the_configured_proxy(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    reached = []

    def tunnel(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n")
        with server_context.wrap_socket(connection, server_side=True) as storage:
            while request := read_request(storage):
                reached.append(request)
                storage.sendall(NO_CONTENT)

    with Stub(tunnel) as proxy:
        account = account_through(proxy, client_context)
        for _ in range(2):
            account.queue("q").remove()
        with pytest.raises(ServiceUnavailable):
            list(account.queues("q"))
        account.close()
    (connect,) = proxy.heard
    assert connect.startswith(b"CONNECT localhost:1 HTTP/1.")
    assert [request.partition(b"?")[0] for request in reached[2:]] == [b"GET /"]
    assert [request.split()[:2] for request in reached[:2]] == [[b"DELETE", b"/q"]] * 2


def test_if_the_proxy_refuses_storage_is_unavailable_and_the_error_names_the_proxy(
    client_context: ssl.SSLContext,
) -> None:
    with Stub(answer(407)) as proxy, capture_logs() as logs, pytest.raises(ServiceUnavailable):
        account_through(proxy, client_context).queue("q").remove()
    assert proxy.methods == ["CONNECT"] * 3
    assert [line["error"] for line in logs] == ["ProxyRefused"]
    with pytest.raises(ValueError, match="a proxy works for https only, but this is http://storage:1"):
        Transport("table", "http://storage:1/account", Counter(), proxy="http://proxy:3128")


def test_a_closed_account_sends_nothing() -> None:
    with Stub(OK) as stub:
        account = AzureAccount(connection_string(stub.url), "t")
        account.close()
        for act in (account.table("tasks").create, account.queue("q").peek, account.container.create):
            with pytest.raises(ServiceUnavailable):
                act()
    assert stub.heard == []
