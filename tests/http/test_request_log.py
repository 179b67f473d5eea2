"""One log line for each request: its client, its endpoint and its status, and never a secret."""

import base64
import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs
from werkzeug.test import TestResponse

from legacy_queue.domain.ids import slugid
from legacy_queue.domain.priority import PRIORITIES
from tests.http.calls import (
    NOW,
    POOL,
    PROVISIONER,
    ROOT,
    ROOT_URL,
    TASK_ID,
    WORKER,
    WORKER_TYPE,
    Credentials,
    Queue,
    refused,
    succeeded,
    task_body,
    temporary,
)
from tests.system.processes import SECRET_MARKS

SECRET = "S3CRETsecretS3CRETsecret"


def logged(
    queue: Queue, *request: Any, call: bool = False, **more: Any
) -> tuple[TestResponse, dict[str, Any]]:
    """An answer that was read to its end, and the line of its request."""
    with capture_logs() as logs:
        answer = (queue.call if call else queue.send)(*request, **more)
        answer.get_data()
        assert logs == [], "the line is written when the answer is closed"
        answer.close()
    [line] = logs
    assert (line.pop("event"), line.pop("log_level")) == ("request", "info")
    assert line.pop("ms") >= 0
    assert line.pop("request_id") == answer.headers["x-request-id"]
    return answer, dict(line)


def test_a_line_has_the_client_the_endpoint_and_the_status(queue: Queue) -> None:
    task_id = slugid()
    for prefix in ("/v1", "/api/queue/v1"):
        _, line = logged(queue, "createTask", task_body(), call=True, prefix=prefix, taskId=task_id)
        assert line == {
            "method": "PUT",
            "path": f"{prefix}/task/{task_id}",
            "endpoint": "createTask",
            "status": 200,
            "client_id": "root",
        }


ENDED = temporary(ROOT, ["x"], None, NOW - timedelta(hours=2), NOW - timedelta(hours=1))
WHY = [
    (Credentials("nobody", SECRET), "no such client", "nobody"),
    (Credentials(SECRET, ROOT.client_id), "no such client", "(looks like an access token)"),
    (replace(ROOT, access_token=SECRET), "wrong key", "root"),
    (ENDED, "certificate expired", "root"),
]


@pytest.mark.parametrize(("credentials", "reason", "claimed"), WHY, ids=[reason for _, reason, _ in WHY])
def test_only_the_log_says_why_credentials_are_refused(
    queue: Queue, credentials: Credentials, reason: str, claimed: str
) -> None:
    answer, line = logged(queue, "pollTaskUrls", call=True, credentials=credentials, **POOL)
    assert reason not in refused(answer, 401, "AuthenticationFailed")
    assert reason in line["reason"]
    assert line["claimed_client_id"] == claimed
    assert "client_id" not in line
    assert SECRET not in str(line)


@pytest.mark.parametrize("given", ["a", "an-Id_0", "a" * 64])
def test_a_plain_request_id_of_the_client_is_used(queue: Queue, given: str) -> None:
    for target in ("/v1/ping", "/v1/no-such"):
        answer, _ = logged(queue, "GET", target, credentials=None, headers={"X-Request-Id": given})
        assert answer.headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "a" * 65, "a b", "a/b", 'a"b', "{}", "\u00e9"])
def test_an_invalid_request_id_is_replaced_by_a_new_one(queue: Queue, given: str) -> None:
    made = set()
    for _ in range(2):
        answer, _ = logged(queue, "GET", "/v1/ping", credentials=None, headers={"X-Request-Id": given})
        made.add(answer.headers["x-request-id"])
    assert len(made) == 2
    assert all(re.fullmatch("[A-Za-z0-9_-]{12}", request_id) for request_id in made)


def test_the_line_of_a_redirect_does_not_say_where_it_leads(queue: Queue) -> None:
    task_id = queue.running()
    succeeded(queue.artifact(task_id, "public/a", "reference", url=f"https://example.com/?sig={SECRET}"))
    answer, line = logged(queue, "GET", f"/v1/task/{task_id}/artifacts/public%2Fa", credentials=None)
    assert SECRET in answer.headers["location"]
    assert (line["path"], line["status"]) == (f"/v1/task/{task_id}/artifacts/public%2Fa", 303)
    assert SECRET not in str(line)


def test_the_line_of_a_signed_url_has_no_signature(queue: Queue) -> None:
    queue.create()
    urls = succeeded(queue.call("pollTaskUrls", **POOL)).get_json()["queues"][-1]
    target = urls["signedPollUrl"].removeprefix(ROOT_URL)
    _, line = logged(queue, "GET", target, credentials=None)
    assert (line["path"], line["status"]) == (target.partition("?")[0], 200)
    assert list(line) == ["method", "path", "endpoint", "status", "task_queue_id", "priority"]
    assert (line["task_queue_id"], line["priority"]) == (f"{PROVISIONER}/{WORKER_TYPE}", "lowest")
    _, line = logged(queue, "GET", target + "x", credentials=None)
    assert (line["status"], line["code"]) == (403, "AuthenticationFailed")


def test_empty_polls_are_at_the_level_debug_and_counted_in_one_line_a_minute(queue: Queue) -> None:
    urls = [urls["signedPollUrl"] for urls in queue.call("pollTaskUrls", **POOL).get_json()["queues"]]
    with capture_logs() as logs:
        for url in urls:
            queue.send("GET", url.removeprefix(ROOT_URL), credentials=None).close()
    polls = [(line["priority"], line["log_level"]) for line in logs if line["event"] == "request"]
    assert polls == [(priority, "debug") for priority in PRIORITIES]
    assert [line for line in logs if line["event"] == "polled"] == [
        {
            "event": "polled",
            "log_level": "info",
            "task_queue_id": f"{PROVISIONER}/{WORKER_TYPE}",
            "times": 1,
            "found": 0,
        }
    ]


@pytest.mark.parametrize(
    ("target", "headers", "body"),
    [
        (f"/v1/task/T?bewit={SECRET}", {}, None),
        (f"/v1/task/T%3Fbewit%3D{SECRET}", {}, None),
        (f"/v1/task/T%3Fbewit={SECRET}", {}, None),
        (f"/azure/embedded/q/messages?sv=1&sig={SECRET}", {}, None),
        (f"/azure/embedded/q/messages%3fsv=1&sig={SECRET}", {}, None),
        (f"/azure/embedded/q/messages/m?popreceipt={SECRET}&sig={SECRET}", {}, None),
        (f"/uploads/ticket?signature={SECRET}", {}, None),
        (f"/uploads/ticket&SIGNATURE={SECRET}", {}, None),
        (f"http://queue.test/v1/ping?sig={SECRET}", {}, None),
        (
            "/v1/poll-task-url/p/w",
            {"Authorization": f'Hawk id="root", ts="1", nonce="a", mac="{SECRET}"'},
            None,
        ),
        (
            "/v1/poll-task-url/p/w",
            {"Authorization": f'Hawk id="{SECRET}", ts="1", nonce="a", mac="{SECRET}"'},
            None,
        ),
        ("/v1/poll-task-url/p/w", {"Authorization": f"Bearer {SECRET}"}, None),
        ("/v1/poll-task-url/p/w", {"Authorization": f"SharedKey embedded:{SECRET}"}, None),
        ("/v1/ping", {"Authorization": f'Hawk id="{SECRET}", ts="1", nonce="a", mac="{SECRET}"'}, None),
        ("/v1/ping", {"X-Request-Id": f"sig={SECRET}", "Cookie": SECRET, "User-Agent": SECRET}, None),
        ("/v1/ping", {"Referer": f"http://h/?sig={SECRET}", "X-Forwarded-For": SECRET}, None),
        ("/v1/task/T/runs/0/claim", {}, {**WORKER, "receipt": SECRET, "signature": SECRET}),
        (f"/v1/task/{TASK_ID}/runs/0/claim", {}, {**WORKER, "receipt": SECRET, "signature": SECRET}),
        (f"/v1/task/{TASK_ID}/runs/0/claim", {}, {"accessToken": SECRET, "certificate": {"a": SECRET}}),
    ],
)
def test_no_secret_is_in_the_log_wherever_it_was_sent(
    queue: Queue, target: str, headers: dict[str, str], body: Any
) -> None:
    sent = base64.b64encode(SECRET.encode()).decode()
    with capture_logs() as logs:
        for method in ("GET", "PUT", "POST", "DELETE"):
            queue.http.open(
                target.partition("?")[0],
                base_url=ROOT_URL,
                method=method,
                headers=headers,
                environ_overrides={"RAW_URI": target, "QUERY_STRING": target.partition("?")[2]},
                **({} if body is None else {"json": body}),
            ).close()
    assert [line["event"] for line in logs if line["event"] != "authentication-ignored"] == ["request"] * 4
    text = json.dumps(logs)
    assert [mark for mark in (SECRET, sent, *SECRET_MARKS) if mark in text] == []


@pytest.mark.parametrize(
    ("sent", "status", "reason"),
    [
        ({"deadline": SECRET}, 400, "body/deadline is ***: "),
        ({"metadata": {"name": "it's", "description": f"\"{SECRET}'", "owner": SECRET, "source": SECRET}},
         400, "body/metadata/owner is ***: "),
        ({"priority": f"{SECRET} it's {SECRET}", "schedulerId": f"{SECRET} {SECRET}" * 50},
         400, "; body/schedulerId is ***: "),
        ({SECRET: 1}, 400, "body: Additional properties are not allowed (*** was unexpected)"),
        ({"scopes": [f"{SECRET}**"]}, 400, "the scope *** ends in ***"),
        ({"payload": {"env": {"TOKEN": SECRET}}}, 409, "exists with another definition: payload"),
        (f'[{{"{SECRET}": 1, "{SECRET}": 1}}]', 400, "the body is not JSON: the key *** stands twice"),
    ],
)  # fmt: skip
def test_a_reason_does_not_repeat_what_the_body_holds(
    queue: Queue, sent: Any, status: int, reason: str
) -> None:
    task_id = queue.create()
    if isinstance(sent, str):
        target = f"/v1/task/{task_id}"
        answer, line = logged(queue, "PUT", target, sent.encode())
    else:
        answer, line = logged(queue, "createTask", {**task_body(), **sent}, call=True, taskId=task_id)
    assert (answer.status_code, line["status"]) == (status, status)
    assert reason in line["reason"]
    assert SECRET not in str(line)


def test_every_refusal_has_its_reason_whatever_refused_it(queue: Queue) -> None:
    task_id = queue.running()
    urls = succeeded(queue.call("pollTaskUrls", **POOL)).get_json()["queues"][-1]
    poll, delete = (urls[name].removeprefix(ROOT_URL) for name in ("signedPollUrl", "signedDeleteUrl"))
    for method, target in [
        ("GET", "/nowhere"),
        ("POST", "/v1/ping"),
        ("GET", "/v1/task/none"),
        ("GET", "/v1/task/%zz"),
        ("GET", f"/v1/task/{slugid()}"),
        ("PUT", f"/v1/task/{task_id}"),
        ("GET", f"/v1/task/{task_id}/runs/0/artifacts/public%2Fnone"),
        ("GET", poll + "x"),
        ("GET", poll + "&numofmessages=99"),
        ("PUT", poll),
        ("DELETE", delete.replace("{{messageId}}", task_id).replace("{{popReceipt}}", "x")),
        ("GET", "/azure/another/queue/messages"),
        ("PUT", "/uploads/forged"),
        ("GET", "/uploads/forged"),
        ("GET", "/control/v1/clock"),
        ("GET", "/schemas/queue/v1/none.json"),
        ("GET", "/events?unknown=1"),
        ("GET", "/"),
        ("GET", "/static/none.js"),
    ]:
        with capture_logs() as logs:
            queue.http.open(target, method=method).close()
        [line] = [line for line in logs if line["event"] == "request"]
        assert 400 <= line["status"] < 500, target
        assert line.get("reason"), target
