"""The pages for a browser: who may see them, what they may load, what they show, and what their forms do."""

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import click
import pytest
from itsdangerous import URLSafeSerializer
from lxml import html
from werkzeug.test import Client as Browser
from werkzeug.test import TestResponse

from legacy_queue.adapters.embedded import EmbeddedAccount
from legacy_queue.cli.commands import commands
from legacy_queue.domain.authentication import Client, create_temporary_credentials
from legacy_queue.domain.definition import TaskDefinition
from legacy_queue.domain.hawk import SignedRequest, sign_bewit
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.priority import PRIORITIES
from legacy_queue.domain.task import Run, Task
from legacy_queue.domain.times import format_time
from legacy_queue.http.endpoints.inspect import SCOPE
from legacy_queue.ports import Clock
from legacy_queue.ports.table import Table
from legacy_queue.stores import Storage
from tests.http.calls import (
    NOW,
    POOL,
    PROVISIONER,
    ROOT,
    ROOT_URL,
    SECRETS,
    WORKER,
    WORKER_TYPE,
    Credentials,
    Queue,
    artifact_body,
    refused,
    succeeded,
    task_body,
)
from tests.memory_server import FakeClock
from tests.services.harness import PREFIX
from tests.services.ports import intercept_port


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


def shown(queue: Queue, target: str = "/", credentials: Credentials = ROOT) -> TestResponse:
    return opened(queue, target, Cookie=signed_in(queue, credentials))


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


@pytest.mark.parametrize("name", [None, "a-name"])
def test_a_cookie_is_not_renewed_by_itself(name: str | None) -> None:
    queue = Queue()
    now = queue.clock.now()
    issuer = Client(ROOT.client_id, ROOT.access_token, ("*",))
    lent = create_temporary_credentials(issuer, name, ["*"], now, now + timedelta(hours=1), "s" * 44)
    cookie = signed_in(queue, Credentials(lent.client_id, lent.access_token, lent.certificate))
    queue.clock.advance(timedelta(minutes=50))
    for target in ("/?q=bewit=", "/?bewit="):
        answer = opened(queue, target, Cookie=cookie)
        cookie = answer.headers.get("set-cookie", cookie).partition(";")[0]
    queue.clock.advance(timedelta(minutes=20))
    assert opened(queue, Cookie=cookie).status_code == 403


def test_the_cookie_of_another_version_signs_nobody_in() -> None:
    queue = Queue()
    name, _, value = signed_in(queue).partition("=")
    key = hashlib.sha256(f"legacy-queue/page/{SECRETS[0]}".encode()).hexdigest()
    old = URLSafeSerializer(key, "legacy-queue page session").dumps(["root", "root", "version", 2**50])
    for other in (old, value[:-1], ""):
        assert opened(queue, Cookie=f"{name}={other}").status_code == 403


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


def test_a_client_with_too_many_scopes_for_a_cookie_can_only_look() -> None:
    others = [f"other:{slugid()}{slugid()}" for _ in range(200)]
    for first, can_act in (("*", True), ("queue:*", False)):
        many = Client("many", "the-access-token-of-the-many", (first, *others))
        queue = Queue(many)
        task_id = queue.create()
        page = shown(queue, f"/ui/tasks/{task_id}", Credentials(many.client_id, many.access_token))
        assert (page.status_code, "<button name" in page.get_data(as_text=True)) == (200, can_act)


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


def pages(task_id: str) -> list[str]:
    task = ["/ui/tasks", f"/ui/tasks/{task_id}", f"/ui/groups/{task_id}"]
    return [
        "/",
        f"/ui/pools/{PROVISIONER}/{WORKER_TYPE}",
        *task,
        "/ui/workers",
        "/ui/requests",
        "/ui/migration",
    ]


def tree_of(answer: TestResponse) -> Any:
    return html.fromstring(answer.get_data(as_text=True))


def words_of(answer: TestResponse) -> str:
    """The text that a browser shows, with single spaces."""
    return " ".join(tree_of(answer).text_content().split())


@pytest.mark.parametrize("control", [False, True])
def test_a_page_may_load_nothing_from_elsewhere_and_be_in_no_frame(control: bool) -> None:
    queue = Queue(control=control)
    task_id = queue.running()
    for page in pages(task_id):
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


def test_what_the_author_of_a_task_wrote_is_no_html() -> None:
    queue = Queue(control=True)
    name = "<script>alert(1)</script>\"'&"
    metadata = {"name": name, "description": name, "owner": "a@b.test", "source": "https://a.test"}
    task_id = queue.create(metadata=metadata, payload={"text": name})
    seen = []
    for page in [*pages(task_id), f"/ui/tasks?q={quote(name)}"]:
        text = shown(queue, page).get_data(as_text=True)
        assert "<script>alert" not in text
        seen += [page] * ("&lt;script&gt;alert(1)" in text)
    assert len(seen) == 5  # of the pool, the tasks, the task and the group


def test_a_reason_begins_with_the_name_of_a_worker_as_it_is() -> None:
    queue = Queue()
    queue.running()
    words = words_of(shown(queue, "/ui/migration"))
    assert f"claimWork only: {'/'.join(WORKER.values())} called claimTask: once at" in words


def test_the_live_part_is_the_page_without_what_stays() -> None:
    queue = Queue()
    task_id = queue.create()
    for page in pages(task_id):
        part = shown(queue, f"{page}?part=live").get_data(as_text=True).strip()
        assert '<nav aria-label="pages"' not in part
        assert part in shown(queue, page).get_data(as_text=True)


@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        ("/ui/tasks/foo", 400, "taskId is 'foo': it must match"),
        ("/ui/tasks/dSlITZ4yQgmvxxAi4A8fHQ", 404, "there is no task"),
        ("/ui/nothing", 404, "there is no GET /ui/nothing"),
        ("/?sort=color", 400, "sort is 'color'"),
        ("/ui/tasks?continuationToken=x", 400, "continuationToken"),
    ],
)
def test_a_wrong_address_is_a_page_that_says_what_is_wrong(target: str, status: int, words: str) -> None:
    answer = shown(Queue(), target)
    assert (answer.status_code, answer.mimetype) == (status, "text/html")
    assert words in words_of(answer)


class MeteredAccount(EmbeddedAccount):
    """Records each operation on a table: ``tasks.merge``."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(None, clock, "http://127.0.0.1:1/azure", PREFIX)
        self.names: list[str] = []

    def table(self, name: str) -> Any:
        return intercept_port(Table, super().table(name), self._record, f"{name.removeprefix(PREFIX)}.")

    def _record(self, name: str, call: Callable[[], Any]) -> Any:
        self.names.append(name)
        return call()

    def take(self) -> list[str]:
        """The operations since the last call."""
        names, self.names = self.names, []
        return names


def filled(pools: int, tasks: int, exceptions: int) -> tuple[Queue, MeteredAccount]:
    """A queue with that many pools, with the longest names; of its tasks the oldest are exceptions."""
    clock = FakeClock(NOW)
    metered = MeteredAccount(clock)
    storage = Storage(metered, PREFIX, clock)
    for number in range(tasks):
        pool: Any = {"provisionerId": f"{number % pools:0>38}", "workerType": f"{number % pools:a>38}"}
        task_id = slugid()
        body = task_body(**pool, priority=PRIORITIES[number // pools % 7])
        run = Run(0, "pending", "scheduled", NOW)
        if number < exceptions:
            run = replace(run, state="exception", reason_resolved="canceled", resolved=NOW)
        storage.tasks.insert(Task(task_id, TaskDefinition.from_wire(task_id, body, NOW), 5, (run,)))
    queue = Queue(clock=clock, storage=storage)
    for number in range(pools):
        worker = f"{number:b>38}", f"{number:c>38}"
        path = (f"{number:0>38}", f"{number:a>38}", *worker)
        queue.server.services.workers.record_call(path, ("claimWork", ()))
    return queue, metered


def rows(answer: TestResponse) -> list[str]:
    """The text of each row of the page's first table."""
    found = tree_of(answer).xpath("(//table)[1]/tbody/tr")
    return [" ".join(" ".join(row.itertext()).split()) for row in found]


def test_200_pools_and_5000_tasks_are_shown_in_60_kb_without_a_reading_of_all_tasks() -> None:
    queue, metered = filled(200, 5000, exceptions=20)
    shown(queue)  # reads the counts, as pollers do
    metered.take()
    first = shown(queue)
    assert set(metered.take()) == {"workers.page"}
    assert len(first.data) <= 60_000
    assert (len(rows(first)), "1 to 75 of 200" in words_of(first)) == (75, True)
    names = {row.split()[0] for row in rows(first)}
    for target in ("/?after=75", "/?after=150"):
        names |= {row.split()[0] for row in rows(shown(queue, target))}
    assert len(names) == 200

    metered.take()
    found = shown(queue, "/ui/tasks?state=exception")
    operations = metered.take()
    assert all("exception (canceled)" in row for row in rows(found))
    assert len(rows(found)) == 20
    assert set(operations) == {"tasks.page"}
    assert len(operations) <= 30
    newest = shown(queue, "/ui/tasks")
    assert len(rows(newest)) == 50
    assert metered.take() == ["tasks.page"] * 3  # the last rows are those of the workers
    assert len(newest.data) <= 60_000


def test_a_search_never_says_none_where_tasks_were_not_looked_at() -> None:
    queue, _ = filled(10, 2100, exceptions=1)
    target: str | None = "/ui/tasks?q=no+such+words"
    looked = []
    while target:
        answer = shown(queue, target)
        looked.append(words_of(answer))
        links = tree_of(answer).xpath("//a[@rel='next']/@href")
        target = links[0] if links else None
    assert len(looked) == 2
    assert "None among the tasks that were looked at so far" in looked[0]
    assert "There are no such tasks" in looked[1]


def test_a_token_is_of_one_search(queue: Queue) -> None:
    for _ in range(60):
        queue.create()
    page = tree_of(shown(queue, "/ui/tasks")).xpath("//a[@rel='next']/@href")[0]
    assert shown(queue, page).status_code == 200
    assert shown(queue, f"{page}&state=pending").status_code == 400


def test_the_overview_begins_with_what_needs_a_look() -> None:
    queue = Queue(control=True, claim_work_wait=timedelta(0))
    queue.create(workerType="builder")
    succeeded(queue.call("claimWork", WORKER, **POOL | {"workerType": "bulider"}))
    busy = queue.running()
    until = {"quarantineUntil": format_time(NOW + timedelta(hours=1))}
    succeeded(queue.call("quarantineWorker", until, **POOL, **WORKER))
    refused(queue.claim(busy, workerId="bob"), 409, "RequestConflict")
    queue.create()
    queue.clock.advance(timedelta(minutes=10))
    text = words_of(shown(queue))
    start, end = text.index("Look here first"), text.index("3 pools")
    asked = f"No worker has asked for {PROVISIONER}/builder in the last 10 days."
    assert text[start:end] == (
        f"Look here first {asked} Workers ask for {PROVISIONER}/bulider. "
        f"A task of {PROVISIONER}/{WORKER_TYPE} is pending for 10m. Quarantined workers: 1. "
        "Refused or failed claims: 1. "
    )


def test_the_pools_are_filtered_by_words_and_ordered_by_a_column() -> None:
    queue = Queue()
    for name, count in (("linux-a", 1), ("linux-b", 3), ("windows", 2)):
        for _ in range(count):
            queue.create(workerType=name)
    order = [row.split()[0].partition("/")[2] for row in rows(shown(queue, "/?q=linux&sort=pending"))]
    assert order == ["linux-b", "linux-a"]


def test_a_search_leads_to_pools_and_workers_with_such_names() -> None:
    queue = Queue()
    queue.running()
    page = words_of(shown(queue, f"/ui/tasks?q={WORKER_TYPE[:5]}"))
    assert "Also with these words in their names: 1 pools, 1 workers or clients" in page
    assert len(rows(shown(queue, "/ui/workers?q=ali+group"))) == 1


def test_what_one_looks_for_leads_to_its_page() -> None:
    queue = Queue()
    task_id = queue.running()
    group_id = slugid()
    queue.create(taskGroupId=group_id)
    pool = f"{PROVISIONER}/{WORKER_TYPE}"
    for word, place in (
        (task_id, f"/ui/tasks/{task_id}"),
        (group_id, f"/ui/groups/{group_id}"),
        (pool, f"/ui/pools/{pool}"),
        ("alice", "/ui/workers?q=alice"),
    ):
        answer = shown(queue, f"/ui/tasks?q={quote(word, safe='')}")
        assert (answer.status_code, answer.headers["location"]) == (303, place)
    assert len(rows(shown(queue, "/ui/tasks?q=a+NAME"))) == 2
    assert rows(shown(queue, f"/ui/tasks?q={slugid()}")) == []


def test_the_tasks_of_a_group_are_filtered_too() -> None:
    queue = Queue()
    group_id = slugid()
    ids = [queue.create(taskGroupId=group_id) for _ in range(3)]
    succeeded(queue.call("cancelTask", taskId=ids[0]))
    assert [ids[0] in row for row in rows(shown(queue, f"/ui/tasks?group={group_id}&state=exception"))] == [
        True
    ]
    assert len(rows(shown(queue, f"/ui/tasks?group={group_id}&state=unresolved&q=a+name"))) == 2


def test_a_group_has_its_counts_and_a_picture_of_its_dependencies() -> None:
    queue = Queue()
    first = queue.create()
    second = queue.create(dependencies=[first], taskGroupId=first)
    page = shown(queue, f"/ui/groups/{first}")
    assert "1 pending, 1 unscheduled" in words_of(page)
    links = tree_of(page).xpath("//*[name()='svg']//*[name()='a']/@href")
    assert links == [f"/ui/tasks/{first}", f"/ui/tasks/{second}"]


def test_a_task_shows_its_dependencies_artifacts_and_log() -> None:
    queue = Queue()
    first = queue.running()
    body = artifact_body("reference", name=None)
    succeeded(queue.call("createArtifact", body, taskId=first, runId=0, name="public/logs/live.log"))
    succeeded(queue.call("createArtifact", body, taskId=first, runId=0, name="private/a b"))
    second = queue.define(dependencies=[first])
    text = shown(queue, f"/ui/tasks/{first}").get_data(as_text=True)
    assert f'/api/queue/v1/task/{first}/runs/0/artifacts/public%2Flogs%2Flive.log" id="log-link"' in text
    assert f"/ui/tasks/{second}" in text
    assert "private/a b (not public" in text
    assert "It requires" in words_of(shown(queue, f"/ui/tasks/{second}"))


def test_a_list_of_artifacts_says_that_it_is_cut_and_the_log_is_found_all_the_same() -> None:
    queue = Queue()
    task_id = queue.running()
    body = artifact_body("reference", name=None)
    for name in (
        *(f"public/a{number:03}" for number in range(101)),
        "public/logs/live.log",
        "public/../x.log",
    ):
        succeeded(queue.call("createArtifact", body, taskId=task_id, runId=0, name=name))
    page = shown(queue, f"/ui/tasks/{task_id}")
    assert "The first 100 artifacts of run 0; there are more." in words_of(page)
    links = tree_of(page).xpath("//*[@id='log-link']/@href")
    assert links == [f"/api/queue/v1/task/{task_id}/runs/0/artifacts/public%2Flogs%2Flive.log"]
    assert not [link for link in tree_of(page).xpath("//a/@href") if "/.." in link]


def form_of(
    queue: Queue, task_id: str, action: str, credentials: Credentials = ROOT
) -> dict[str, str] | None:
    """The first form with that action, as a browser sends it; None if there is none."""
    page = tree_of(shown(queue, f"/ui/tasks/{task_id}", credentials))
    for form in page.xpath(f"//form[@method='post'][button/@value='{action}']"):
        return {**dict(form.form_values()), "action": action}
    return None


def act(queue: Queue, task_id: str, form: dict[str, str], credentials: Credentials = ROOT) -> TestResponse:
    cookie = signed_in(queue, credentials)
    headers = {"Sec_Fetch_Site": "same-origin", "Origin": ROOT_URL}
    return opened(queue, f"/ui/tasks/{task_id}", form, Cookie=cookie, **headers)


def state(queue: Queue, task_id: str) -> str:
    return str(succeeded(queue.call("status", taskId=task_id)).get_json()["status"]["state"])


def test_a_form_calls_the_api() -> None:
    queue = Queue(control=True)
    task_id = queue.define()
    for action, expected in (("schedule", "pending"), ("cancel", "exception"), ("rerun", "pending")):
        form = form_of(queue, task_id, action)
        assert form
        answer = act(queue, task_id, form)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/ui/tasks/{task_id}")
        assert state(queue, task_id) == expected
        assert form_of(queue, task_id, action) is None
    form = form_of(queue, task_id, "priority")
    assert form
    assert act(queue, task_id, {**form, "newPriority": "high"}).status_code == 303
    assert "priority high" in words_of(shown(queue, f"/ui/tasks/{task_id}"))
    told = words_of(shown(queue, f"/ui/requests?taskId={task_id}"))
    assert all(
        f"{name} by root: 303" in told for name in ("scheduleTask", "cancelTask", "changeTaskPriority")
    )


def test_a_form_moves_the_clock_to_the_end_of_a_claim() -> None:
    queue = Queue(control=True, clock=None)
    task_id = queue.running()
    form = form_of(queue, task_id, "clock")
    assert form
    assert act(queue, task_id, form).status_code == 303
    runs = succeeded(queue.call("status", taskId=task_id)).get_json()["status"]["runs"]
    assert [run.get("reasonResolved") for run in runs] == ["claim-expired", None]


def test_a_form_needs_the_token_of_its_session() -> None:
    queue = Queue()
    task_id = queue.create()
    form = form_of(queue, task_id, "cancel")
    assert form
    for wrong in ({**form, "token": "x" * 64}, {**form, "token": "ü"}):
        assert act(queue, task_id, wrong).status_code == 403
    stranger = opened(
        queue, f"/ui/tasks/{task_id}", form, Sec_Fetch_Site="cross-site", Cookie=signed_in(queue)
    )
    assert stranger.status_code == 403
    assert act(queue, task_id, {**form, "action": "delete"}).status_code == 400
    for action in ("priority", "clock"):
        assert act(queue, task_id, {"token": form["token"], "action": action}).status_code == 400
    assert state(queue, task_id) == "pending"


def test_a_form_needs_the_scopes_of_the_call() -> None:
    queue = Queue(VIEWER, control=True)
    task_id = queue.create()
    viewer = Credentials(VIEWER.client_id, VIEWER.access_token)
    assert form_of(queue, task_id, "cancel", viewer) is None
    assert form_of(queue, task_id, "clock", viewer) is None
    looker = Client("looker", "the-access-token-of-the-looker", (SCOPE, "queue:lower-task-priority:*"))
    queue = Queue(looker)
    task_id = queue.create(priority="high")
    own = Credentials(looker.client_id, looker.access_token)
    form = form_of(queue, task_id, "priority", own)
    assert form
    assert act(queue, task_id, {**form, "action": "cancel"}, own).status_code == 403
    assert act(queue, task_id, {**form, "newPriority": "highest"}, own).status_code == 403
    assert act(queue, task_id, {**form, "newPriority": "low"}, own).status_code == 303
    assert state(queue, task_id) == "pending"


def test_a_refused_action_is_a_page_with_the_reason() -> None:
    queue = Queue()
    task_id = queue.create()
    form = form_of(queue, task_id, "cancel")
    assert form
    queue.clock.advance(timedelta(days=2))
    assert form_of(queue, task_id, "rerun") is None
    answer = act(queue, task_id, form_of(queue, task_id, "cancel") or form)
    assert (answer.status_code, answer.mimetype) == (409, "text/html")
    assert "deadline" in words_of(answer)


def test_each_command_of_a_page_exists() -> None:
    queue = Queue(control=True)
    task_id = queue.running()
    queue.create(taskGroupId=task_id)
    shown_commands = set()
    for page in pages(task_id):
        tree = tree_of(shown(queue, page))
        shown_commands |= {
            code.text_content() for code in tree.xpath("//code[starts-with(., 'legacy-queue ')]")
        }
    assert len(shown_commands) > 8
    for command in shown_commands:
        _, name, *words = command.split()
        context = click.Context(commands, info_name="legacy-queue")
        found = commands.get_command(context, name)
        assert found, command
        found.make_context(name, words)
