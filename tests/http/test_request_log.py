"""Each request has a log line and, on a server with control, an entry in the journal.

Neither has a secret.
"""

import base64
import json
import re
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product
from typing import Any
from urllib.parse import quote

import pytest
from structlog.testing import capture_logs
from werkzeug.test import TestResponse

from legacy_queue.domain.ids import slugid
from legacy_queue.domain.priority import PRIORITIES
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.http.request_journal import shown_target
from tests.http.calls import (
    NOW,
    POOL,
    POOL_NAME,
    ROOT,
    ROOT_URL,
    TASK_ID,
    WORKER,
    Credentials,
    Queue,
    hawk,
    refused,
    succeeded,
    task_body,
    temporary,
)
from tests.memory_server import FakeClock
from tests.system.processes import SECRET_MARKS

SECRET = "S3CRETsecretS3CRETsecret"


def logged(queue: Queue, *request: Any, **more: Any) -> tuple[TestResponse, dict[str, Any]]:
    """Send a request. Returns its answer, which was read to the end, and its log line."""
    with capture_logs() as logs:
        answer = queue.send(*request, **more)
        answer.get_data()
        assert logs == [], "the line is written when the answer is closed"
        answer.close()
    [line] = logs
    assert (line.pop("event"), line.pop("log_level")) == ("request", "info")
    assert line.pop("ms") >= 0
    assert line.pop("request_id") == answer.headers["x-request-id"]
    return answer, dict(line)


def test_a_log_line_has_the_client_the_endpoint_and_the_status(queue: Queue) -> None:
    target = f"/api/queue/v1/task/{slugid()}"
    _, line = logged(queue, "PUT", target, json.dumps(task_body()).encode())
    said = {"method": "PUT", "path": target, "endpoint": "createTask", "status": 200, "client_id": "root"}
    assert line == said


def test_only_the_log_says_why_credentials_are_refused(queue: Queue) -> None:
    ended = temporary(ROOT, ["x"], None, NOW - timedelta(hours=2), NOW - timedelta(hours=1))
    for credentials, reason, claimed in (
        (Credentials(SECRET, ROOT.client_id), "no such client", "(looks like an access token)"),
        (replace(ROOT, access_token=SECRET), "wrong key", "root"),
        (ended, "certificate expired", "root"),
    ):
        answer, line = logged(queue, "GET", "/v1/poll-task-url/p/w", credentials=credentials)
        assert reason not in refused(answer, 401, "AuthenticationFailed")
        assert reason in line["reason"]
        assert line["claimed_client_id"] == claimed
        assert "client_id" not in line
        assert SECRET not in str(line)


def test_a_simple_request_id_of_the_client_is_used_and_any_other_is_replaced(queue: Queue) -> None:
    def answered(given: str, target: str = "/v1/ping") -> str:
        answer, _ = logged(queue, "GET", target, credentials=None, headers={"X-Request-Id": given})
        return str(answer.headers["x-request-id"])

    for given in ("a", "an-Id_0", "a" * 64):
        assert [answered(given), answered(given, "/v1/no-such")] == [given, given]
    made = [answered(given) for given in ("", "", "a" * 65, "a b", "a/b", 'a"b', "{}", "\u00e9")]
    assert len({*made}) == len(made)
    assert all(re.fullmatch("[A-Za-z0-9_-]{12}", request_id) for request_id in made)


def test_the_log_line_of_a_signed_url_has_no_signature(queue: Queue) -> None:
    queue.create()
    target = queue.poll_target()
    _, line = logged(queue, "GET", target, credentials=None)
    assert (line["path"], line["status"]) == (target.partition("?")[0], 200)
    assert list(line) == ["method", "path", "endpoint", "status", "task_queue_id", "priority"]
    assert (line["task_queue_id"], line["priority"]) == (POOL_NAME, "lowest")
    _, line = logged(queue, "GET", target + "x", credentials=None)
    assert (line["status"], line["code"]) == (403, "AuthenticationFailed")


def test_empty_polls_are_logged_at_the_level_debug_and_counted_in_one_line_a_minute(queue: Queue) -> None:
    urls = [urls["signedPollUrl"] for urls in queue.call("pollTaskUrls", **POOL).get_json()["queues"]]
    with capture_logs() as logs:
        for url in urls:
            queue.send("GET", url.removeprefix(ROOT_URL), credentials=None).close()
    polls = [(line["priority"], line["log_level"]) for line in logs if line["event"] == "request"]
    assert polls == [(priority, "debug") for priority in PRIORITIES]
    counted = {"log_level": "info", "task_queue_id": POOL_NAME, "times": 1, "found": 0}
    assert [line for line in logs if line["event"] == "polled"] == [{"event": "polled", **counted}]


POLLING, CLAIM = "/v1/poll-task-url/p/w", f"/v1/task/{TASK_ID}/runs/0/claim"
SENT: list[tuple[str, dict[str, str], Any]] = [
    (f"/v1/task/T%3Fbewit%3D{SECRET}", {}, None),
    (f"/azure/embedded/q/messages/m?popreceipt={SECRET}&sig={SECRET}", {}, None),
    (f"/uploads/ticket&SIGNATURE={SECRET}", {}, None),
    (f"http://queue.test/v1/ping?sig={SECRET}", {}, None),
    (POLLING, {"Authorization": f'Hawk id="{SECRET}", ts="1", nonce="a", mac="{SECRET}"'}, None),
    (POLLING, {"Authorization": f"Bearer {SECRET}"}, None),
    ("/v1/ping", {"Authorization": f'Hawk id="{SECRET}", ts="1", nonce="a", mac="{SECRET}"'}, None),
    ("/v1/ping", {"X-Request-Id": f"sig={SECRET}", "Cookie": SECRET, "User-Agent": SECRET}, None),
    ("/v1/ping", {"Referer": f"http://h/?sig={SECRET}", "X-Forwarded-For": SECRET}, None),
    (CLAIM, {}, {**WORKER, "receipt": SECRET, "signature": SECRET}),
    (CLAIM, {}, {"accessToken": SECRET, "certificate": {"a": SECRET}}),
]


def test_the_log_has_no_secret_wherever_in_the_request_it_was_sent(queue: Queue) -> None:
    encoded = base64.b64encode(SECRET.encode()).decode()
    for (target, headers, body), method in product(SENT, ("GET", "PUT", "POST", "DELETE")):
        path, _, query = target.partition("?")
        with capture_logs() as logs:
            queue.http.open(
                path,
                base_url=ROOT_URL,
                method=method,
                headers=headers,
                environ_overrides={"RAW_URI": target, "QUERY_STRING": query},
                **({} if body is None else {"json": body}),
            ).close()
        assert [line["event"] for line in logs if line["event"] != "authentication-ignored"] == ["request"]
        text = json.dumps(logs)
        assert [mark for mark in (SECRET, encoded, *SECRET_MARKS) if mark in text] == [], (method, target)


REASONS: list[tuple[Any, int, str]] = [
    ({"deadline": SECRET}, 400, "body/deadline is ***: "),
    ({"metadata": {"name": "it's", "description": f"\"{SECRET}'", "owner": SECRET, "source": SECRET}},
     400, "body/metadata/owner is ***: "),
    ({"priority": f"{SECRET} it's {SECRET}", "schedulerId": f"{SECRET} {SECRET}" * 50},
     400, "; body/schedulerId is ***: "),
    ({SECRET: 1}, 400, "body: unknown property ***"),
    ({"scopes": [f"{SECRET}**"]}, 400, "the scope *** ends in ***"),
    ({"payload": {"env": {"TOKEN": SECRET}}}, 409, "exists with another definition: payload"),
    (f'[{{"{SECRET}": 1, "{SECRET}": 1}}]', 400, "the body is not JSON: the key *** occurs twice"),
]  # fmt: skip


def test_the_logged_reason_of_a_refusal_repeats_nothing_from_the_body(queue: Queue) -> None:
    target = f"/v1/task/{queue.create()}"
    for sent, status, reason in REASONS:
        body = sent if isinstance(sent, str) else json.dumps({**task_body(), **sent})
        answer, line = logged(queue, "PUT", target, body.encode())
        assert (answer.status_code, line["status"]) == (status, status)
        assert reason in line["reason"]
        assert SECRET not in str(line)


def test_every_refusal_has_its_reason_in_the_log_whichever_part_of_the_server_refused(queue: Queue) -> None:
    task_id = queue.running()
    poll = queue.poll_target()
    for method, target in [
        ("GET", "/nowhere"),
        ("PUT", f"/v1/task/{task_id}"),
        ("GET", poll + "x"),
        ("DELETE", poll.replace("?", f"/{task_id}?popreceipt=x&")),
        ("PUT", "/uploads/forged"),
        ("GET", "/control/v1/clock"),
        ("GET", "/events?unknown=1"),
        ("GET", "/"),
    ]:
        with capture_logs() as logs:
            queue.http.open(target, method=method).close()
        [line] = [line for line in logs if line["event"] == "request"]
        assert 400 <= line["status"] < 500, target
        assert line.get("reason"), target


# --- the journal

SIGNED = f"se=2018&sig={SECRET}&sp=p&sv=2025"


class ClosingQueue(Queue):
    """Closes each answer immediately, because a request is recorded when its answer is closed."""

    def _check(self, answer: TestResponse, *more: Any) -> None:
        super()._check(answer, *more)
        answer.get_data()
        answer.close()


@pytest.fixture
def journaled() -> Queue:
    return ClosingQueue(control=True)


def requests(journaled: Queue, query: str = "") -> list[dict[str, Any]]:
    """The requests in the journal, without the fields that are different each time."""
    answer = succeeded(journaled.send("GET", f"/control/v1/requests{query}")).get_json()["requests"]
    for request in answer:
        assert request.pop("ms") >= 0
        assert request.pop("requestId")
        assert parse_time(request.pop("begun")) == parse_time(request.pop("time")) == journaled.clock.now()
    return list(answer)


def last(journaled: Queue) -> dict[str, Any]:
    (request,) = requests(journaled, "?limit=1")
    del request["sequence"]
    return request


def test_a_request_is_recorded_with_its_task_worker_and_client(journaled: Queue) -> None:
    task_id = journaled.running()
    claim = last(journaled)
    until = format_time(journaled.clock.now() + timedelta(minutes=20))
    assert claim == {
        "method": "POST",
        "path": f"/v1/task/{task_id}/runs/0/claim",
        "endpoint": "claimTask",
        "status": 200,
        "clientId": "root",
        "taskId": task_id,
        "runId": 0,
        "taskQueueId": POOL_NAME,
        "priority": "lowest",
        "claims": [{"taskId": task_id, "runId": 0, "takenUntil": until}],
        **WORKER,
    }


def test_a_request_is_recorded_with_the_times_at_which_it_came_and_was_answered() -> None:
    class Clock(FakeClock):
        def now(self) -> datetime:
            self.advance(timedelta(seconds=1))
            return super().now()

    journaled = ClosingQueue(control=True, clock=Clock(NOW))
    journaled.create()
    [request] = succeeded(journaled.send("GET", "/control/v1/requests")).get_json()["requests"]
    assert parse_time(request["time"]) > parse_time(request["begun"]) + timedelta(seconds=1)


def test_a_request_to_an_unknown_path_is_recorded(journaled: Queue) -> None:
    journaled.send("GET", "/nowhere?limit=2", credentials=None)
    request = last(journaled)
    assert "there is no GET /nowhere" in request.pop("reason")
    said = {"method": "GET", "path": "/nowhere?limit=2", "status": 404, "code": "ResourceNotFound"}
    assert request == said


def test_requests_of_signed_urls_are_recorded_with_their_tasks(journaled: Queue) -> None:
    target = journaled.poll_target()
    waiting = journaled.create()
    journaled.send("GET", f"{target}&numofmessages=2", credentials=None)
    polled = last(journaled)
    path = r"/azure/embedded/lq-[a-z0-9-]+-1/messages\?visibilitytimeout=300&numofmessages=2&\*\*\*"
    assert re.fullmatch(path, polled.pop("path"))
    assert polled.pop("expires") in target.replace("%3A", ":")
    [message] = polled.pop("messages")
    assert (message["taskId"], message["runId"], message["dequeueCount"]) == (waiting, 0, 1)
    of_queue = {"taskQueueId": POOL_NAME, "priority": "lowest", "taskId": waiting, "runId": 0}
    assert polled == {"method": "GET", "endpoint": "azure.receive", "status": 200, **of_queue}
    several = sorted(journaled.create() for _ in range(2))
    message, _ = journaled.messages()
    assert sorted(last(journaled)["taskIds"]) == several
    receipt = message.lease.receipt
    for status, code in ((204, None), (404, "MessageNotFound")):
        journaled.delete_message(message.lease)
        request = last(journaled)
        assert (request["endpoint"], request["status"], request.get("code")) == ("azure.delete", status, code)
        assert request["taskId"] in several
        assert [secret for secret in (receipt, quote(receipt, safe="")) if secret in str(request)] == []
    assert request["reason"] == "The specified message does not exist."


def test_the_journal_shows_whether_a_worker_sent_what_it_had_received(journaled: Queue) -> None:
    task_id = journaled.create()
    [message] = journaled.messages()
    received = last(journaled)["messages"]
    proof = message.proof_body
    journaled.claim(task_id, **proof)
    claim = last(journaled)
    assert [claim[name] for name in proof] == [received[0][name] for name in proof]
    assert not any(proof[secret] in str([claim, received]) for secret in ("receipt", "signature"))
    journaled.call("reportException", {"reason": "malformed-payload"}, taskId=task_id, runId=0)
    for name in ("reportedReason", "sentReason"):  # sentReason is the name in 0.1.0
        assert last(journaled)[name] == "malformed-payload"
    journaled.call("reportException", {"reason": SECRET}, taskId=task_id, runId=0)
    assert not {"reportedReason", "sentReason"} & last(journaled).keys()


def test_requests_are_listed_oldest_first_and_calls_of_control_and_event_streams_are_left_out(
    journaled: Queue,
) -> None:
    journaled.send("GET", "/control/v1/clock")
    journaled.send("HEAD", "/events")
    for _ in range(150):
        journaled.send("GET", "/v1/ping", credentials=None)

    def numbers(query: str) -> list[int]:
        return [request["sequence"] for request in requests(journaled, query)]

    assert numbers("") == [*range(51, 151)]
    assert numbers("?limit=3") == [148, 149, 150]
    assert numbers("?after=0&limit=2") == [1, 2]
    assert numbers("?after=100") == [*range(101, 151)]
    assert numbers("?after=150") == []
    assert journaled.send("GET", "/control/v1/requests?after=-1").status_code == 400


# --- secrets


SHOWN = [
    ("/a/b", "/a/b"),
    ("/a?", "/a?"),
    ("/a?limit=5&continuationToken=abc_-", "/a?limit=5&continuationToken=abc_-"),
    ("/a?numofmessages=32&visibilitytimeout=300", "/a?numofmessages=32&visibilitytimeout=300"),
    (f"/a?visibilitytimeout=300&{SIGNED}", "/a?visibilitytimeout=300&***"),
    (f"/a/m?popreceipt={SECRET}%3D&{SIGNED}&timeout=5", "/a/m?timeout=5&***"),
    (f"/a?{SECRET}", "/a?***"),
    (f"/a?limit={SECRET}/{SECRET}?", "/a?***"),
    (f"/a%3Fsig%3D{SECRET}", "/a%3F***"),
    (f"/a/sig={SECRET}", "/a/***"),
    (f"/a?limit=sig%3D{SECRET}", "/a?***"),
]


def test_the_journal_shows_a_query_without_possible_secrets() -> None:
    for target, shown in SHOWN:
        assert shown_target(target) == shown


def test_the_journal_has_no_secret(journaled: Queue) -> None:
    target = f"/v1/task/{slugid()}%3Fsig%3D{SECRET}/status"
    signed = hawk(ROOT, "GET", ROOT_URL + target, journaled.clock.now())
    journaled.send("GET", target, credentials=None, headers={"Authorization": signed})
    proof = {"messageId": SECRET, "receipt": SECRET, "signature": SECRET}
    for body in ({"workerGroup": 5, "workerId": [SECRET]}, proof, ["workerId", SECRET]):
        journaled.call("claimTask", body, taskId=slugid(), runId=0)
    recorded = json.dumps(requests(journaled))
    mac = re.findall(r'mac="([^"]+)"', signed)[0]
    assert [secret for secret in (SECRET, mac, ROOT.access_token) if secret in recorded] == []
