"""What a fault does to a request, on memory storage: to endpoints, to signed URLs of messages, to uploads."""

import json
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.ids import slugid
from legacy_queue.domain.messages import MessageLease
from tests.http.calls import (
    BLOB,
    NAME,
    PROVISIONER,
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


def fired(queue: Queue) -> list[int]:
    faults = succeeded(queue.send("GET", "/control/v1/faults")).get_json()["faults"]
    return [fault["fired"] for fault in faults]


# --- errors


@pytest.mark.parametrize(
    ("status", "code"),
    [
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


def test_a_fault_of_a_worker_happens_to_the_runs_of_that_worker(queue: Queue) -> None:
    """The body of claimTask names the worker; the other endpoints are about a run that it claimed."""
    task_id = queue.running()
    for name, body in (("claimTask", WORKER), ("reclaimTask", None), ("createArtifact", artifact_body("s3"))):
        for worker, status in (("group/bob", 200), ("group/alice", 503)):
            fault_id = add(queue, name, status=503, worker=worker)
            answer = queue.call(name, body, taskId=task_id, runId=0, name="public/a")
            assert answer.status_code == status, answer.get_data()
            succeeded(queue.send("DELETE", f"/control/v1/faults/{fault_id}"))


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


def poll(queue: Queue, target: str | None = None) -> tuple[int, str | None]:
    answer = queue.send("GET", target or queue.poll_target(), credentials=None)
    return answer.status_code, answer.headers.get("x-ms-error-code")


def delete(queue: Queue, lease: MessageLease) -> tuple[int, str | None]:
    answer = queue.delete_message(lease)
    return answer.status_code, answer.headers.get("x-ms-error-code")


def test_poll_urls_may_expire_soon(queue: Queue) -> None:
    add(queue, "pollTaskUrls", sas="8s", times=1)
    target = queue.poll_target()
    assert poll(queue, target) == (200, None)
    queue.clock.advance(timedelta(seconds=8))
    assert poll(queue, target) == (403, "AuthenticationFailed")


def test_a_lost_message_is_not_received(queue: Queue) -> None:
    lost, other = queue.create(), queue.create()
    add(queue, "azure.receive", lose=True, taskId=lost)
    assert [message.task_id for message in queue.messages()] == [other]
    answer = succeeded(queue.send("GET", f"/inspect/v1/messages/{PROVISIONER}/{WORKER_TYPE}"))
    assert [message["taskId"] for message in answer.get_json()["messages"]] == [other]


def test_a_stale_receipt_does_not_delete(queue: Queue) -> None:
    queue.create()
    add(queue, "azure.receive", stale=True, times=1)
    [message] = queue.messages()
    assert delete(queue, message.lease) == (404, "MessageNotFound")
    assert queue.messages() == [], "the message is invisible for the usual time"
    queue.clock.advance(timedelta(minutes=5))
    [message] = queue.messages()
    assert delete(queue, message.lease) == (204, None)


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
    answered = delete(queue, MessageLease("unknown", "AAAA")) if endpoint == "azure.delete" else poll(queue)
    assert answered == (status, code)


# --- uploads


def test_an_upload_that_is_refused_does_not_use_up_a_fault(queue: Queue) -> None:
    url = succeeded(queue.artifact(queue.running(), NAME)).get_json()["putUrl"]
    add(queue, "upload", status=503)
    refused(queue.upload(f"{url}0", BLOB), 403, "AuthorizationFailed")
    assert fired(queue) == [0]
