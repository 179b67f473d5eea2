"""Errors: their codes, the details that they show, and the secrets that they never show.

Every call of the test suite checks the form of errors.
"""

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from legacy_queue import __version__
from legacy_queue.adapters.embedded import EmbeddedAccount
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports import Corrupt
from legacy_queue.stores import Storage
from tests.http.calls import (
    NOW,
    PREFIXES,
    ROOT,
    ROOT_URL,
    TASK_ID,
    TODAY,
    WORKER,
    Queue,
    example_call,
    hawk,
    refused,
    succeeded,
    task_body,
)
from tests.memory_server import FakeClock, memory_storage
from tests.services.fake_ports import intercept_storage

# reads of one row, of many rows and of a cache; calls about a task, a run, an artifact and a pool
KINDS = [
    *("status", "listTaskGroup", "pendingTasks", "listWorkers", "createTask", "claimTask", "claimWork"),
    *("reportCompleted", "createArtifact", "getArtifact", "pollTaskUrls", "quarantineWorker"),
]


class Outage:
    """As soon as ``error`` is set, each call of storage raises it."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __call__(self, _name: str, call: Callable[[], Any]) -> Any:
        if self.error:
            raise self.error
        return call()


def with_outage() -> tuple[Queue, Outage]:
    outage, clock = Outage(), FakeClock(NOW)
    memory = memory_storage(clock, f"{ROOT_URL}/azure", "q")
    return Queue(clock=clock, storage=intercept_storage(memory, outage)), outage


@pytest.mark.parametrize("name", ["status", "cancelTask", "claimTask", "createArtifact", "getLatestArtifact"])
def test_a_task_that_does_not_exist_is_not_found(queue: Queue, name: str) -> None:
    example = example_call(name)
    answer = queue.call(name, example.body, **example.params)
    refused(answer, 404, "ResourceNotFound", TASK_ID)
    assert answer.get_json()["requestInfo"] == {
        "method": name,
        "params": example.params,
        "payload": example.body,
        "time": "2030-01-02T03:04:05.678Z",
        "requestId": answer.headers["x-request-id"],
    }


@pytest.mark.parametrize("name", ["claimTask", "reportFailed"])
def test_a_call_about_a_resolved_run_is_a_conflict_that_shows_the_status(queue: Queue, name: str) -> None:
    example = example_call(name)
    queue.running(TASK_ID)
    report = queue.call("reportCompleted", taskId=TASK_ID, runId=0, prefix=TODAY)
    status = succeeded(report).get_json()["status"]
    answer = queue.call(name, example.body, **example.params)
    message = refused(answer, 409, "RequestConflict", TASK_ID, "completed")
    assert json.loads(message.partition("\n\n")[2]) == {"status": status}


def test_an_error_does_not_show_the_receipt_and_signature_of_a_claim(queue: Queue) -> None:
    for changes in (
        {"signature": 1520139967},
        {"messageId": {"deep": [{"certificate": "SECRET", "accessToken": "SECRET"}]}},
        {"unknown": {"accessToken": "SECRET"}, "receipt": "SECRET", "signature": "SECRET" * 60},
    ):
        answer = queue.call("claimTask", {**WORKER, **changes}, taskId=TASK_ID, runId=0)
        refused(answer, 400, "InputValidationError", "body")
        assert not {"SECRET", "1520139967"} & {*re.findall(r"SECRET|\d{10,}", answer.text)}
        assert answer.get_json()["requestInfo"]["payload"]["workerGroup"] == "group"


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/", "/v1/no-such?bewit=c2VjcmV0", "/favicon.ico", "/schemas/queue/v1/x.json"]
)
def test_the_error_for_an_unknown_path_has_the_same_form(queue: Queue, path: str) -> None:
    answer = queue.send("GET", path, credentials=None)
    refused(answer, 404, "ResourceNotFound", "there is no")
    assert "c2VjcmV0" not in answer.text, "a bewit is a credential, so it is not shown"


@pytest.mark.parametrize("name", KINDS)
def test_while_storage_is_away_the_answer_is_a_503_and_the_caller_can_retry(name: str) -> None:
    """After a 4xx, a legacy worker would delete its message."""
    queue, outage = with_outage()
    example = example_call(name)
    example.prepare(queue)
    outage.error = ServiceUnavailable("the table storage does not answer", timedelta(seconds=6.5))
    answer = queue.call(name, example.body, **example.params)
    refused(answer, 503, "ServiceUnavailable", "does not answer")
    assert answer.headers["retry-after"] == "7"
    outage.error = None
    succeeded(queue.call(name, example.body, **example.params))


MAX_ECHO = 4096


def test_an_error_repeats_at_most_4_kib_of_the_request_and_names_at_most_20_mistakes(queue: Queue) -> None:
    for body in (
        task_body(routes=["\U0001f600" * 250 for _ in range(64)]),
        {"\U0001f600" * 50_000: 1},
        [[number] for number in range(19_000)],
    ):
        answer = queue.call("createTask", body, taskId=TASK_ID)
        message = refused(answer, 400, "InputValidationError", "body")
        assert len(message) <= MAX_ECHO
        assert "bytes, which are not shown" in answer.get_json()["requestInfo"]["payload"]
        assert len(answer.data) <= 16 * 1024
    answer = queue.call("createTask", task_body(scopes=[1] * 100), taskId=TASK_ID)
    assert refused(answer, 400, "InputValidationError", "body/scopes/19").count("body/scopes/") == 20


def test_the_server_is_not_ready_while_storage_is_away() -> None:
    class Away(EmbeddedAccount):
        def check(self) -> None:
            raise ServiceUnavailable("the queue storage does not answer")

    clock = FakeClock(NOW)
    storage = Storage(Away(None, clock, ROOT_URL, "q"), "q", clock)
    for path, answer in (("/ready", {"ready": True}), ("/v1/__heartbeat__", {})):
        away = Queue(storage=storage).send("GET", path, credentials=None)
        refused(away, 503, "ServiceUnavailable", "queue storage")
        assert succeeded(Queue().send("GET", path, credentials=None)).get_json() == answer


def test_version_and_lbheartbeat_need_no_storage() -> None:
    storage = memory_storage(FakeClock(NOW))
    for prefix in PREFIXES:
        version = Queue(storage=storage).send("GET", f"{prefix}/__version__", credentials=None).get_json()
        assert version == {"version": __version__, "commit": "", "source": "", "build": ""}
        beat = Queue(storage=storage).send("GET", f"{prefix}/__lbheartbeat__", credentials=None)
        assert succeeded(beat).get_json() == {}


@pytest.mark.parametrize("error", [KeyError("an-inner-detail"), Corrupt("an-inner-detail")], ids=str)
def test_a_bug_or_a_corrupt_row_is_a_500_and_only_the_log_has_the_details(error: Exception) -> None:
    """After a 4xx, a legacy worker would delete its message. The store has already logged the corrupt row."""
    queue, outage = with_outage()
    queue.create(TASK_ID)
    outage.error = error
    target = f"/v1/task/{TASK_ID}/runs/0/claim"
    authorization = hawk(ROOT, "POST", ROOT_URL + target, NOW)
    headers = {"Authorization": authorization}
    with capture_logs() as logs:
        answer = queue.http.post(target, base_url=ROOT_URL, headers=headers, json=WORKER)
    body = answer.get_json()
    assert (answer.status_code, body["code"]) == (500, "InternalServerError")
    assert set(body["requestInfo"]) == {"method", "params", "payload", "time", "requestId"}
    assert body["requestInfo"]["method"] == "claimTask"
    assert "an-inner-detail" not in answer.get_data(as_text=True)
    entries = [line for line in logs if line["event"] != "request"]
    if isinstance(error, Corrupt):
        assert "row-corrupt" in body["message"]
        assert entries == []
        return
    [entry] = entries
    assert entry["log_level"] == "error"
    assert entry["request_id"] == body["requestInfo"]["requestId"]
    assert entry["incident"] in body["message"]
    assert str(entry["exc_info"]) == str(error)
    assert authorization not in str(entry)


def test_the_log_line_of_a_bug_has_no_query() -> None:
    """A bewit is a credential. Here it is not even used, because everybody can read tasks."""
    queue, outage = with_outage()
    outage.error = KeyError("a bug")
    with capture_logs() as logs:
        target = f"/v1/task/{TASK_ID}?bewit=c2VjcmV0"
        assert queue.http.get(target, base_url=ROOT_URL).status_code == 500
    assert "internal-error" in str(logs)
    assert "c2VjcmV0" not in str(logs)


def test_only_a_server_in_development_sends_the_development_header() -> None:
    for is_development in (False, True):
        queue = Queue(development=is_development)
        for path in ("/v1/ping", "/ready", "/events?exchange=none", "/v1/task/none", "/nowhere", "/v1/%"):
            answer = queue.http.get(path)
            assert ("x-legacy-queue-development" in answer.headers) is is_development
            answer.close()


def test_the_error_for_a_path_of_another_service_says_so(queue: Queue) -> None:
    for path in ("/api/worker-manager/v1/nothing", "/api/worker-manager"):
        answer = queue.send("GET", path, credentials=None)
        refused(answer, 404, "ResourceNotFound", "worker-manager is another service", "queue or object")
    for path in ("/api/queue/v1/nothing", "/api/object/v1/nothing", "/api/"):
        answer = queue.send("GET", path, credentials=None)
        refused(answer, 404, "ResourceNotFound", f"there is no GET {path}: ")
    for method, path, expected in (
        ("POST", "/v1/ping", "GET"),
        ("GET", "/control/v1/nothing", "an endpoint that /references/control/v1/api.json lists"),
        ("GET", "/v1/nothing", "an endpoint that /references/queue/v1/api.json lists"),
    ):
        answer = queue.send(method, path, credentials=None)
        refused(answer, 404, "ResourceNotFound", f"there is no {method} {path}: expected {expected}")
