"""The page for eyes: who may see it, and what it may load."""

import base64
import json
import re
from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from werkzeug.test import Client as Browser
from werkzeug.test import TestResponse

from legacy_queue.domain.authentication import Client, create_temporary_credentials
from legacy_queue.domain.hawk import SignedRequest, sign_bewit
from legacy_queue.http.endpoints.inspect import SCOPE
from tests.http.calls import NOW, ROOT, ROOT_URL, Credentials, Queue, refused


def opened(queue: Queue, target: str = "/", **headers: str) -> TestResponse:
    path, _, query = target.partition("?")
    return Browser(queue.server.app, use_cookies=False).open(
        path,
        base_url=ROOT_URL,
        query_string=query,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        environ_overrides={"RAW_URI": target, "REMOTE_ADDR": "127.0.0.1"},
    )


def link(queue: Queue, life: timedelta = timedelta(minutes=5), credentials: Credentials = ROOT) -> str:
    """As ``legacy-queue open`` prints it."""
    url = urlsplit(ROOT_URL)
    request = SignedRequest("GET", "/", url.hostname or "", url.port or 80)
    own, end = credentials, queue.clock.now() + life
    certificate = json.dumps({"certificate": json.loads(own.certificate)}) if own.certificate else ""
    ext = base64.b64encode(certificate.encode()).decode()
    return f"/?bewit={sign_bewit(request, own.client_id, own.access_token, end, ext)}"


def signed_in(queue: Queue, credentials: Credentials = ROOT) -> str:
    """The cookie of a browser that has opened the link."""
    return opened(queue, link(queue, credentials=credentials)).headers["set-cookie"].partition(";")[0]


def shown(queue: Queue, target: str = "/") -> TestResponse:
    return opened(queue, target, Cookie=signed_in(queue))


def test_a_link_signs_the_browser_in_for_a_while() -> None:
    queue = Queue()
    assert opened(queue).status_code == 403
    answer = opened(queue, link(queue))
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
    assert ROOT.access_token not in cookie
    value = cookie.partition(";")[0]
    page = opened(queue, Cookie=value)
    assert (page.status_code, page.mimetype) == (200, "text/html")
    assert opened(queue, Cookie=value[:-2] + "xx").status_code == 403
    queue.clock.advance(timedelta(hours=12))
    assert opened(queue, Cookie=value).status_code == 403


def test_an_expired_link_signs_nobody_in() -> None:
    queue = Queue()
    answer = opened(queue, link(queue, timedelta(minutes=-5)))
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


def test_the_cookie_is_good_for_the_page_alone() -> None:
    queue = Queue()
    cookie = signed_in(queue)
    answer = queue.send("GET", "/inspect/v1/pools", credentials=None, headers={"Cookie": cookie})
    refused(answer, 403, "InsufficientScopes")


def test_being_on_this_machine_signs_nobody_in() -> None:
    queue = Queue(development_client="root")
    assert opened(queue).status_code == 403
    assert opened(queue, Sec_Fetch_Site="none").status_code == 403


def test_the_cookie_ends_with_temporary_credentials() -> None:
    queue = Queue()
    now = queue.clock.now()
    hour = timedelta(hours=1)
    issuer = Client(ROOT.client_id, ROOT.access_token, ("*",))
    lent = create_temporary_credentials(issuer, None, [SCOPE], now, now + hour, "s" * 44)
    cookie = signed_in(queue, Credentials(lent.client_id, lent.access_token, lent.certificate))
    queue.clock.advance(hour - timedelta(seconds=1))
    assert opened(queue, Cookie=cookie).status_code == 200
    queue.clock.advance(timedelta(seconds=1))
    assert opened(queue, Cookie=cookie).status_code == 403


VIEWER = Client("viewer", "the-access-token-of-the-viewer", (SCOPE,))


@pytest.mark.parametrize(
    "later",
    [
        [],
        [replace(VIEWER, access_token="another-access-token")],
        [replace(VIEWER, scopes=("queue:ping",))],
        [replace(VIEWER, expires=NOW)],
    ],
    ids=["removed", "another token", "without the scope", "expired"],
)
def test_the_cookie_ends_with_its_client(later: list[Client]) -> None:
    cookie = signed_in(Queue(VIEWER), Credentials(VIEWER.client_id, VIEWER.access_token))
    assert opened(Queue(VIEWER), Cookie=cookie).status_code == 200
    assert opened(Queue(*later), Cookie=cookie).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [{"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"}, {"Origin": "http://evil.test"}],
)
def test_no_request_of_another_origin_reaches_it(headers: dict[str, str]) -> None:
    queue = Queue()
    cookie = signed_in(queue)
    answer = opened(queue, "/", Cookie=cookie, **headers)
    assert answer.status_code == 403
    assert "legacy-queue open" in answer.get_data(as_text=True)


def test_it_may_load_nothing_from_elsewhere_and_be_in_no_frame() -> None:
    queue = Queue()
    answer = shown(queue)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    text = answer.get_data(as_text=True)
    sources = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert all(source.startswith("/") for source in sources)
    assert not re.search(r"<script>|<style|\son\w+=", text)
    for source in sources[:2]:
        with opened(queue, source) as file:
            assert (file.status_code, bool(file.data)) == (200, True)


def test_what_the_author_of_a_task_wrote_is_no_html() -> None:
    queue = Queue(control=True)
    name = "<script>alert(1)</script>\"'&"
    metadata = {"name": name, "description": "", "owner": "a@b.test", "source": "https://a.test"}
    queue.create(metadata=metadata)
    text = shown(queue).get_data(as_text=True)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;&amp;" in text
