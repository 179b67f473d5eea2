"""What proxies say of a request: believed of the configured, and gone otherwise."""

from ipaddress import ip_network
from typing import Any

import pytest
from werkzeug.test import Client

from legacy_queue.http.client_connection import TrustedProxies
from legacy_queue.wiring import build
from tests.http.calls import Queue

PROXIES = TrustedProxies([ip_network("10.0.0.0/8"), ip_network("2001:db8::1")])
HEADERS = {
    "HTTP_X_FORWARDED_FOR": "192.0.2.1, 192.0.2.2",
    "HTTP_X_FORWARDED_HOST": "queue.example.com",
    "HTTP_X_FORWARDED_PORT": "443",
    "HTTP_X_FORWARDED_PROTO": "https",
    "HTTP_FORWARDED": "for=192.0.2.1",
    "HTTP_VIA": "1.1 proxy",
}


@pytest.mark.parametrize("peer", ["10.1.2.3", "::ffff:10.1.2.3", "2001:db8::1"])
def test_a_configured_proxy_says_whose_request_it_is(peer: str) -> None:
    environ: dict[str, Any] = {"REMOTE_ADDR": peer, **HEADERS}
    PROXIES.apply(environ)
    assert environ == {**HEADERS, "REMOTE_ADDR": "192.0.2.2", "wsgi.url_scheme": "https"}


@pytest.mark.parametrize(
    ("told", "scheme"), [("https", "https"), ("https, http", "https"), ("http", "http"), ("ftp", "http")]
)
def test_a_configured_proxy_says_by_which_scheme_the_client_came(told: str, scheme: str) -> None:
    environ: dict[str, Any] = {"REMOTE_ADDR": "10.1.2.3", "wsgi.url_scheme": "http"}
    environ["HTTP_X_FORWARDED_PROTO"] = told
    PROXIES.apply(environ)
    assert environ["wsgi.url_scheme"] == scheme


def test_a_signed_url_for_https_is_answered_behind_a_proxy() -> None:
    queue = Queue(trusted_proxy=(ip_network("127.0.0.1"),))
    server = build(queue.settings, "https://queue.test", queue.clock)
    urls = server.services.polling.poll_urls("p", "w", "a-client")["queues"][0]
    target = urls["signedPollUrl"].removeprefix("https://queue.test")
    for proto, status in (("https", 200), ("http", 403)):
        environ = {"REMOTE_ADDR": "127.0.0.1", "HTTP_X_FORWARDED_PROTO": proto, "RAW_URI": target}
        assert Client(server.app).get(target, environ_overrides=environ).status_code == status


def test_a_request_of_the_proxy_itself_has_its_address() -> None:
    environ: dict[str, Any] = {"REMOTE_ADDR": "10.1.2.3"}
    PROXIES.apply(environ)
    assert environ == {"REMOTE_ADDR": "10.1.2.3"}


@pytest.mark.parametrize("proxies", [PROXIES, TrustedProxies([])])
@pytest.mark.parametrize("peer", ["127.0.0.1", "192.0.2.9", "2001:db8::2", "", "no address"])
def test_nothing_that_another_peer_says_of_a_request_is_left(peer: str, proxies: TrustedProxies) -> None:
    environ: dict[str, Any] = {"REMOTE_ADDR": peer, **HEADERS}
    proxies.apply(environ)
    assert environ == {"REMOTE_ADDR": peer}
