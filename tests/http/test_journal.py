"""The requests that a server under control saw, and the messages in its queues."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from werkzeug.test import TestResponse

from legacy_queue.domain.authentication import Client
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import parse_time
from legacy_queue.http.request_journal import Journal, shown_target
from legacy_queue.http.request_log import RequestRecord
from tests.http.calls import (
    BLOB,
    NAME,
    POOL,
    PROVISIONER,
    ROOT,
    ROOT_URL,
    WORKER,
    WORKER_TYPE,
    Credentials,
    Queue,
    hawk,
    succeeded,
)

SECRET = "S3CRETsecretS3CRETsecret"
SIGNED = f"se=2018&sig={SECRET}&sp=p&sv=2025"


class ClosingQueue(Queue):
    """Whose answers are closed, upon which their requests are noted."""

    def _check(self, answer: TestResponse, *more: Any) -> None:
        super()._check(answer, *more)
        answer.get_data()
        answer.close()


@pytest.fixture
def queue() -> Queue:
    return ClosingQueue(Client("mere", "the-access-token-of-a-mere-client", ("queue:nothing",)), control=True)


def requests(queue: Queue, query: str = "") -> list[dict[str, Any]]:
    """As the journal has them, without what differs each time."""
    answer = succeeded(queue.send("GET", f"/control/v1/requests{query}")).get_json()["requests"]
    for one in answer:
        assert one.pop("ms") >= 0
        assert one.pop("requestId")
        assert abs(parse_time(one.pop("time")) - datetime.now(UTC)) < timedelta(minutes=10)
    return list(answer)


def last(queue: Queue) -> dict[str, Any]:
    (one,) = requests(queue, "?limit=1")
    del one["sequence"]
    return one


def poll_target(queue: Queue, name: str = "signedPollUrl") -> str:
    urls = succeeded(queue.call("pollTaskUrls", **POOL)).get_json()["queues"]
    return str(urls[-1][name].removeprefix(ROOT_URL))


def test_a_request_is_noted_with_its_task_worker_and_client(queue: Queue) -> None:
    task_id = queue.running()
    claim = last(queue)
    assert claim == {
        "method": "POST",
        "path": f"/v1/task/{task_id}/runs/0/claim",
        "endpoint": "claimTask",
        "status": 200,
        "clientId": "root",
        "taskId": task_id,
        "runId": 0,
        **WORKER,
    }


def test_what_has_no_endpoint_is_noted_too(queue: Queue) -> None:
    queue.send("GET", "/nowhere?limit=2", credentials=None)
    assert last(queue) == {
        "method": "GET",
        "path": "/nowhere?limit=2",
        "status": 404,
        "code": "ResourceNotFound",
        "reason": "there is no GET /nowhere; /references/queue/v1/api.json lists what there is",
    }
    queue.send("GET", "/ready", credentials=None)
    assert last(queue)["endpoint"] == "ready"


def test_a_refusal_is_noted_with_the_first_line_of_its_message(queue: Queue) -> None:
    task_id = queue.running()
    queue.claim(task_id, workerId="bob")
    one = last(queue)
    assert (one["status"], one["code"], one["workerId"]) == (409, "RequestConflict", "bob")
    assert one["reason"].startswith(f"task {task_id}")
    assert "\n" not in one["reason"]


def test_only_the_journal_says_why_credentials_are_refused(queue: Queue) -> None:
    wrong = Credentials("mere", "another-token-than-that-of-the-client")
    queue.call("pollTaskUrls", credentials=wrong, **POOL)
    one = last(queue)
    assert (one["status"], one["code"], one["reason"]) == (401, "AuthenticationFailed", one["reason"])
    assert one["reason"].startswith("wrong key")
    assert "clientId" not in one


def test_a_fault_is_noted(queue: Queue) -> None:
    body = json.dumps({"endpoint": "ping", "status": 503}).encode()
    fault_id = succeeded(queue.send("POST", "/control/v1/faults", body)).get_json()["faultId"]
    queue.send("GET", "/v1/ping")
    assert (last(queue)["fault"], last(queue)["status"]) == (fault_id, 503)


def test_requests_of_signed_urls_are_noted_with_their_tasks(queue: Queue) -> None:
    target = poll_target(queue)
    waiting = queue.create()
    queue.send("GET", f"{target}&numofmessages=2", credentials=None)
    polled = last(queue)
    assert re.fullmatch(
        r"/azure/memorystore1/lq-[a-z0-9-]+-1/messages\?visibilitytimeout=300&numofmessages=2&\*\*\*",
        polled.pop("path"),
    )
    assert polled == {
        "method": "GET",
        "endpoint": "azure.receive",
        "status": 200,
        "taskId": waiting,
        "runId": 0,
    }
    several = sorted(queue.create() for _ in range(2))
    [(_, _, message_id, receipt, _), _] = queue.messages()
    assert sorted(last(queue)["taskIds"]) == several
    target = poll_target(queue, "signedDeleteUrl").replace("{{messageId}}", message_id)
    target = target.replace("{{popReceipt}}", quote(receipt, safe=""))
    for status, code in ((204, None), (404, "MessageNotFound")):
        queue.send("DELETE", target, credentials=None)
        one = last(queue)
        assert (one["endpoint"], one["status"], one.get("code")) == ("azure.delete", status, code)
        assert one["taskId"] in several
        assert [secret for secret in (receipt, quote(receipt, safe="")) if secret in str(one)] == []
    assert one["reason"] == "The specified message does not exist."


def test_what_was_claimed_is_noted(queue: Queue) -> None:
    several = sorted(queue.create() for _ in range(2))
    queue.call("claimWork", {**WORKER, "tasks": 2}, **POOL)
    claimed = last(queue)
    assert (claimed["endpoint"], sorted(claimed["taskIds"])) == ("claimWork", several)
    assert (claimed["workerGroup"], claimed["workerId"]) == ("group", "alice")


def test_uploads_are_noted_with_their_tasks(queue: Queue) -> None:
    task_id = queue.running()
    for storage_type, status in (("s3", 200), ("azure", 201)):
        created = succeeded(queue.artifact(task_id, f"{NAME}/{storage_type}", storage_type)).get_json()
        queue.upload(created["putUrl"], BLOB, x_ms_blob_type="BlockBlob")
        one = last(queue)
        assert (one["endpoint"], one["status"], one["taskId"], one["runId"]) == ("upload", status, task_id, 0)
        assert "sig" not in one["path"]


def test_what_is_no_blob_of_a_run_is_noted_without_one(queue: Queue) -> None:
    blobs = queue.server.storage.blobs
    soon = queue.clock.now() + timedelta(hours=1)
    queue.upload(blobs.upload_url("a/b", soon), BLOB, x_ms_blob_type="BlockBlob")
    assert (last(queue)["status"], "taskId" in last(queue)) == (201, False)
    queue.send("GET", blobs.download_url("a/b", soon).removeprefix(ROOT_URL), credentials=None)
    assert (last(queue)["endpoint"], last(queue)["status"]) == ("download", 200)


def test_a_refused_signed_url_is_noted_with_the_reason_that_the_answer_does_not_give(queue: Queue) -> None:
    past = queue.clock.now() - timedelta(hours=1)
    expired = queue.server.storage.blobs.download_url("a/b", past).removeprefix(ROOT_URL)
    for endpoint, refused, reason in (
        ("azure.receive", poll_target(queue).replace("sig=", "sig=A"), "the URL is not signed by this"),
        ("download", expired, f"Z until {past:%Y-%m-%dT%H:%M:%S}Z"),
        ("download", f"{expired}&si=x", "the URL is not signed by this server's key"),
    ):
        answer = queue.send("GET", refused, credentials=None)
        assert reason not in answer.text
        one = last(queue)
        assert (one["endpoint"], one["status"], one["code"]) == (endpoint, 403, "AuthenticationFailed")
        assert reason in one["reason"]


def test_control_and_event_streams_are_not_noted(queue: Queue) -> None:
    assert requests(queue) == []
    for target in ("/control/v1/clock", "/control/v1/faults", "/events"):
        method = "HEAD" if target == "/events" else "GET"
        queue.send(method, target)
    assert requests(queue) == []


def test_the_last_requests_come_oldest_first_and_are_followed_by_their_numbers(queue: Queue) -> None:
    for _ in range(150):
        queue.send("GET", "/v1/ping", credentials=None)

    def numbers(query: str) -> list[int]:
        return [one["sequence"] for one in requests(queue, query)]

    assert numbers("") == [*range(51, 151)]
    assert numbers("?limit=3") == [148, 149, 150]
    assert numbers("?after=0&limit=2") == [1, 2]
    assert numbers("?after=100") == [*range(101, 151)]
    assert numbers("?after=150") == []
    assert queue.send("GET", "/control/v1/requests?after=-1").status_code == 400


def test_no_more_than_the_last_10_000_are_kept() -> None:
    journal = Journal(frozenset())
    record = RequestRecord({"REQUEST_METHOD": "GET", "RAW_URI": "/v1/ping"})
    for _ in range(10_003):
        journal.answered(record)
    kept = journal.requests(20_000, None)
    assert [kept[0]["sequence"], kept[-1]["sequence"], len(kept)] == [4, 10_003, 10_000]


# --- secrets


@pytest.mark.parametrize(
    ("target", "shown"),
    [
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
    ],
)
def test_a_query_is_shown_without_what_might_be_secret(target: str, shown: str) -> None:
    assert shown_target(target) == shown


def test_nothing_of_what_signs_is_in_the_journal(queue: Queue) -> None:
    target = f"/v1/task/{slugid()}%3Fsig%3D{SECRET}/status"
    signed = hawk(ROOT, "GET", ROOT_URL + target, queue.clock.now())
    queue.send("GET", target, credentials=None, headers={"Authorization": signed})
    queue.call("createTask", {"payload": {"accessToken": SECRET}, "workerId": SECRET * 9}, taskId=slugid())
    queue.call("claimTask", {"workerGroup": 5, "workerId": [SECRET]}, taskId=slugid(), runId=0)
    queue.call("claimTask", ["workerId", SECRET], taskId=slugid(), runId=0)
    noted = json.dumps(requests(queue))
    mac = re.findall(r'mac="([^"]+)"', signed)[0]
    assert [secret for secret in (SECRET, mac, ROOT.access_token) if secret in noted] == []


# --- messages


def messages(queue: Queue) -> Any:
    return succeeded(queue.send("GET", f"/control/v1/messages/{PROVISIONER}/{WORKER_TYPE}")).get_json()


def test_messages_are_seen_without_receiving_them(queue: Queue) -> None:
    low, high = queue.create(), queue.create(priority="high")
    claimed = queue.running()
    for _ in range(2):
        seen = messages(queue)
        assert (seen["taskQueueId"], seen["hidden"]) == (f"{PROVISIONER}/{WORKER_TYPE}", 0)
        found = [
            (one["taskId"], one["runId"], one["priority"], one["visibleIn"], one["dequeueCount"])
            for one in seen["messages"]
        ]
        assert found == [
            (high, 0, "high", 0, 0),
            (low, 0, "lowest", 0, 0),
            (claimed, 0, "lowest", 0, 0),
            (claimed, 1, "lowest", 1200, 0),
        ]
        assert len({one["messageId"] for one in seen["messages"]}) == 4


def test_a_worker_type_without_work_has_no_messages(queue: Queue) -> None:
    assert messages(queue)["messages"] == []
    assert list(queue.server.storage.account.queues("lq-")) == [], "no queue was made"
