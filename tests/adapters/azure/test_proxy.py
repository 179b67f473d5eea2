"""The way to storage through the proxy of the settings."""

import socket
import ssl

import pytest
from structlog.testing import capture_logs

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.adapters.azure.connection import Connections
from legacy_queue.domain.errors import ServiceUnavailable

from .stub import NO_CONTENT, Stub, answer, connection_string, read_request


def remove_a_queue(proxy: Stub, trusting: ssl.SSLContext, times: int = 1) -> None:
    string = connection_string("https://localhost:1/account")
    account = AzureAccount(string, "t", proxy=proxy.url, context=trusting)
    for _ in range(times):
        account.queue("q").remove()


def test_storage_is_reached_through_the_proxy(serving: ssl.SSLContext, trusting: ssl.SSLContext) -> None:
    reached = []

    def tunnel(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n")
        with serving.wrap_socket(connection, server_side=True) as storage:
            while request := read_request(storage):
                reached.append(request)
                storage.sendall(NO_CONTENT)

    with Stub(tunnel) as proxy:
        remove_a_queue(proxy, trusting, times=2)
    (connect,) = proxy.heard
    assert connect.startswith(b"CONNECT localhost:1 HTTP/1.")
    assert [request.split()[:2] for request in reached] == [[b"DELETE", b"/account/q"]] * 2


def test_a_proxy_that_refuses_means_unavailable_and_is_named(trusting: ssl.SSLContext) -> None:
    with Stub(answer(407)) as proxy, capture_logs() as logs, pytest.raises(ServiceUnavailable):
        remove_a_queue(proxy, trusting)
    assert proxy.methods == ["CONNECT"] * 3
    assert [line["error"] for line in logs] == ["ProxyRefused"]


def test_a_proxy_for_plain_http_is_refused() -> None:
    with pytest.raises(ValueError, match="a proxy is used for https only, and this is http://storage:1"):
        Connections("http://storage:1/account", proxy="http://proxy:3128")
