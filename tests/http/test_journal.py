"""The requests that a server under control answered."""

import json
import re
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from werkzeug.test import TestResponse

from legacy_queue.domain.authentication import Client
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.http.request_journal import shown_target
from tests.http.calls import (
    NOW,
    PROVISIONER,
    ROOT,
    ROOT_URL,
    WORKER,
    WORKER_TYPE,
    Queue,
    hawk,
    succeeded,
)
from tests.memory_server import FakeClock

POOL_NAME = f"{PROVISIONER}/{WORKER_TYPE}"
SECRET = "S3CRETsecretS3CRETsecret"
SIGNED = f"se=2018&sig={SECRET}&sp=p&sv=2025"


class ClosingQueue(Queue):
    """A server whose answers are closed at once: their requests are recorded then."""

    def _check(self, answer: TestResponse, *more: Any) -> None:
        super()._check(answer, *more)
        answer.get_data()
        answer.close()


@pytest.fixture
def queue() -> Queue:
    return ClosingQueue(Client("mere", "the-access-token-of-a-mere-client", ("queue:nothing",)), control=True)


def requests(queue: Queue, query: str = "") -> list[dict[str, Any]]:
    """The requests in the journal, without the fields that differ each time."""
    answer = succeeded(queue.send("GET", f"/control/v1/requests{query}")).get_json()["requests"]
    for request in answer:
        assert request.pop("ms") >= 0
        assert request.pop("requestId")
        assert parse_time(request.pop("begun")) == parse_time(request.pop("time")) == queue.clock.now()
    return list(answer)


def last(queue: Queue) -> dict[str, Any]:
    (request,) = requests(queue, "?limit=1")
    del request["sequence"]
    return request


def test_a_request_is_recorded_with_its_task_worker_and_client(queue: Queue) -> None:
    task_id = queue.running()
    claim = last(queue)
    until = format_time(queue.clock.now() + timedelta(minutes=20))
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


def test_a_request_is_recorded_with_the_time_when_it_came_and_that_when_it_was_answered() -> None:
    class Clock(FakeClock):
        def now(self) -> datetime:
            self.advance(timedelta(seconds=1))
            return super().now()

    queue = ClosingQueue(control=True, clock=Clock(NOW))
    queue.create()
    [request] = succeeded(queue.send("GET", "/control/v1/requests")).get_json()["requests"]
    assert parse_time(request["time"]) > parse_time(request["begun"]) + timedelta(seconds=1)


def test_a_request_without_an_endpoint_is_recorded(queue: Queue) -> None:
    queue.send("GET", "/nowhere?limit=2", credentials=None)
    request = last(queue)
    assert "there is no GET /nowhere" in request.pop("reason")
    said = {"method": "GET", "path": "/nowhere?limit=2", "status": 404, "code": "ResourceNotFound"}
    assert request == said
    queue.send("GET", "/ready", credentials=None)
    assert last(queue)["endpoint"] == "ready"


def test_requests_of_signed_urls_are_recorded_with_their_tasks(queue: Queue) -> None:
    target = queue.poll_target()
    waiting = queue.create()
    queue.send("GET", f"{target}&numofmessages=2", credentials=None)
    polled = last(queue)
    assert re.fullmatch(
        r"/azure/embedded/lq-[a-z0-9-]+-1/messages\?visibilitytimeout=300&numofmessages=2&\*\*\*",
        polled.pop("path"),
    )
    assert polled.pop("expires") in target.replace("%3A", ":")
    [message] = polled.pop("messages")
    assert (message["taskId"], message["runId"], message["dequeueCount"]) == (waiting, 0, 1)
    assert polled == {
        "method": "GET",
        "endpoint": "azure.receive",
        "status": 200,
        "taskId": waiting,
        "runId": 0,
        "taskQueueId": POOL_NAME,
        "priority": "lowest",
    }
    several = sorted(queue.create() for _ in range(2))
    message, _ = queue.messages()
    assert sorted(last(queue)["taskIds"]) == several
    receipt = message.lease.receipt
    for status, code in ((204, None), (404, "MessageNotFound")):
        queue.delete_message(message.lease)
        request = last(queue)
        assert (request["endpoint"], request["status"], request.get("code")) == ("azure.delete", status, code)
        assert request["taskId"] in several
        assert [secret for secret in (receipt, quote(receipt, safe="")) if secret in str(request)] == []
    assert request["reason"] == "The specified message does not exist."


def test_what_a_worker_has_sent_can_be_compared_with_what_it_has_received(queue: Queue) -> None:
    task_id = queue.create()
    [message] = queue.messages()
    received = last(queue)["messages"]
    proof = message.proof_body
    queue.claim(task_id, **proof)
    claim = last(queue)
    assert [claim[name] for name in proof] == [received[0][name] for name in proof]
    assert not any(proof[secret] in str([claim, received]) for secret in ("receipt", "signature"))
    queue.call("reportException", {"reason": "malformed-payload"}, taskId=task_id, runId=0)
    assert last(queue)["sentReason"] == "malformed-payload"
    queue.call("reportException", {"reason": SECRET}, taskId=task_id, runId=0)
    assert "sentReason" not in last(queue)


def test_requests_of_control_and_of_event_streams_are_not_recorded(queue: Queue) -> None:
    queue.send("GET", "/control/v1/clock")
    queue.send("HEAD", "/events")
    assert requests(queue) == []


def test_requests_are_listed_oldest_first_and_followed_by_their_numbers(queue: Queue) -> None:
    for _ in range(150):
        queue.send("GET", "/v1/ping", credentials=None)

    def numbers(query: str) -> list[int]:
        return [request["sequence"] for request in requests(queue, query)]

    assert numbers("") == [*range(51, 151)]
    assert numbers("?limit=3") == [148, 149, 150]
    assert numbers("?after=0&limit=2") == [1, 2]
    assert numbers("?after=100") == [*range(101, 151)]
    assert numbers("?after=150") == []
    assert queue.send("GET", "/control/v1/requests?after=-1").status_code == 400


# --- secrets


SHOWN = [
    ("/a/b", "/a/b"),
    ("/a?", "/a?"),
    ("/a?limit=5&continuationToken=abc_-", "/a?limit=5&continuationToken=abc_-"),
    ("/a?numofmessages=32&visibilitytimeout=300", "/a?numofmessages=32&visibilitytimeout=300"),
    (f"/a?visibilitytimeout=300&{SIGNED}", "/a?visibilitytimeout=300&***"),
    (f"/a/m?popreceipt={SECRET}%3D&{SIGNED}&timeout=5", "/a/m?timeout=5&***"),
    (f"/uploads/ticket?signature={SECRET}", "/uploads/ticket?***"),
    (f"/a?bewit={SECRET}", "/a?***"),
    (f"/a?{SECRET}", "/a?***"),
    (f"/a?limit={SECRET}/{SECRET}?", "/a?***"),
    (f"/a%3Fsig%3D{SECRET}", "/a%3F***"),
    (f"/a/sig={SECRET}", "/a/***"),
    (f"/a?limit=sig%3D{SECRET}", "/a?***"),
]


def test_a_query_is_shown_without_possible_secrets() -> None:
    for target, shown in SHOWN:
        assert shown_target(target) == shown


def test_the_journal_holds_no_secret(queue: Queue) -> None:
    target = f"/v1/task/{slugid()}%3Fsig%3D{SECRET}/status"
    signed = hawk(ROOT, "GET", ROOT_URL + target, queue.clock.now())
    queue.send("GET", target, credentials=None, headers={"Authorization": signed})
    queue.call("createTask", {"payload": {"accessToken": SECRET}, "workerId": SECRET * 9}, taskId=slugid())
    proof = {"messageId": SECRET, "receipt": SECRET, "signature": SECRET}
    for body in ({"workerGroup": 5, "workerId": [SECRET]}, proof, ["workerId", SECRET]):
        queue.call("claimTask", body, taskId=slugid(), runId=0)
    recorded = json.dumps(requests(queue))
    mac = re.findall(r'mac="([^"]+)"', signed)[0]
    assert [secret for secret in (SECRET, mac, ROOT.access_token) if secret in recorded] == []
