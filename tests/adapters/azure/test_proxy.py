"""The way to storage: directly, or through the proxy of the settings."""

import ssl

import pytest

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.adapters.azure.connection import Connections, NotSent
from legacy_queue.domain.errors import ServiceUnavailable

from .connect_proxy import ConnectProxy
from .stub import NO_CONTENT, Stub, connection_string


def account_at(url: str, proxy: str | None, trusting: ssl.SSLContext) -> AzureAccount:
    return AzureAccount(connection_string(url), "t", proxy=proxy, context=trusting)


def test_storage_is_reached_through_the_proxy(serving: ssl.SSLContext, trusting: ssl.SSLContext) -> None:
    with ConnectProxy() as proxy, Stub(NO_CONTENT, context=serving) as stub:
        account = account_at(stub.url, proxy.url, trusting)
        for _ in range(2):
            account.queue("q").remove()
    assert len(stub.heard) == 2
    assert proxy.targets == [f"localhost:{stub.port}"]


def test_a_proxy_that_refuses_means_unavailable(trusting: ssl.SSLContext) -> None:
    with ConnectProxy("403 Forbidden") as proxy:
        with pytest.raises(ServiceUnavailable):
            account_at("https://localhost:1/account", proxy.url, trusting).queue("q").remove()
        assert len(proxy.targets) == 3


def test_proxies_of_the_environment_are_not_used(
    serving: ssl.SSLContext,
    trusting: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ConnectProxy() as proxy, Stub(NO_CONTENT, context=serving) as stub:
        for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        account_at(stub.url, None, trusting).queue("q").remove()
        assert (len(stub.heard), proxy.targets) == (1, [])


def test_a_refusal_of_the_proxy_is_named() -> None:
    with ConnectProxy("407 Proxy Authentication Required") as proxy:
        connections = Connections("https://storage:1/account", proxy=proxy.url)
        with pytest.raises(NotSent, match="ProxyRefused"):
            connections.exchange("GET", "/", {})
        assert proxy.targets == ["storage:1"]


def test_a_proxy_for_plain_http_is_refused() -> None:
    with pytest.raises(ValueError, match="a proxy is used for https only, and this is http://storage:1"):
        Connections("http://storage:1/account", proxy="http://proxy:3128")
