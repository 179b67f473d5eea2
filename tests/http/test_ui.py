"""The web pages: who can see them, what they can load, what they show, and what their forms do."""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import click
import pytest
from lxml import html
from werkzeug.test import Client as Browser
from werkzeug.test import TestResponse

from legacy_queue.cli.commands import commands
from legacy_queue.domain.authentication import Client
from legacy_queue.domain.hawk import SignedRequest, sign_bewit
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from legacy_queue.domain.worker_record import WorkerPath
from legacy_queue.http.endpoints.inspect import SCOPE
from tests.http.calls import (
    NOW,
    POOL,
    POOL_NAME,
    PROVISIONER,
    ROOT,
    ROOT_URL,
    TESTED,
    WORKER,
    Credentials,
    Queue,
    holding,
    page_paths,
    refused,
    succeeded,
    temporary,
)
from tests.memory_server import FakeClock, memory_storage
from tests.services.fake_ports import intercept_storage

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def opened(queue: Queue, target: str = "/", form: Any = None, **headers: str) -> TestResponse:
    path, _, query = target.partition("?")
    return Browser(queue.server.app, use_cookies=False).open(
        path,
        method="GET" if form is None else "POST",
        data=form,
        buffered=True,
        base_url=ROOT_URL,
        query_string=query,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        environ_overrides={"RAW_URI": target, "REMOTE_ADDR": "127.0.0.1"},
    )


def link(queue: Queue, life: timedelta = 5 * MINUTE, credentials: Credentials = ROOT) -> str:
    """A link like the one that ``legacy-queue open`` prints."""
    url = urlsplit(ROOT_URL)
    request = SignedRequest("GET", "/", url.hostname or "", url.port or 80)
    own, end = credentials, queue.clock.now() + life
    certificate = json.dumps({"certificate": json.loads(own.certificate)}) if own.certificate else ""
    ext = base64.b64encode(certificate.encode()).decode()
    return f"/?bewit={sign_bewit(request, own.client_id, own.access_token, end, ext)}"


def signed_in(queue: Queue, credentials: Credentials = ROOT) -> str:
    """The cookie of a browser that opened the link."""
    return opened(queue, link(queue, credentials=credentials)).headers["set-cookie"].partition(";")[0]


def shown(queue: Queue, target: str = "/", credentials: Credentials = ROOT) -> TestResponse:
    return opened(queue, target, Cookie=signed_in(queue, credentials))


def tree_of(answer: TestResponse) -> Any:
    return html.fromstring(answer.get_data(as_text=True))


def rows(answer: TestResponse) -> list[str]:
    """The text of each row of the page's first table."""
    found = tree_of(answer).xpath("(//table)[1]/tbody/tr")
    return [" ".join(" ".join(row.itertext()).split()) for row in found]


# --- who can see a page


def test_a_link_signs_the_browser_in_for_12_hours(queue: Queue) -> None:
    signed_out = opened(queue)
    assert (signed_out.status_code, "legacy-queue open" in signed_out.text) == (403, True)
    assert opened(Queue(development_client="root"), Sec_Fetch_Site="none").status_code == 403
    late = opened(queue, link(queue, -5 * MINUTE))
    assert (late.status_code, "set-cookie" in late.headers) == (401, False)
    answer = opened(queue, link(queue))
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
    assert ROOT.access_token not in cookie
    value = cookie.partition(";")[0]
    page = opened(queue, Cookie=value)
    assert (page.status_code, page.mimetype) == (200, "text/html")
    assert opened(queue, Cookie=value[:-2] + "xx").status_code == 403
    elsewhere = queue.send("GET", "/inspect/v1/pools", credentials=None, headers={"Cookie": value})
    refused(elsewhere, 403, "InsufficientScopes")
    queue.clock.advance(12 * HOUR)
    assert opened(queue, Cookie=value).status_code == 403


@pytest.mark.parametrize("name", [None, "a-name"])
def test_a_cookie_expires_with_its_temporary_credentials_and_does_not_renew_itself(
    queue: Queue, name: str | None
) -> None:
    cookie = signed_in(queue, temporary(ROOT, ["*"], name))
    queue.clock.advance(HOUR - timedelta(seconds=1))
    for target in ("/?q=bewit=", "/?bewit=", "/"):
        answer = opened(queue, target, Cookie=cookie)
        cookie = answer.headers.get("set-cookie", cookie).partition(";")[0]
    assert answer.status_code == 200
    queue.clock.advance(timedelta(seconds=1))
    assert opened(queue, Cookie=cookie).status_code == 403


VIEWER = Client(TESTED.client_id, TESTED.access_token, (SCOPE,))


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
def test_a_cookie_is_invalid_when_its_client_is_removed_or_changed(later: list[Client]) -> None:
    cookie = signed_in(Queue(VIEWER), TESTED)
    assert opened(Queue(VIEWER), Cookie=cookie).status_code == 200
    assert opened(Queue(*later), Cookie=cookie).status_code == 403


def test_a_client_whose_scopes_do_not_fit_into_a_cookie_can_only_look() -> None:
    queue = holding("queue:*", *(f"other:{slugid()}{slugid()}" for _ in range(200)))
    page = shown(queue, f"/ui/tasks/{queue.create()}", TESTED)
    assert (page.status_code, "<button name" in page.text) == (200, False)


def test_a_request_from_another_origin_is_refused(queue: Queue) -> None:
    cookie = signed_in(queue)
    assert opened(queue, Cookie=cookie).status_code == 200
    for site in ("cross-site", "same-site"):
        assert opened(queue, Cookie=cookie, Sec_Fetch_Site=site).status_code == 403
    assert opened(queue, Cookie=cookie, Origin="http://evil.test").status_code == 403


# --- what holds for every page


@pytest.mark.parametrize("control", [False, True])
def test_a_page_can_load_nothing_from_elsewhere_and_cannot_be_framed(control: bool) -> None:
    queue = Queue(control=control)
    for page in page_paths(queue.running()):
        answer = shown(queue, page)
        assert (answer.status_code, answer.mimetype) == (200, "text/html"), page
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        text = answer.get_data(as_text=True)
        sources = re.findall(r'(?:src|href|action)="([^"]+)"', text)
        assert all(source.startswith(("/", "#")) for source in sources), page
        assert not re.search(r"<script>|<style|\son\w+=|\sstyle=", text), page
        for source in sources[:2]:
            with opened(queue, source) as file:
                assert (file.status_code, bool(file.data)) == (200, True)
        part = shown(queue, f"{page}?part=live").get_data(as_text=True).strip()
        assert '<nav aria-label="pages"' not in part, "the parts of the page that stay are not sent again"
        assert part in text


def test_the_pages_show_only_commands_that_exist() -> None:
    queue = Queue(control=True)
    task_id = queue.running()
    queue.create(taskGroupId=task_id)
    trees = [tree_of(shown(queue, page)) for page in page_paths(task_id)]
    found = {
        code.text_content()
        for tree in trees
        for code in tree.xpath("//code[starts-with(., 'legacy-queue ')]")
    }
    assert len(found) > 8
    for line in found:
        _, name, *words = line.split()
        context = click.Context(commands, info_name="legacy-queue")
        command = commands.get_command(context, name)
        assert command, line
        command.make_context(name, words)


def test_text_by_the_author_of_a_task_is_never_html() -> None:
    queue = Queue(control=True)
    name = "<script>alert(1)</script>\"'&"
    metadata = {"name": name, "description": name, "owner": "a@b.test", "source": "https://a.test"}
    task_id = queue.create(metadata=metadata, payload={"text": name})
    texts = [shown(queue, page).text for page in [*page_paths(task_id), f"/ui/tasks?q={quote(name)}"]]
    assert not any("<script>alert" in text for text in texts)
    # on these pages: pool, tasks (twice), task, group
    assert sum("&lt;script&gt;alert(1)" in text for text in texts) == 5


def test_a_wrong_address_leads_to_a_page_that_says_so(queue: Queue) -> None:
    for target, status in (("/ui/tasks/foo", 400), ("/ui/nothing", 404), ("/?sort=color", 400)):
        answer = shown(queue, target)
        assert (answer.status_code, answer.mimetype) == (status, "text/html")
        assert tree_of(answer).xpath("//main//form[@role='search']")


# --- what the pages show


def test_the_pages_of_pools_and_tasks_have_at_most_60_kb_and_do_not_read_all_tasks() -> None:
    calls: list[str] = []

    def noted(name: str, call: Callable[[], Any]) -> Any:
        calls.append(name)
        return call()

    clock = FakeClock(NOW)
    queue = Queue(clock=clock, storage=intercept_storage(memory_storage(clock), noted))
    for number in range(80):
        pool = {"provisionerId": f"{number:0>38}", "workerType": f"{number:a>38}"}
        queue.create(**pool)
        path = WorkerPath(pool["provisionerId"], pool["workerType"], f"{number:b>38}", f"{number:c>38}")
        with queue.server.services.workers.call(path, ("claimWork", ())):
            pass
    shown(queue)  # this reads the counts, like a page that is refreshed
    calls.clear()
    first = shown(queue)
    assert not [name for name in calls if "task" in name]
    newest = shown(queue, "/ui/tasks")
    shares = [rows(first), rows(shown(queue, "/?after=50"))]
    assert [len(share) for share in shares] == [50, 30]
    assert len({row.split()[0] for share in shares for row in share}) == 80
    assert (len(rows(newest)), len(newest.data) <= 60_000, len(first.data) <= 60_000) == (50, True, True)
    page = tree_of(newest).xpath("//a[@rel='next']/@href")[0]
    assert len(rows(shown(queue, page))) == 30
    assert shown(queue, f"{page}&state=pending").status_code == 400, (
        "a continuationToken is valid for one search"
    )


def test_the_overview_links_to_what_needs_attention() -> None:
    queue = Queue(control=True, claim_work_wait=timedelta(0))
    queue.create(workerType="builder")
    succeeded(queue.call("claimWork", WORKER, **POOL | {"workerType": "bulider"}))
    busy = queue.running()
    until = {"quarantineUntil": format_time(NOW + HOUR)}
    succeeded(queue.call("quarantineWorker", until, **POOL, **WORKER))
    refused(queue.claim(busy, workerId="bob"), 409, "RequestConflict")
    queue.create()
    queue.clock.advance(10 * MINUTE)
    looks = tree_of(shown(queue)).xpath("//section[@aria-labelledby='first-head']//li")
    assert f"{PROVISIONER}/bulider" in looks[0].text_content(), "the pool whose name is misspelled is shown"
    assert [look.xpath(".//a/@href") for look in looks] == [
        [f"/ui/pools/{PROVISIONER}/builder"],
        [f"/ui/pools/{POOL_NAME}"],
        ["/ui/workers?workerState=quarantined"],
        ["/ui/requests?endpoint=claimTask&failed=true"],
    ]


def test_the_overview_links_to_an_expired_claim_and_to_a_stopped_group() -> None:
    queue = Queue(control=True)
    lost = queue.running(retries=0)
    failed, group_id = queue.running(), slugid()
    queue.create(dependencies=[failed], taskGroupId=group_id)
    succeeded(queue.call("cancelTask", taskId=queue.create(taskGroupId=group_id)))
    succeeded(queue.call("reportFailed", taskId=failed, runId=0))
    succeeded(queue.send("POST", "/control/v1/clock", b'{"advance": "30m"}'))
    page = tree_of(shown(queue))
    links = page.xpath("//section[@aria-labelledby='first-head']//li//a/@href")
    assert links[:2] == [f"/ui/tasks/{lost}", f"/ui/groups/{group_id}"]
    counts = [tile.text for tile in page.xpath("//*[@class='tiles']/a/b")]
    assert counts == ["0", "0", "0", "1", "2"], "pending, running, completed, failed, exception"


def test_no_group_is_called_stopped_while_the_group_of_an_open_task_is_unknown() -> None:
    clock, group_id = FakeClock(NOW), slugid()
    storage = memory_storage(clock)
    restarted = Queue(clock=clock, storage=storage)
    pending = Queue(clock=clock, storage=storage).create(taskGroupId=group_id)
    failed = restarted.running(taskGroupId=group_id)
    restarted.create(taskGroupId=group_id, dependencies=[failed])
    succeeded(restarted.call("reportFailed", taskId=failed, runId=0))

    def cards() -> int:
        return len(tree_of(shown(restarted)).xpath(f"//li/a[@href='/ui/groups/{group_id}']"))

    assert cards() == 0
    succeeded(restarted.call("cancelTask", taskId=pending))
    assert cards() == 1


def test_an_expired_claim_is_less_grave_once_its_worker_or_its_client_has_asked_again() -> None:
    queue = Queue(control=True)
    lost = queue.running(retries=0)
    succeeded(queue.claim(queue.create(retries=0), workerId="bob"))
    succeeded(queue.send("POST", "/control/v1/clock", b'{"advance": "21m"}'))

    def gravity() -> str:
        (card,) = tree_of(shown(queue)).xpath(f"//li/a[contains(@href, '{lost}')]")
        return str(card.get("class")).split()[1]

    assert gravity() == "bad"
    queue.poll(queue.poll_urls()[0]["signedPollUrl"])  # by the client that claimed for both workers
    assert gravity() == "warn"


def test_filters_of_tasks_say_how_many_are_pending_and_running_without_a_read() -> None:
    calls: list[str] = []

    def noted(name: str, call: Callable[[], Any]) -> Any:
        calls.append(name)
        return call()

    clock = FakeClock(NOW)
    queue = Queue(clock=clock, storage=intercept_storage(memory_storage(clock), noted))
    queue.running()
    for name in ("linux", "windows"):
        queue.create(workerType=name)
    shown(queue)
    clock.advance(HOUR)
    calls.clear()
    page = tree_of(shown(queue, "/ui/tasks?state=pending"))
    assert calls == ["search"]
    found = {tuple(link.text_content().split()) for link in page.xpath("//nav[@class='filters']/a[b]")}
    pools = {(f"{PROVISIONER}/linux", "1"), (f"{PROVISIONER}/windows", "1")}
    assert found == {("pending", "2"), ("running", "1"), *pools}


def test_pools_and_workers_are_found_by_words_and_pools_ordered_by_a_column(queue: Queue) -> None:
    for name, count in (("linux-a", 1), ("linux-b", 3), ("windows", 2)):
        for _ in range(count):
            queue.create(workerType=name)
    order = [row.split()[0].partition("/")[2] for row in rows(shown(queue, "/?q=linux&sort=pending"))]
    assert order == ["linux-b", "linux-a"]
    queue.running()
    assert len(rows(shown(queue, "/ui/workers?q=ali+group"))) == 1


def test_workers_are_selected_by_state_and_a_busy_one_shows_the_name_of_its_task() -> None:
    queue = Queue(claim_work_wait=timedelta(0))
    succeeded(queue.call("claimWork", {**WORKER, "workerId": "bob"}, **POOL))
    name = {**queue.task_body()["metadata"], "name": "its-name"}
    queue.running(metadata=name)
    for state, expected in (("busy", ["group/alice"]), ("idle", ["group/bob"]), ("silent", [])):
        found = rows(shown(queue, f"/ui/workers?workerState={state}"))
        assert [row.split()[0] for row in found] == expected
    assert "its-name" in rows(shown(queue, "/ui/workers?workerState=busy"))[0]


def test_requests_are_selected_by_result_endpoint_pool_and_caller() -> None:
    queue = Queue(control=True)
    task_id = queue.running()
    refused(queue.claim(task_id, workerId="bob"), 409, "RequestConflict")
    for query, count in (
        ("", 3),
        ("failed=true", 1),
        ("endpoint=claimTask", 2),
        ("endpoint=claimTask&failed=false", 1),
        ("caller=group/alice", 1),
        ("caller=nobody", 0),
        (f"taskId={task_id}", 3),
    ):
        page = shown(queue, f"/ui/requests?{query}")
        assert len(rows(page)) == count, query
        for link in tree_of(page).xpath("//nav[@class='filters']/a"):
            wanted = int(link.xpath("b")[0].text)
            assert len(rows(shown(queue, link.get("href")))) == wanted, link.get("href")


def test_searching_for_an_id_or_a_name_leads_to_its_page(queue: Queue) -> None:
    task_id, group_id = queue.running(), slugid()
    members = [queue.create(taskGroupId=group_id) for _ in range(2)]
    succeeded(queue.call("cancelTask", taskId=members[0]))
    for word, place in (
        (task_id, f"/ui/tasks/{task_id}"),
        (group_id, f"/ui/groups/{group_id}"),
        (POOL_NAME, f"/ui/pools/{POOL_NAME}"),
        ("alice", "/ui/workers?q=alice"),
    ):
        answer = shown(queue, f"/ui/tasks?q={quote(word, safe='')}")
        assert (answer.status_code, answer.headers["location"]) == (303, place)
    for query, count in (
        ("q=a+NAME", 3),
        (f"q={slugid()}", 0),
        (f"group={group_id}&state=exception", 1),
        (f"group={group_id}&state=unresolved&q=a+name", 1),
    ):
        assert len(rows(shown(queue, f"/ui/tasks?{query}"))) == count, query


def test_the_page_of_a_task_links_to_its_dependents_its_group_and_its_artifacts(queue: Queue) -> None:
    first = queue.running()
    second = queue.create(dependencies=[first], taskGroupId=first)
    names = [*(f"public/a{number:03}" for number in range(101)), "public/logs/live.log", "public/../x.log"]
    for name in names:
        succeeded(queue.artifact(first, name, "reference"))
    page = tree_of(shown(queue, f"/ui/tasks/{first}"))
    links = page.xpath("//a/@href")
    assert f"/ui/tasks/{second}" in links
    listed = [link for link in links if "/artifacts/public%2Fa" in link]
    assert len(listed) == 99, "the page lists only 100 artifacts"
    assert not [link for link in links if "/.." in link]
    log = f"/api/queue/v1/task/{first}/runs/0/artifacts/public%2Flogs%2Flive.log"
    assert page.xpath("//*[@id='log-link']/@href") == [log]
    drawn = tree_of(shown(queue, f"/ui/groups/{first}")).xpath("//tr[td/*[name()='svg']]/td[2]/a/@href")
    assert drawn == [f"/ui/tasks/{first}", f"/ui/tasks/{second}"]


# --- what the forms of a task's page do


def form_of(queue: Queue, task_id: str, action: str, credentials: Credentials = ROOT) -> Any:
    """The fields of the first form with this action, as a browser sends them.

    None if there is no such form.
    """
    page = tree_of(shown(queue, f"/ui/tasks/{task_id}", credentials))
    for form in page.xpath(f"//form[@method='post'][button/@value='{action}']"):
        return {**dict(form.form_values()), "action": action}
    return None


def act(queue: Queue, task_id: str, form: dict[str, str], credentials: Credentials = ROOT) -> TestResponse:
    cookie = signed_in(queue, credentials)
    headers = {"Sec_Fetch_Site": "same-origin", "Origin": ROOT_URL}
    return opened(queue, f"/ui/tasks/{task_id}", form, Cookie=cookie, **headers)


def test_a_form_makes_the_api_call_with_its_name() -> None:
    queue = Queue(control=True)
    task_id = queue.define()
    for action, expected in (("schedule", "pending"), ("cancel", "exception"), ("rerun", "pending")):
        answer = act(queue, task_id, form_of(queue, task_id, action))
        assert (answer.status_code, answer.headers["location"]) == (303, f"/ui/tasks/{task_id}")
        assert queue.state(task_id) == expected
        assert form_of(queue, task_id, action) is None
    form = form_of(queue, task_id, "priority")
    assert act(queue, task_id, {**form, "newPriority": "high"}).status_code == 303
    assert queue.definition(task_id)["priority"] == "high"
    succeeded(queue.claim(task_id, 1))
    # moves the clock to the end of the claim
    assert act(queue, task_id, form_of(queue, task_id, "clock")).status_code == 303
    assert [reason for _, reason in queue.runs(task_id)] == ["canceled", "claim-expired", None]
    journal = queue.send("GET", f"/control/v1/requests?taskId={task_id}").get_json()["requests"]
    acts = [request["endpoint"] for request in journal if request["status"] == 303]
    assert acts == ["scheduleTask", "cancelTask", "rerunTask", "changeTaskPriority"]


def test_a_form_needs_the_token_of_its_session(queue: Queue) -> None:
    task_id = queue.create()
    form = form_of(queue, task_id, "cancel")
    for wrong in ({**form, "token": "x" * 64}, {**form, "token": "ü"}):
        assert act(queue, task_id, wrong).status_code == 403
    target, cookie = f"/ui/tasks/{task_id}", signed_in(queue)
    assert opened(queue, target, form, Sec_Fetch_Site="cross-site", Cookie=cookie).status_code == 403
    queue.clock.advance(timedelta(days=2))
    late = act(queue, task_id, form_of(queue, task_id, "cancel"))
    assert (late.status_code, late.mimetype) == (409, "text/html")
    for action in ("delete", "priority", "clock"):
        assert act(queue, task_id, {"token": form["token"], "action": action}).status_code == 400
    assert queue.state(task_id) == "pending"


def test_a_form_needs_the_scopes_of_the_call() -> None:
    queue = holding(SCOPE, "queue:lower-task-priority:*", control=True)
    task_id = queue.create(priority="high")
    assert form_of(queue, task_id, "cancel", TESTED) is None
    assert form_of(queue, task_id, "clock", TESTED) is None
    form = form_of(queue, task_id, "priority", TESTED)
    for changes, status in (
        ({"action": "cancel"}, 403),
        ({"newPriority": "highest"}, 403),
        ({"newPriority": "low"}, 303),
    ):
        assert act(queue, task_id, {**form, **changes}, TESTED).status_code == status
    assert queue.state(task_id) == "pending"
