"""The page for eyes: who may see it, and what it may do."""

import re
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from werkzeug.test import Client as Browser
from werkzeug.test import TestResponse

from legacy_queue.domain.hawk import SignedRequest, sign_bewit
from tests.http.calls import ROOT, ROOT_URL, Queue, refused

LOCAL = "127.0.0.1"
ELSEWHERE = "192.0.2.1"


def opened(queue: Queue, target: str = "/", address: str = LOCAL, **headers: str) -> TestResponse:
    path, _, query = target.partition("?")
    return Browser(queue.server.app, use_cookies=False).open(
        path,
        base_url=ROOT_URL,
        query_string=query,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        environ_overrides={"RAW_URI": target, "REMOTE_ADDR": address},
    )


def link(queue: Queue, life: timedelta = timedelta(minutes=5)) -> str:
    """As ``legacy-queue open`` prints it."""
    url = urlsplit(ROOT_URL)
    request = SignedRequest("GET", "/", url.hostname or "", url.port or 80)
    end = queue.clock.now() + life
    return f"/?bewit={sign_bewit(request, ROOT.client_id, ROOT.access_token, end)}"


def test_a_link_signs_the_browser_in_for_a_while() -> None:
    queue = Queue()
    assert opened(queue).status_code == 403
    answer = opened(queue, link(queue))
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
    assert ROOT.access_token not in cookie
    value = cookie.partition(";")[0]
    shown = opened(queue, "/", ELSEWHERE, Cookie=value)
    assert (shown.status_code, shown.mimetype) == (200, "text/html")
    assert opened(queue, "/", ELSEWHERE, Cookie=value[:-2] + "xx").status_code == 403
    queue.clock.advance(timedelta(hours=13))
    assert opened(queue, "/", ELSEWHERE, Cookie=value).status_code == 403


def test_an_expired_link_signs_nobody_in() -> None:
    queue = Queue()
    answer = opened(queue, link(queue, timedelta(minutes=-5)))
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


def test_the_cookie_is_good_for_the_page_alone() -> None:
    queue = Queue()
    cookie = opened(queue, link(queue)).headers["set-cookie"].partition(";")[0]
    answer = queue.send("GET", "/inspect/v1/pools", credentials=None, headers={"Cookie": cookie})
    refused(answer, 403, "InsufficientScopes")


def test_a_development_client_signs_in_who_is_on_this_machine() -> None:
    queue = Queue(development_client="root")
    assert opened(queue).status_code == 200
    assert opened(queue, Sec_Fetch_Site="none").status_code == 200
    assert opened(queue, Sec_Fetch_Site="same-origin").status_code == 200
    assert opened(queue, "/", ELSEWHERE).status_code == 403
    assert opened(queue, X_Forwarded_For="192.0.2.1").status_code == 403


@pytest.mark.parametrize(
    "headers",
    [{"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"}, {"Origin": "http://evil.test"}],
)
def test_no_request_of_another_origin_reaches_it(headers: dict[str, str]) -> None:
    queue = Queue(development_client="root")
    cookie = opened(queue, link(queue)).headers["set-cookie"].partition(";")[0]
    answer = opened(queue, "/", Cookie=cookie, **headers)
    assert answer.status_code == 403
    assert "legacy-queue open" in answer.get_data(as_text=True)


def test_it_may_load_nothing_from_elsewhere_and_be_in_no_frame() -> None:
    queue = Queue(development_client="root")
    answer = opened(queue)
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
    queue = Queue(development_client="root", control=True)
    name = "<script>alert(1)</script>\"'&"
    metadata = {"name": name, "description": "", "owner": "a@b.test", "source": "https://a.test"}
    queue.create(metadata=metadata)
    text = opened(queue).get_data(as_text=True)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;&amp;" in text


def test_tasks_come_in_pages_and_by_state_and_pool() -> None:
    queue = Queue(development_client="root")
    tasks = sorted(queue.create() for _ in range(60))
    other = queue.create(workerType="another")
    first = opened(queue, "/?taskQueueId=provisioner%2Fworker-Type_1").get_data(as_text=True)
    listed = re.findall(r'href="/\?taskId=([^"]+)"', first)
    behind = re.findall(r'href="(/\?behind=[^"]+)"', first)[0].replace("&amp;", "&")
    listed += re.findall(r'href="/\?taskId=([^"]+)"', opened(queue, behind).get_data(as_text=True))
    assert listed == sorted(tasks, key=str.encode)
    assert other in opened(queue, "/?taskQueueId=provisioner%2Fanother").get_data(as_text=True)
    assert "taskId=" not in opened(queue, "/?state=completed").get_data(as_text=True)


def test_a_task_has_its_story_and_refusals_are_listed() -> None:
    queue = Queue(development_client="root", control=True)
    task_id = queue.running()
    refused(queue.claim(task_id, workerId="another"), 409, "RequestConflict")
    text = opened(queue, f"/?taskId={task_id}").get_data(as_text=True)
    assert "has claimed run 0 for 20m more" in text
    assert text.count("claimTask of run 0 by group/another: 409 RequestConflict") == 2
