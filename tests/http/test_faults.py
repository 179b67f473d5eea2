"""What a fault does to a request, on memory storage: to endpoints, to signed URLs of messages, to uploads."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from werkzeug.test import TestResponse

from legacy_queue.domain.ids import slugid
from legacy_queue.domain.messages import MessageLease
from tests.http.calls import (
    BLOB,
    NAME,
    POOL,
    PROVISIONER,
    ROOT_URL,
    WORKER,
    WORKER_TYPE,
    Queue,
    artifact_body,
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


# --- errors


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "InputError"),
        (409, "RequestConflict"),
        (429, "TooManyRequests"),
        (499, "InputError"),
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


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("claimTask", WORKER),
        ("reclaimTask", None),
        ("reportCompleted", {}),
        ("createArtifact", artifact_body("error")),
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


# --- dropped connections and delays


@pytest.mark.parametrize(("when", "status"), [("before", 404), ("after", 200)])
def test_a_request_that_is_dropped_after_is_carried_out_and_before_does_nothing(
    queue: Queue, when: str, status: int
) -> None:
    task_id = slugid()
    add(queue, "createTask", drop=when, times=1)
    with pytest.raises(ConnectionResetError):
        queue.call("createTask", task_body(), taskId=task_id)
    assert queue.call("status", taskId=task_id).status_code == status
    queue.create(task_id)


def test_a_delay_ends_with_the_server(queue: Queue) -> None:
    add(queue, "createTask", delay="10m", status=503)
    queue.server.background.stopping.set()
    refused(queue.call("createTask", task_body(), taskId=slugid()), 503, "ServiceUnavailable")


# --- poll URLs, messages


def poll_urls(queue: Queue) -> Mapping[str, Any]:
    answer = succeeded(queue.call("pollTaskUrls", **POOL)).get_json()
    return {**answer["queues"][-1], "expires": answer["expires"]}


def messages(queue: Queue) -> list[Any]:
    target = f"/inspect/v1/messages/{PROVISIONER}/{WORKER_TYPE}"
    return list(succeeded(queue.send("GET", target)).get_json()["messages"])


def test_poll_urls_may_expire_soon(queue: Queue) -> None:
    queue.create()
    add(queue, "pollTaskUrls", sas="8s", times=1)
    target = poll_urls(queue)["signedPollUrl"].removeprefix(ROOT_URL)
    assert queue.send("GET", target, credentials=None).status_code == 200
    queue.clock.advance(timedelta(seconds=8))
    assert queue.send("GET", target, credentials=None).status_code == 403


def test_a_lost_message_is_not_received(queue: Queue) -> None:
    lost, other = queue.create(), queue.create()
    add(queue, "azure.receive", lose=True, taskId=lost)
    assert [message.task_id for message in queue.messages()] == [other]
    assert [message["taskId"] for message in messages(queue)] == [other]


def test_a_stale_receipt_does_not_delete(queue: Queue) -> None:
    queue.create()
    add(queue, "azure.receive", stale=True, times=1)
    [message] = queue.messages()
    assert queue.delete(poll_urls(queue)["signedDeleteUrl"], message.lease).status_code == 404
    assert queue.messages() == [], "the message is invisible for the usual time"
    queue.clock.advance(timedelta(minutes=5))
    [message] = queue.messages()
    assert queue.delete(poll_urls(queue)["signedDeleteUrl"], message.lease).status_code == 204


@pytest.mark.parametrize(
    ("endpoint", "status", "code"),
    [
        ("azure.receive", 404, "QueueNotFound"),
        ("azure.delete", 404, "MessageNotFound"),
        ("azure.delete", 400, "InvalidQueryParameterValue"),
        ("azure.delete", 412, "ConditionNotMet"),
        ("azure.delete", 503, "ServerBusy"),
    ],
)
def test_a_fault_of_a_signed_url_has_the_code_of_azure(
    queue: Queue, endpoint: str, status: int, code: str
) -> None:
    add(queue, endpoint, status=status)
    if endpoint == "azure.delete":
        answer = queue.delete(poll_urls(queue)["signedDeleteUrl"], MessageLease("unknown", "AAAA"))
        assert (answer.status_code, answer.headers["x-ms-error-code"]) == (status, code)
        return
    target = poll_urls(queue)["signedPollUrl"].removeprefix(ROOT_URL)
    refused_poll = queue.send("GET", target, credentials=None)
    assert (refused_poll.status_code, refused_poll.headers["x-ms-error-code"]) == (status, code)


# --- uploads


def upload_url(queue: Queue, task_id: str, storage_type: str) -> str:
    created = succeeded(queue.artifact(task_id, NAME, storage_type)).get_json()
    return str(created.get("putUrl") or created["requests"][0]["url"])


def upload(queue: Queue, url: str) -> TestResponse:
    return queue.upload(url, BLOB, x_ms_blob_type="BlockBlob")


def test_an_upload_that_is_refused_does_not_use_up_a_fault(queue: Queue) -> None:
    url = upload_url(queue, queue.running(), "s3")
    add(queue, "upload", status=503)
    refused(upload(queue, f"{url}0"), 403, "AuthorizationFailed")
    assert fired(queue) == [0]
