"""Hawk over HTTP. mohawk signs the headers. tests/domain shows the rules themselves."""

import json
from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import pytest
from werkzeug.test import Client

from legacy_queue.domain.hawk import SignedRequest, sign_bewit
from legacy_queue.http.client_connection import TrustedProxies
from legacy_queue.wiring import build
from tests.http.calls import NOW, ROOT, ROOT_URL, TASK_ID, Queue, hawk, refused, succeeded, task_body

PROXIED = {"x-forwarded-host": "tc.example.com", "x-forwarded-port": "8443", "x-forwarded-proto": "https"}

POLLING = "/v1/poll-task-url/p/w"  # an endpoint that needs scopes


def bewit(target: str) -> str:
    """A bewit signed like a client's. tests/domain/test_hawk.py compares it with mohawk's."""
    request = SignedRequest("GET", target, "queue.test", 80)
    return sign_bewit(request, ROOT.client_id, ROOT.access_token, NOW + timedelta(minutes=5))


BODY = json.dumps(task_body()).encode()


def test_a_request_whose_payload_hash_does_not_match_is_answered_with_401(queue: Queue) -> None:
    """The original queue answered 500. tests/domain/test_hawk.py shows which content types match."""
    target = f"/v1/task/{TASK_ID}"
    for hashed, status in ((BODY + b" ", 401), (BODY, 200)):
        header = hawk(ROOT, "PUT", ROOT_URL + target, NOW, hashed, "application/json")
        answer = queue.send("PUT", target, BODY, headers={"Authorization": header})
        assert answer.status_code == status
        assert queue.call("task", taskId=TASK_ID).status_code == (200 if status == 200 else 404)


def test_a_bewit_is_valid_only_for_the_get_request_that_it_was_made_for(queue: Queue) -> None:
    good = bewit("/v1/poll-task-url/p/w")
    refusals = [
        queue.send("GET", f"/v1/poll-task-url/p/x?bewit={good}", credentials=None),
        queue.send("GET", f"/v1/poll-task-url/p/w?bewit={good}"),  # together with a header
        queue.send("GET", f"/api/queue/v1/poll-task-url/p/w?bewit={good}", credentials=None),
    ]
    for answer in refusals:
        refused(answer, 401, "AuthenticationFailed")
        assert good not in answer.get_data(as_text=True)
    succeeded(queue.send("GET", f"/v1/poll-task-url/p/w?bewit={good}", credentials=None))


@pytest.mark.parametrize(
    ("headers", "signed"),
    [
        (PROXIED, "https://tc.example.com:8443"),
        ({**PROXIED, "x-forwarded-port": "443"}, "https://tc.example.com"),
        ({"x-forwarded-host": "tc.example.com", "x-forwarded-proto": "https"}, "https://tc.example.com"),
        ({"x-forwarded-host": "tc.example.com:81", "x-forwarded-proto": "https"}, "https://tc.example.com:81"),
        ({"x-forwarded-host": "TC.example.com"}, "http://tc.example.com"),
        ({"x-forwarded-proto": "https"}, "https://queue.test"),
        ({"x-forwarded-proto": "ftp"}, ROOT_URL),
        ({"x-forwarded-port": "99"}, "http://queue.test:99"),
        ({"x-forwarded-host": "tc.example.com, inner.example.com"}, "http://tc.example.com"),
        ({"x-forwarded-proto": "https, http", "x-forwarded-host": "tc.example.com"}, "https://tc.example.com"),
        ({}, ROOT_URL),
    ],
    ids=str,
)  # fmt: skip
def test_the_host_and_port_that_a_client_signed_are_taken_from_the_headers_of_a_trusted_proxy(
    headers: dict[str, str], signed: str
) -> None:
    queue = Queue(trusted_proxy=(ip_network("127.0.0.0/8"),))
    succeeded(queue.send("GET", POLLING, headers=headers, signed_url=signed + POLLING))
    if signed != ROOT_URL:
        refused(queue.send("GET", POLLING, headers=headers), 401, "AuthenticationFailed")


def test_an_invalid_port_is_refused() -> None:
    proxied = Queue(trusted_proxy=(ip_network("127.0.0.1"),), allowed_hosts=("*",))
    for queue, header, ports in (
        (Queue(allowed_hosts=("*",)), "HOST", ["", "x", "-1", "8o", "9" * 5000, "\u0661", "80 80", "8,0"]),
        (proxied, "X_FORWARDED_PORT", ["x", "\u0661"]),
        (proxied, "X_FORWARDED_HOST", ["x", "\u0661"]),
    ):
        for port in ports:
            value = port if header == "X_FORWARDED_PORT" else f"queue.test:{port}"
            environ = {"REMOTE_ADDR": "127.0.0.1", f"HTTP_{header}": value.encode().decode("latin-1")}
            answer = queue.http.get(POLLING, base_url=ROOT_URL, environ_overrides=environ)
            assert answer.status_code in (401, 403), (header, port)


# --- the headers of proxies: trusted if the proxy is configured, otherwise removed

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
def test_the_address_of_a_client_is_taken_from_the_headers_of_a_trusted_proxy(peer: str) -> None:
    environ: dict[str, Any] = {"REMOTE_ADDR": peer, **HEADERS}
    PROXIES.apply(environ)
    assert environ == {**HEADERS, "REMOTE_ADDR": "192.0.2.2", "wsgi.url_scheme": "https"}


def test_a_signed_https_url_works_behind_a_proxy() -> None:
    queue = Queue(trusted_proxy=(ip_network("127.0.0.1"),))
    server = build(queue.settings, "https://queue.test", queue.clock)
    urls = server.services.polling.poll_urls("p", "w", "a-client")["queues"][0]
    target = urls["signedPollUrl"].removeprefix("https://queue.test")
    for proto, status in (("https", 200), ("http", 403)):
        environ = {"REMOTE_ADDR": "127.0.0.1", "HTTP_X_FORWARDED_PROTO": proto, "RAW_URI": target}
        assert Client(server.app).get(target, environ_overrides=environ).status_code == status


@pytest.mark.parametrize("proxies", [PROXIES, TrustedProxies([])])
@pytest.mark.parametrize("peer", ["127.0.0.1", "192.0.2.9", "2001:db8::2", "", "no address"])
def test_proxy_headers_from_any_other_address_are_removed(peer: str, proxies: TrustedProxies) -> None:
    environ: dict[str, Any] = {"REMOTE_ADDR": peer, **HEADERS}
    proxies.apply(environ)
    assert environ == {"REMOTE_ADDR": peer}
