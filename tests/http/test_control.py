"""``/control/v1``: who can control a server, how its clock moves, and what faults do."""

import json
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from werkzeug.test import TestResponse

from legacy_queue.config.settings import Settings
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.http.declared_endpoints import served_by
from legacy_queue.http.endpoint import Endpoint
from tests.http.calls import (
    BLOB,
    NAME,
    NOW,
    POOL,
    POOL_NAME,
    ROOT,
    ROOT_URL,
    TESTED,
    WORKER,
    Credentials,
    Queue,
    artifact_body,
    hawk,
    holding,
    refused,
    succeeded,
    task_body,
)

BODIES = {  # for the endpoints that take a body
    "moveClock": {"freeze": True},
    "addFault": {"endpoint": "claimTask", "status": 503},
    "putMessage": {"kind": "poisoned"},
}


@pytest.fixture
def queue() -> Queue:
    return Queue(control=True)


def clock(queue: Queue) -> Any:
    return succeeded(queue.send("GET", "/control/v1/clock")).get_json()


def ask(queue: Queue, endpoint: Endpoint, credentials: Credentials | None) -> TestResponse:
    route = endpoint.route.replace("<faultId>", "00000000").replace("<", "").replace(">", "")
    body = json.dumps(BODIES[endpoint.name]).encode() if endpoint.input else b""
    return queue.send(endpoint.method, route, body, credentials=credentials)


def test_without_the_setting_control_every_endpoint_is_a_404_that_names_the_setting() -> None:
    queue = Queue()
    for endpoint, credentials in product(served_by("control"), (ROOT, None)):
        refused(ask(queue, endpoint, credentials), 404, "ResourceNotFound", "--control")


def test_a_client_without_the_scope_cannot_control_the_server() -> None:
    queue = holding("queue:*-task", control=True)
    for endpoint in served_by("control"):
        refused(ask(queue, endpoint, TESTED), 403, "InsufficientScopes", "`queue:control`")
        refused(ask(queue, endpoint, None), 403, "InsufficientScopes", "without credentials")


def test_the_control_endpoints_have_a_reference_of_their_own(queue: Queue) -> None:
    reference = queue.send("GET", "/references/control/v1/api.json", credentials=None).get_json()
    assert reference["baseUrl"] == ROOT_URL
    entries = {entry["name"]: entry for entry in reference["entries"]}
    assert list(entries) == [endpoint.name for endpoint in served_by("control")]
    for entry in entries.values():
        assert entry["scopes"] == "queue:control"
        for ref in (entry[kind] for kind in ("input", "output") if kind in entry):
            succeeded(queue.send("GET", ref.removesuffix("#"), credentials=None))


# --- what stays on real time when the clock is moved: docs/explanation/clock.md


HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def advance(queue: Queue, duration: timedelta) -> None:
    body = f'{{"advance": "{duration // timedelta(milliseconds=1)}ms"}}'.encode()
    succeeded(queue.send("POST", "/control/v1/clock", body))


def test_when_the_clock_is_moved_hawk_signatures_stay_on_real_time(queue: Queue) -> None:
    advance(queue, DAY)
    path = "/control/v1/clock"
    succeeded(queue.send("GET", path))  # its signature has the real time
    signed = {"Authorization": hawk(ROOT, "GET", ROOT_URL + path, NOW + DAY)}
    refused(queue.send("GET", path, headers=signed), 401, "AuthenticationFailed")


def test_when_the_clock_is_moved_signed_urls_of_queues_stay_on_real_time(queue: Queue) -> None:
    advance(queue, DAY)
    assert parse_time(queue.ask("pollTaskUrls", **POOL)["expires"]) == NOW + Settings().sas_life
    target = queue.poll_target()
    advance(queue, DAY)
    assert queue.send("GET", target, credentials=None).status_code == 200
    queue.clock.advance(HOUR)
    assert queue.send("GET", target, credentials=None).status_code == 403


def test_when_the_clock_is_moved_signed_urls_of_artifacts_stay_on_real_time(queue: Queue) -> None:
    queue, late = Queue(control=True, claim_timeout=4 * DAY), format_time(NOW + 5 * DAY)
    task_id = queue.running(deadline=late)
    answer = succeeded(queue.artifact(task_id, "public/log", expires=late)).get_json()
    assert NOW < parse_time(answer["expires"]) <= NOW + HOUR
    advance(queue, DAY)
    succeeded(queue.upload(answer["putUrl"], b"content"))
    found = queue.call("getArtifact", taskId=task_id, runId=0, name="public/log")
    location = found.headers["location"].removeprefix(ROOT_URL)
    advance(queue, DAY)
    assert queue.send("GET", location, credentials=None).data == b"content"
    queue.clock.advance(DAY)
    assert queue.send("GET", location, credentials=None).status_code == 403


# --- what a fault does to a call, to a request with a signed URL of messages, and to an upload


class FaultyQueue(Queue):
    """A server whose answers are not checked, because a fault can answer in any form."""

    def __init__(self) -> None:
        super().__init__(control=True)

    def _check(self, *_: Any) -> None:
        """Do not check the answer."""


@pytest.fixture
def faulty() -> Queue:
    return FaultyQueue()


def add(faulty: Queue, endpoint: str, **wire: Any) -> str:
    """Add a fault. Returns its id."""
    body = json.dumps({"endpoint": endpoint, **wire}).encode()
    return str(succeeded(faulty.send("POST", "/control/v1/faults", body)).get_json()["faultId"])


def fired(faulty: Queue) -> list[int]:
    faults = succeeded(faulty.send("GET", "/control/v1/faults")).get_json()["faults"]
    return [fault["fired"] for fault in faults]


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (429, "TooManyRequests"),
        (499, "InputError"),
        (503, "ServiceUnavailable"),
        (599, "InternalServerError"),
    ],
)
def test_an_injected_error_looks_like_an_error_of_the_server(faulty: Queue, status: int, code: str) -> None:
    task_id, fault_id = faulty.create(), add(faulty, "claimTask", status=status)
    answer = faulty.call("claimTask", WORKER, taskId=task_id, runId=0)
    body = answer.get_json()
    assert (answer.status_code, body["code"]) == (status, code)
    assert fault_id in body["message"]
    assert body["requestInfo"]["method"] == "claimTask"
    assert body["requestInfo"]["params"]["taskId"] == task_id
    assert answer.headers.get("retry-after") == ("2" if status == 503 else None)
    assert faulty.state(task_id) == "pending", "the call was not carried out"


def test_a_fault_for_a_worker_hits_calls_about_that_workers_runs(faulty: Queue) -> None:
    """The body of claimTask names the worker. The other calls are about a run that the worker claimed."""
    task_id = faulty.running()
    for name, body in (("claimTask", WORKER), ("reclaimTask", None), ("createArtifact", artifact_body("s3"))):
        for worker, status in (("group/bob", 200), ("group/alice", 503)):
            fault_id = add(faulty, name, status=503, worker=worker)
            answer = faulty.call(name, body, taskId=task_id, runId=0, name="public/a")
            assert answer.status_code == status, answer.get_data()
            succeeded(faulty.send("DELETE", f"/control/v1/faults/{fault_id}"))


@pytest.mark.parametrize(("when", "status"), [("before", 404), ("after", 200)])
def test_a_request_that_is_dropped_before_does_nothing_and_one_dropped_after_is_carried_out(
    faulty: Queue, when: str, status: int
) -> None:
    task_id = slugid()
    add(faulty, "createTask", drop=when, times=1)
    with pytest.raises(ConnectionResetError):
        faulty.call("createTask", task_body(), taskId=task_id)
    assert faulty.call("status", taskId=task_id).status_code == status
    faulty.create(task_id)


def test_a_delayed_request_ends_when_the_server_stops(faulty: Queue) -> None:
    add(faulty, "createTask", delay="10m", status=503)
    faulty.server.services.stopping.set()
    refused(faulty.call("createTask", task_body(), taskId=slugid()), 503, "ServiceUnavailable")


def poll(faulty: Queue, target: str | None = None) -> tuple[int, str | None]:
    answer = faulty.send("GET", target or faulty.poll_target(), credentials=None)
    return answer.status_code, answer.headers.get("x-ms-error-code")


def delete(faulty: Queue, lease: MessageLease) -> tuple[int, str | None]:
    answer = faulty.delete_message(lease)
    return answer.status_code, answer.headers.get("x-ms-error-code")


def test_a_fault_can_make_poll_urls_expire_soon(faulty: Queue) -> None:
    add(faulty, "pollTaskUrls", sas="8s", times=1)
    target = faulty.poll_target()
    assert poll(faulty, target) == (200, None)
    faulty.clock.advance(timedelta(seconds=8))
    assert poll(faulty, target) == (403, "AuthenticationFailed")


def test_a_fault_can_lose_a_message(faulty: Queue) -> None:
    lost, other = faulty.create(), faulty.create()
    add(faulty, "azure.receive", lose=True, taskId=lost)
    assert [message.task_id for message in faulty.messages()] == [other]
    answer = succeeded(faulty.send("GET", f"/inspect/v1/messages/{POOL_NAME}"))
    assert [message["taskId"] for message in answer.get_json()["messages"]] == [other]


def test_a_fault_can_make_a_receipt_stale(faulty: Queue) -> None:
    faulty.create()
    add(faulty, "azure.receive", stale=True, times=1)
    [message] = faulty.messages()
    assert delete(faulty, message.lease) == (404, "MessageNotFound")
    assert faulty.messages() == [], "the message is invisible for the usual time"
    faulty.clock.advance(timedelta(minutes=5))
    [message] = faulty.messages()
    assert delete(faulty, message.lease) == (204, None)


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
def test_a_fault_at_a_signed_url_answers_with_azures_error_code(
    faulty: Queue, endpoint: str, status: int, code: str
) -> None:
    add(faulty, endpoint, status=status)
    answered = delete(faulty, MessageLease("unknown", "AAAA")) if endpoint == "azure.delete" else poll(faulty)
    assert answered == (status, code)


def test_a_refused_upload_does_not_use_up_a_fault(faulty: Queue) -> None:
    url = succeeded(faulty.artifact(faulty.running(), NAME)).get_json()["putUrl"]
    add(faulty, "upload", status=503)
    refused(faulty.upload(f"{url}0", BLOB), 403, "AuthorizationFailed")
    assert fired(faulty) == [0]
