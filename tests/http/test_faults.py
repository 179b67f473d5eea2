"""What a fault does to a request, on memory storage: to endpoints, to signed URLs of messages, to uploads."""

import base64
import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from werkzeug.test import TestResponse

from legacy_queue.domain.ids import slugid
from tests.http.calls import (
    BLOB,
    NAME,
    POOL,
    PROVISIONER,
    ROOT,
    ROOT_URL,
    WORKER,
    WORKER_TYPE,
    Queue,
    play,
    refused,
    succeeded,
    task_body,
)


class FaultyQueue(Queue):
    """A server under control. Its answers are not checked: a fault may be an answer of any form."""

    def __init__(self) -> None:
        super().__init__(control=True)

    def _check(self, *_: Any) -> None:
        """Do not check the answer."""


@pytest.fixture
def queue() -> Queue:
    return FaultyQueue()


def add(queue: Queue, endpoint: str, **wire: Any) -> str:
    """The id of the new fault."""
    body = json.dumps({"endpoint": endpoint, **wire}).encode()
    return str(succeeded(queue.send("POST", "/control/v1/faults", body)).get_json()["faultId"])


def remove(queue: Queue, fault_id: str) -> TestResponse:
    return queue.send("DELETE", f"/control/v1/faults/{fault_id}")


def fired(queue: Queue) -> list[int]:
    faults = succeeded(queue.send("GET", "/control/v1/faults")).get_json()["faults"]
    return [fault["fired"] for fault in faults]


def dropped(queue: Queue, *call: Any, **more: Any) -> None:
    """Check that the call gets no answer; it begins with a method if it is of a signed URL."""
    method = queue.send if call[0] in ("GET", "PUT", "DELETE") else queue.call
    with pytest.raises(ConnectionResetError):
        method(*call, **more).get_data()


# --- the list of faults


def test_a_fault_is_added_listed_and_removed(queue: Queue) -> None:
    wire: dict[str, Any] = {
        "endpoint": "status",
        "status": 503,
        "message": "later",
        "times": 2,
        "taskId": slugid(),
    }
    fault_id = add(queue, **wire)
    shown = {"faultId": fault_id, **wire, "fired": 0}
    assert queue.send("GET", "/control/v1/faults").get_json() == {"faults": [shown]}
    assert succeeded(remove(queue, fault_id)).get_json() == shown
    assert fired(queue) == []
    refused(remove(queue, fault_id), 404, "ResourceNotFound", fault_id)


@pytest.mark.parametrize(
    ("wire", "code", "mentioned"),
    [
        ({"endpoint": "claimtask", "status": 503}, "InputError", "the nearest is claimTask"),
        ({"endpoint": "controlClock", "status": 503}, "InputError", "there is no 'controlClock'"),
        (
            {"endpoint": "listTaskGroup", "status": 503, "worker": "a/b"},
            "InputError",
            "does not name the worker",
        ),
        ({"endpoint": "status", "status": 200}, "InputValidationError", "body/status is 200"),
        ({"endpoint": "status", "drop": "later"}, "InputValidationError", "before, after"),
        ({"endpoint": "status", "status": 503, "task": "x"}, "InputValidationError", "'task'"),
        ({"endpoint": "status", "status": 503, "probability": 0}, "InputValidationError", "probability"),
        ({"endpoint": "azure.receive", "lose": False}, "InputValidationError", "body/lose"),
    ],
)
def test_an_impossible_fault_is_refused(
    queue: Queue, wire: dict[str, Any], code: str, mentioned: str
) -> None:
    answer = queue.send("POST", "/control/v1/faults", json.dumps(wire).encode())
    refused(answer, 400, code, mentioned)


@pytest.mark.parametrize(
    "endpoint", ["createUpload", "objectPing", "createTask", "ping", "azure.delete", "upload"]
)
def test_endpoints_of_all_references_may_have_a_fault(queue: Queue, endpoint: str) -> None:
    assert add(queue, endpoint, status=500)


# --- errors


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "InputError"),
        (401, "AuthenticationFailed"),
        (403, "InsufficientScopes"),
        (404, "ResourceNotFound"),
        (409, "RequestConflict"),
        (410, "ResourceExpired"),
        (413, "InputTooLarge"),
        (429, "TooManyRequests"),
        (499, "InputError"),
        (502, "BadGateway"),
        (503, "ServiceUnavailable"),
        (599, "InternalServerError"),
    ],
)
def test_an_injected_error_is_like_one_of_the_server(queue: Queue, status: int, code: str) -> None:
    task_id, fault_id = queue.create(), add(queue, "claimTask", status=status)
    answer = queue.call("claimTask", WORKER, taskId=task_id, runId=0)
    body = answer.get_json()
    assert (answer.status_code, body["code"]) == (status, code)
    assert fault_id in body["message"]
    assert body["requestInfo"]["method"] == "claimTask"
    assert body["requestInfo"]["params"]["taskId"] == task_id
    assert answer.headers.get("retry-after") == ("2" if status == 503 else None)
    assert answer.headers.get("www-authenticate") == ("hawk" if status == 401 else None)
    assert queue.state(task_id) == "pending", "the call was not carried out"


def test_an_injected_internal_error_has_its_code(queue: Queue) -> None:
    add(queue, "status", status=500)
    answer = queue.call("status", taskId=queue.create())
    assert (answer.status_code, answer.get_json()["code"]) == (500, "InternalServerError")


def test_an_injected_error_has_the_message_of_the_fault(queue: Queue) -> None:
    fault_id = add(queue, "createTask", status=503, message="storage is full")
    answer = queue.call("createTask", task_body(), taskId=slugid())
    assert refused(answer, 503, "ServiceUnavailable") == f"storage is full (fault {fault_id})"


@pytest.mark.parametrize("message", ["\0", "a\x1fb", "\uffff", "two\nlines", "\u2028"])
def test_a_message_that_is_not_a_line_of_text_is_refused(queue: Queue, message: str) -> None:
    body = json.dumps({"endpoint": "azure.receive", "status": 503, "message": message}).encode()
    refused(queue.send("POST", "/control/v1/faults", body), 400, "InputValidationError")
    add(queue, "azure.receive", status=503, message="é 😀")


def test_a_request_that_the_server_refuses_does_not_use_up_a_fault(queue: Queue) -> None:
    add(queue, "claimTask", status=503)
    refused(queue.call("claimTask", {}, taskId=queue.create(), runId=0), 400, "InputValidationError")
    assert fired(queue) == [0]


def test_a_request_with_a_wrong_signature_does_not_use_up_a_fault(queue: Queue) -> None:
    add(queue, "pollTaskUrls", status=503)
    answer = queue.call("pollTaskUrls", credentials=replace(ROOT, access_token="wrong"), **POOL)
    refused(answer, 401, "AuthenticationFailed")
    assert fired(queue) == [0]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("claimTask", WORKER),
        ("reclaimTask", None),
        ("reportCompleted", {}),
        (
            "createArtifact",
            {
                "storageType": "error",
                "expires": "2018-03-05T05:06:07.890Z",
                "reason": "file-missing-on-worker",
                "message": "m",
            },
        ),
    ],
)
def test_a_fault_of_a_worker_happens_to_the_runs_of_that_worker(queue: Queue, name: str, body: Any) -> None:
    """The body of claimTask names the worker; the other endpoints are about a run that it claimed."""
    task_id = queue.running()
    for worker, status in (("group/bob", 200), ("group/alice", 503)):
        fault_id = add(queue, name, status=503, worker=worker)
        answer = queue.call(name, body, taskId=task_id, runId=0, name="public/a")
        assert answer.status_code == status, answer.get_data()
        if name == "reportCompleted" and status == 200:
            task_id = queue.running()
        remove(queue, fault_id)


def test_a_fault_of_a_worker_does_not_happen_to_an_unclaimed_run(queue: Queue) -> None:
    add(queue, "reclaimTask", status=503, worker="group/alice")
    refused(queue.call("reclaimTask", taskId=slugid(), runId=0), 404, "ResourceNotFound")
    refused(queue.call("reclaimTask", taskId=queue.create(), runId=0), 409, "RequestConflict")


def test_a_fault_of_a_worker_happens_where_the_path_names_the_worker(queue: Queue) -> None:
    queue.running()
    add(queue, "getWorker", status=503, worker="group/alice")
    answers = [
        queue.call("getWorker", **POOL, workerGroup="group", workerId=worker_id).status_code
        for worker_id in ("alice", "bob")
    ]
    assert answers == [503, 404]


def test_a_fault_of_finish_artifact_does_not_happen_to_complete_artifact(queue: Queue) -> None:
    """Both have the same route."""
    add(queue, "finishArtifact", status=503)
    assert play(queue, "completeArtifact").status_code == 204
    assert play(FaultyQueue(), "finishArtifact").status_code == 204
    other = FaultyQueue()
    add(other, "finishArtifact", status=503)
    refused(play(other, "finishArtifact"), 503, "ServiceUnavailable")


# --- dropped connections and delays


def test_a_request_that_is_dropped_before_does_nothing(queue: Queue) -> None:
    task_id = slugid()
    add(queue, "createTask", drop="before", times=1)
    dropped(queue, "createTask", task_body(), taskId=task_id)
    refused(queue.call("status", taskId=task_id), 404, "ResourceNotFound")
    queue.create(task_id)


def test_a_request_that_is_dropped_after_is_carried_out(queue: Queue) -> None:
    task_id = slugid()
    add(queue, "createTask", drop="after", times=1)
    dropped(queue, "createTask", task_body(), taskId=task_id)
    assert queue.state(task_id) == "pending"


def test_a_dropped_page_releases_its_memory(queue: Queue) -> None:
    group_id = slugid()
    for _ in range(5):
        queue.create(taskGroupId=group_id, payload={"log": "x" * 800 * 1024})
    add(queue, "listTaskGroup", drop="after", times=12)
    for _ in range(12):
        dropped(queue, "listTaskGroup", taskGroupId=group_id)
    succeeded(queue.call("listTaskGroup", taskGroupId=group_id)).close()


def test_a_delay_delays_the_answer(queue: Queue) -> None:
    add(queue, "createTask", delay="50ms")
    begun = time.monotonic()
    queue.create()
    assert time.monotonic() - begun >= 0.05


def test_a_delay_ends_with_the_server(queue: Queue) -> None:
    add(queue, "createTask", delay="10m", status=503)
    queue.server.background.stopping.set()
    refused(queue.call("createTask", task_body(), taskId=slugid()), 503, "ServiceUnavailable")


# --- poll URLs, messages


def poll_urls(queue: Queue) -> Mapping[str, Any]:
    answer = succeeded(queue.call("pollTaskUrls", **POOL)).get_json()
    return {**answer["queues"][-1], "expires": answer["expires"]}


def receive(queue: Queue, count: int = 1, status: int = 200) -> list[tuple[str, str, str]]:
    """taskId, messageId and receipt of the messages that a poll of the lowest priority receives."""
    target = poll_urls(queue)["signedPollUrl"].removeprefix(ROOT_URL)
    answer = queue.send("GET", f"{target}&numofmessages={count}", credentials=None)
    assert answer.status_code == status
    received = []
    for message in re.findall(r"<QueueMessage>.*?</QueueMessage>", answer.get_data(as_text=True)):
        message_id, receipt, text = (
            re.findall(f"<{tag}>(.*?)</{tag}>", message)[0]
            for tag in ("MessageId", "PopReceipt", "MessageText")
        )
        received.append((json.loads(base64.b64decode(text))["taskId"], message_id, receipt))
    return received


def delete_target(queue: Queue, message_id: str, receipt: str) -> str:
    url = poll_urls(queue)["signedDeleteUrl"].removeprefix(ROOT_URL)
    return str(url.replace("{{messageId}}", message_id).replace("{{popReceipt}}", quote(receipt, safe="")))


def delete(queue: Queue, message_id: str, receipt: str) -> tuple[int, str | None]:
    answer = queue.send("DELETE", delete_target(queue, message_id, receipt), credentials=None)
    return answer.status_code, answer.headers.get("x-ms-error-code")


def messages(queue: Queue) -> list[Any]:
    target = f"/control/v1/messages/{PROVISIONER}/{WORKER_TYPE}"
    return list(succeeded(queue.send("GET", target)).get_json()["messages"])


def test_poll_urls_may_be_expired(queue: Queue) -> None:
    queue.create()
    add(queue, "pollTaskUrls", sas="expired", times=1)
    expired = poll_urls(queue)
    assert expired["expires"] < poll_urls(queue)["expires"]
    for method, name in (("GET", "signedPollUrl"), ("DELETE", "signedDeleteUrl")):
        target = expired[name].removeprefix(ROOT_URL).replace("{{messageId}}", "m")
        answer = queue.send(method, target.replace("{{popReceipt}}", "AAAA"), credentials=None)
        assert (answer.status_code, answer.headers["x-ms-error-code"]) == (403, "AuthenticationFailed")
    assert len(receive(queue)) == 1


def test_a_doubled_message_is_received_twice(queue: Queue) -> None:
    task_id = queue.create()
    add(queue, "azure.receive", double=True, times=1)
    ((first, message_id, receipt),) = receive(queue)
    assert delete(queue, message_id, receipt) == (204, None)
    ((second, message_id, receipt),) = receive(queue)
    assert first == second == task_id
    assert delete(queue, message_id, receipt) == (204, None)
    assert receive(queue) == []
    assert fired(queue) == [1]


def test_each_message_is_doubled_once(queue: Queue) -> None:
    tasks = [queue.create(), queue.create()]
    add(queue, "azure.receive", double=True)
    assert [receive(queue)[0][0] for _ in range(4)] == tasks * 2
    assert receive(queue) == []
    assert fired(queue) == [2]


def test_a_lost_message_is_not_received(queue: Queue) -> None:
    lost, other = queue.create(), queue.create()
    add(queue, "azure.receive", lose=True, taskId=lost)
    assert [task_id for task_id, *_ in receive(queue, 32)] == [other]
    assert [message["taskId"] for message in messages(queue)] == [other]


def test_a_stale_receipt_does_not_delete(queue: Queue) -> None:
    queue.create()
    add(queue, "azure.receive", stale=True, times=1)
    ((_, message_id, receipt),) = receive(queue)
    assert delete(queue, message_id, receipt) == (400, "PopReceiptMismatch")
    assert receive(queue) == [], "the message is invisible for the usual time"
    queue.clock.advance(timedelta(minutes=5))
    ((_, message_id, receipt),) = receive(queue)
    assert delete(queue, message_id, receipt) == (204, None)


def test_a_fault_of_messages_happens_to_the_next_message(queue: Queue) -> None:
    add(queue, "azure.receive", drop="after", times=1)
    assert receive(queue) == []
    task_id = queue.create()
    target = poll_urls(queue)["signedPollUrl"].removeprefix(ROOT_URL)
    dropped(queue, "GET", target, credentials=None)
    assert [message["dequeueCount"] for message in messages(queue)] == [1]
    queue.clock.advance(timedelta(minutes=5))
    assert [received for received, *_ in receive(queue)] == [task_id]


def test_a_foreign_message_may_have_a_fault(queue: Queue) -> None:
    poll_urls(queue)
    account = queue.server.storage.account
    (lowest,) = (name for name, _ in account.queues("lq-") if name.endswith("-1"))
    account.queue(lowest).put(base64.b64encode(b'{"taskId": "foreign"}').decode(), timedelta(0))
    add(queue, "azure.receive", double=True, times=1)
    assert [receive(queue)[0][0] for _ in range(2)] == ["foreign", "foreign"]
    assert [message.get("taskId") for message in messages(queue)] == [None, None]


def test_a_message_that_expires_too_soon_is_not_made_stale(queue: Queue) -> None:
    """A message that expires while it is invisible cannot be hidden for so long."""
    queue.create(deadline="2018-03-04T05:07:07.890Z")
    add(queue, "azure.receive", stale=True, times=1)
    ((_, message_id, receipt),) = receive(queue)
    assert delete(queue, message_id, receipt) == (204, None)


@pytest.mark.parametrize(
    ("endpoint", "status", "code"),
    [
        ("azure.receive", 400, "InvalidInput"),
        ("azure.receive", 403, "AuthenticationFailed"),
        ("azure.receive", 404, "QueueNotFound"),
        ("azure.receive", 500, "InternalError"),
        ("azure.receive", 503, "ServerBusy"),
        ("azure.receive", 429, "TooManyRequests"),
        ("azure.delete", 400, "PopReceiptMismatch"),
        ("azure.delete", 404, "MessageNotFound"),
        ("azure.delete", 503, "ServerBusy"),
    ],
)
def test_an_injected_error_at_a_signed_url_is_like_one_of_azure(
    queue: Queue, endpoint: str, status: int, code: str
) -> None:
    task_id = queue.create()
    ((_, message_id, receipt),) = receive(queue)
    fault_id = add(queue, endpoint, status=status)
    target = delete_target(queue, message_id, receipt)
    if endpoint == "azure.receive":
        target = poll_urls(queue)["signedPollUrl"].removeprefix(ROOT_URL)
    answer = queue.send("GET" if endpoint == "azure.receive" else "DELETE", target, credentials=None)
    assert (answer.status_code, answer.headers["x-ms-error-code"]) == (status, code)
    text = answer.get_data(as_text=True)
    assert f"<Error><Code>{code}</Code><Message>" in text
    assert fault_id in text
    assert ("Retry-After" in answer.headers) == (status == 503)
    assert [message["taskId"] for message in messages(queue)] == [task_id], "the call was not carried out"


def test_a_fault_of_a_task_happens_to_the_messages_of_that_task(queue: Queue) -> None:
    """The task of a delete is that of its message, which was received before."""
    faulty, other = queue.create(), queue.create()
    add(queue, "azure.delete", status=503, taskId=faulty)
    received = {task_id: lease for task_id, *lease in receive(queue, 2)}
    assert delete(queue, *received[other]) == (204, None)
    assert delete(queue, *received[faulty]) == (503, "ServerBusy")


def test_a_delete_is_carried_out_only_if_it_is_dropped_after(queue: Queue) -> None:
    for when, left in (("before", 1), ("after", 0)):
        queue = FaultyQueue()
        queue.create()
        ((_, *lease),) = receive(queue)
        add(queue, "azure.delete", drop=when)
        dropped(queue, "DELETE", delete_target(queue, *lease), credentials=None)
        assert len(messages(queue)) == left


def test_a_signed_url_that_is_refused_does_not_use_up_a_fault(queue: Queue) -> None:
    add(queue, "azure.receive", status=503)
    target = poll_urls(queue)["signedPollUrl"].removeprefix(ROOT_URL).replace("sig=", "sig=A")
    assert queue.send("GET", target, credentials=None).status_code == 403
    assert fired(queue) == [0]


# --- uploads


def upload_url(queue: Queue, task_id: str, storage_type: str) -> str:
    created = succeeded(queue.artifact(task_id, NAME, storage_type)).get_json()
    return str(created.get("putUrl") or created["requests"][0]["url"])


def upload(queue: Queue, url: str) -> TestResponse:
    return queue.upload(url, BLOB, x_ms_blob_type="BlockBlob")


@pytest.mark.parametrize("storage_type", ["s3", "azure", "blob"])
def test_a_fault_of_a_task_happens_to_the_uploads_of_that_task(queue: Queue, storage_type: str) -> None:
    """The error has the form of the service that the URL belongs to."""
    faulty, other = queue.running(), queue.running()
    urls = [upload_url(queue, task_id, storage_type) for task_id in (faulty, other)]
    fault_id = add(queue, "upload", status=503, taskId=faulty)
    answers = [upload(queue, url) for url in urls]
    assert [answer.status_code for answer in answers] == [503, 201 if storage_type == "azure" else 200]
    assert fault_id in answers[0].get_data(as_text=True)
    if storage_type == "azure":
        assert answers[0].headers["x-ms-error-code"] == "ServerBusy"
    else:
        refused(answers[0], 503, "ServiceUnavailable")


@pytest.mark.parametrize("storage_type", ["s3", "azure"])
@pytest.mark.parametrize(("when", "is_stored"), [("before", False), ("after", True)])
def test_an_upload_is_stored_only_if_it_is_dropped_after(
    queue: Queue, storage_type: str, when: str, is_stored: bool
) -> None:
    task_id = queue.running()
    url = upload_url(queue, task_id, storage_type)
    add(queue, "upload", drop=when)
    with pytest.raises(ConnectionResetError):
        upload(queue, url).get_data()
    name = f"{task_id}/0/{hashlib.sha256(NAME.encode()).hexdigest()}"
    assert bool(queue.server.storage.account.container.properties(name)) is is_stored


def test_an_upload_that_is_refused_does_not_use_up_a_fault(queue: Queue) -> None:
    url = upload_url(queue, queue.running(), "s3")
    add(queue, "upload", status=503)
    refused(upload(queue, f"{url}0"), 403, "AuthorizationFailed")
    assert fired(queue) == [0]
