"""What proxies say of a request: believed of the configured, and gone otherwise."""

from ipaddress import ip_network
from typing import Any

import pytest

from legacy_queue.http.forwarded import TrustedProxies

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
    assert environ == {**HEADERS, "REMOTE_ADDR": "192.0.2.2"}


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
