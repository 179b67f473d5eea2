"""Errors: their codes, the details that they show, and secrets that they never show. Each call of the suite
checks their form."""

import json
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from legacy_queue import __version__
from legacy_queue.adapters.embedded import EmbeddedAccount
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.http.schemas import SCHEMAS
from legacy_queue.ports import Corrupt
from legacy_queue.stores import Storage
from tests.http.calls import (
    DECLARED,
    NOW,
    PREFIXES,
    PROVISIONER,
    ROOT,
    ROOT_URL,
    TASK_ID,
    TODAY,
    WORKER,
    WORKER_TYPE,
    Queue,
    endpoint_of,
    hawk,
    refused,
    scene,
    succeeded,
    task_body,
)
from tests.memory_server import FakeClock, memory_storage
from tests.services.ports import intercept_storage

OF_A_TASK = [
    name for name in DECLARED if "taskId" in scene(name).params and name not in ("createTask", "defineTask")
]
OF_A_RUN = [name for name in DECLARED if "runId" in scene(name).params and "artifact" not in name.lower()]
_ASK_NO_STORE = ("ping", "lbheartbeat", "heartbeat", "version")
TOUCHING_STORAGE = [name for name in DECLARED if name not in _ASK_NO_STORE]


class Outage:
    """Each call of storage raises ``error`` once it is set."""

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


@pytest.mark.parametrize("name", OF_A_TASK)
def test_a_task_that_does_not_exist_is_not_found(queue: Queue, name: str) -> None:
    example = scene(name)
    answer = queue.call(name, example.body, **example.params)
    refused(answer, 404, "ResourceNotFound", TASK_ID)
    info = answer.get_json()["requestInfo"]
    assert info == {
        "method": name,
        "params": example.params,
        "payload": example.body,
        "time": "2018-03-04T05:06:07.890Z",
        "requestId": answer.headers["x-request-id"],
    }


@pytest.mark.parametrize("name", OF_A_RUN)
def test_a_run_that_does_not_exist_is_not_found(queue: Queue, name: str) -> None:
    example = scene(name)
    queue.running(TASK_ID)
    answer = queue.call(name, example.body, **{**example.params, "runId": 7})
    refused(answer, 404, "ResourceNotFound", TASK_ID, "no run 7", "0..0")


@pytest.mark.parametrize("name", OF_A_RUN)
def test_a_run_that_was_resolved_is_a_conflict_that_shows_the_status(queue: Queue, name: str) -> None:
    example = scene(name)
    queue.running(TASK_ID)
    ending = "reportFailed" if name != "reportFailed" else "reportCompleted"
    ended = succeeded(queue.call(ending, taskId=TASK_ID, runId=0, prefix=TODAY)).get_json()
    answer = queue.call(name, example.body, **example.params)
    message = refused(answer, 409, "RequestConflict", TASK_ID, ended["status"]["state"])
    assert json.loads(message.partition("\n\n")[2]) == {"status": ended["status"]}


@pytest.mark.parametrize("signature", ["x", "A" * 43 + "=", "\u00e4", "x" * 256])
def test_a_claim_with_a_wrong_signature_is_refused_and_claims_nothing(queue: Queue, signature: str) -> None:
    queue.create(TASK_ID)
    answer = queue.claim(TASK_ID, messageId="m", receipt="r", signature=signature)
    message = refused(answer, 403, "AuthorizationFailed", TASK_ID, "run 0")
    assert len(signature) == 1 or signature not in message
    assert queue.state(TASK_ID) == "pending"


@pytest.mark.parametrize(
    "changes",
    [
        {"signature": "SECRET" * 60},
        {"signature": ["SECRET"]},
        {"signature": {"a": "SECRET"}},
        {"signature": 1520139967},
        {"receipt": "SECRET SECRET"},
        {"receipt": {"receipt": "SECRET"}},
        {"receipt": "SECRET" * 100},
        {"workerId": {"signature": "SECRET"}},
        {"workerId": [{"receipt": "SECRET"}]},
        {"messageId": {"deep": [{"certificate": "SECRET", "accessToken": "SECRET"}]}},
        {"unknown": {"accessToken": "SECRET"}, "receipt": "SECRET", "signature": "SECRET"},
        {"credentials": {"certificate": {"signature": "SECRET"}}},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_an_error_does_not_show_the_proof_of_a_claim_again(queue: Queue, changes: dict[str, Any]) -> None:
    answer = queue.call("claimTask", {**WORKER, **changes}, taskId=TASK_ID, runId=0)
    refused(answer, 400, "InputValidationError", "body")
    text = answer.get_data(as_text=True)
    assert "SECRET" not in text
    assert "1520139967" not in text
    assert answer.get_json()["requestInfo"]["payload"]["workerGroup"] == "group"


def test_an_error_hides_the_proof_of_a_claim_inside_a_list(queue: Queue) -> None:
    answer = queue.call("claimTask", [{"signature": "SECRET"}], taskId=TASK_ID, runId=0)
    assert "SECRET" not in answer.get_data(as_text=True)
    assert answer.get_json()["requestInfo"]["payload"] == [{"signature": "(hidden)"}]


@pytest.mark.parametrize("changes", [{"workerGroup": "a b"}, {"workerId": ""}, {"workerId": "w" * 39}])
def test_a_claim_with_an_invalid_worker_name_is_refused(queue: Queue, changes: dict[str, Any]) -> None:
    queue.create(TASK_ID)
    ((name, value),) = changes.items()
    answer = queue.claim(TASK_ID, **changes)
    refused(answer, 400, "InputValidationError", f'body/{name} is "{value}"', "1,38")


@pytest.mark.parametrize(
    "reason", ["completed", "canceled", "claim-expired", "deadline-exceeded", "", None, 1]
)
def test_an_exception_with_a_reason_that_only_the_queue_gives_is_refused(queue: Queue, reason: Any) -> None:
    queue.running(TASK_ID)
    answer = queue.call("reportException", {"reason": reason}, taskId=TASK_ID, runId=0)
    refused(answer, 400, "InputValidationError", "body/reason", "worker-shutdown", "intermittent-task")
    assert queue.state(TASK_ID) == "running"


def test_the_required_policy_refuses_a_claim_without_the_whole_message() -> None:
    queue = Queue(worker_types={f"{PROVISIONER}/{WORKER_TYPE}": "required"})
    queue.create(TASK_ID)
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["messageId", "receipt", "signature"]),
        ({"messageId": "m"}, ["receipt", "signature"]),
        ({"messageId": "m", "receipt": "r"}, ["signature"]),
    ]
    for given, absent in cases:
        refused(queue.claim(TASK_ID, **given), 400, "InputError", f"this claim lacks {', '.join(absent)}.")
    assert queue.state(TASK_ID) == "pending"


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/", "/v1/no-such", "/favicon.ico", "/schemas/queue/v1/x.json"]
)
def test_a_path_that_is_not_served_has_an_error_of_the_same_form(queue: Queue, path: str) -> None:
    assert endpoint_of("GET", path) is None
    refused(queue.send("GET", path, credentials=None), 404, "ResourceNotFound", "there is no")


@pytest.mark.parametrize("name", TOUCHING_STORAGE)
def test_an_outage_of_storage_is_a_503_that_the_caller_may_retry(name: str) -> None:
    """A legacy worker deletes its message on any 4xx."""
    queue, outage = with_outage()
    example = scene(name)
    example.prepare(queue)
    outage.error = ServiceUnavailable("the table storage does not answer", timedelta(seconds=6.5))
    answer = queue.call(name, example.body, **example.params)
    refused(answer, 503, "ServiceUnavailable", "does not answer")
    assert answer.headers["retry-after"] == "7"
    outage.error = None
    succeeded(queue.call(name, example.body, **example.params))


MAX_ECHO = 4096
LARGE = {
    "a payload": task_body(payload={"a": "x" * 100_000}, retries=-1),
    "a text": task_body(metadata={**task_body()["metadata"], "description": "x" * 500_000}),
    "many texts": task_body(routes=["\U0001f600" * 250 for _ in range(64)]),
    "many numbers": task_body(routes=list(range(140_000))),
    "many scopes": task_body(scopes=[1] * 9_000),
    "many properties": {f"\u00e4{number}" * 10: 1 for number in range(5_000)},
    "a long name": {"\U0001f600" * 50_000: 1},
    "many tags": task_body(tags={str(number): number for number in range(50_000)}),
    "a list": [[number] for number in range(50_000)],
}


@pytest.mark.parametrize("what", LARGE)
def test_an_error_echoes_4_kib_at_most(queue: Queue, what: str) -> None:
    answer = queue.call("createTask", LARGE[what], taskId=TASK_ID)
    message = refused(answer, 400, "InputValidationError", "body")
    assert len(message) <= MAX_ECHO
    assert "bytes, which are not shown" in answer.get_json()["requestInfo"]["payload"]
    assert len(answer.data) <= 16 * 1024


def test_a_conflict_over_a_deep_definition_costs_little_memory(queue: Queue) -> None:
    deep = json.loads("[" * 190 + "]" * 190)
    succeeded(queue.call("createTask", task_body(payload={"deep": [deep] * 500}), taskId=TASK_ID))
    tracemalloc.start()
    try:
        answer = queue.call("createTask", task_body(payload={"deep": [deep] * 501}), taskId=TASK_ID)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    refused(answer, 409, "RequestConflict", "payload differs")
    assert peak < 20 * 1024 * 1024  # indented as a whole, the two have 70 MB


def test_an_error_names_20_places_at_most(queue: Queue) -> None:
    answer = queue.call("createTask", task_body(scopes=[1] * 100), taskId=TASK_ID)
    assert refused(answer, 400, "InputValidationError", "body/scopes/19").count("body/scopes/") == 20


def test_an_error_shows_a_small_body_whole(queue: Queue) -> None:
    body = task_body(retries=-1, payload={"a": "x" * 3000})
    answer = queue.call("createTask", body, taskId=TASK_ID)
    refused(answer, 400, "InputValidationError", "body/retries is -1")
    assert answer.get_json()["requestInfo"]["payload"] == body


def test_an_error_shows_no_more_than_the_beginning_of_a_wrong_parameter(queue: Queue) -> None:
    answer = queue.send("GET", "/v1/task/" + "%c3%a4" * 9000)
    refused(answer, 400, "InvalidRequestArguments", "taskId")
    assert answer.get_json()["requestInfo"]["params"] == {"taskId": "\u00e4" * 200}


def bounded(schema: Any, where: str) -> list[str]:
    """The places of a schema where an array or a text may have any length."""
    if not isinstance(schema, dict):
        return []
    unbounded = []
    if schema.get("type") == "array" and "maxItems" not in schema:
        unbounded.append(where)
    if schema.get("type") == "string" and "maxLength" not in schema:
        unbounded.append(where)
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        unbounded += bounded(others, f"{where}/*") + ([] if "maxProperties" in schema else [where])
    inner = {**schema.get("properties", {}), "items": schema.get("items")}
    return unbounded + [place for name, part in inner.items() for place in bounded(part, f"{where}/{name}")]


@pytest.mark.parametrize("name", sorted({endpoint.input for endpoint in DECLARED.values() if endpoint.input}))
def test_the_schema_of_a_body_limits_each_array_and_each_text(name: str) -> None:
    assert bounded(SCHEMAS[name], "body") == []


def test_ping_answers_while_storage_is_away() -> None:
    queue, outage = with_outage()
    outage.error = ServiceUnavailable("away")
    assert succeeded(queue.call("ping")).get_json()["alive"] is True


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


def test_the_version_and_the_load_balancers_heartbeat_need_no_storage() -> None:
    storage = memory_storage(FakeClock(NOW))
    for prefix in PREFIXES:
        version = Queue(storage=storage).send("GET", f"{prefix}/__version__", credentials=None).get_json()
        assert version == {"version": __version__, "commit": "", "source": "", "build": ""}
        beat = Queue(storage=storage).send("GET", f"{prefix}/__lbheartbeat__", credentials=None)
        assert succeeded(beat).get_json() == {}


@pytest.mark.parametrize("name", ["status", "claimTask"])
def test_a_corrupt_row_is_a_500_and_is_not_logged_again(name: str) -> None:
    """A legacy worker would delete its message on a 4xx."""
    queue, outage = with_outage()
    example = scene(name)
    example.prepare(queue)
    outage.error = Corrupt("an-inner-detail")
    with capture_logs() as logs:
        target = "/v1" + DECLARED[name].route.replace("<taskId>", TASK_ID).replace("<runId>", "0")
        method = DECLARED[name].method
        headers = {"Authorization": hawk(ROOT, method, ROOT_URL + target, NOW)}
        more = {} if example.body is None else {"json": example.body}
        answer = queue.http.open(target, base_url=ROOT_URL, method=method, headers=headers, **more)
    assert answer.status_code == 500
    assert answer.get_json()["code"] == "InternalServerError"
    assert "row-corrupt" in answer.get_json()["message"]
    assert "an-inner-detail" not in answer.get_data(as_text=True)
    assert [line["event"] for line in logs if line["event"] != "request"] == []


@pytest.mark.parametrize("name", ["status", "claimTask"])
def test_a_bug_is_a_500_whose_details_are_only_in_the_log(name: str) -> None:
    error = KeyError("an-inner-detail")
    queue, outage = with_outage()
    example = scene(name)
    example.prepare(queue)
    outage.error = error
    target = "/v1" + DECLARED[name].route
    for parameter, value in example.params.items():
        target = target.replace(f"<{parameter}>", str(value))
    authorization = hawk(ROOT, DECLARED[name].method, ROOT_URL + target, NOW)
    with capture_logs() as logs:
        answer = queue.http.open(
            target,
            base_url=ROOT_URL,
            method=DECLARED[name].method,
            headers={"Authorization": authorization},
            **({} if example.body is None else {"json": example.body}),
        )
    assert answer.status_code == 500
    body = answer.get_json()
    assert body["code"] == "InternalServerError"
    assert set(body["requestInfo"]) == {"method", "params", "payload", "time", "requestId"}
    assert body["requestInfo"]["method"] == name
    assert "an-inner-detail" not in answer.get_data(as_text=True)
    *others, entry = [line for line in logs if line["event"] != "request"]
    assert {line["event"] for line in others} <= {"activity-not-written"}, "a list writes new workers first"
    assert entry["log_level"] == "error"
    assert entry["request_id"] == body["requestInfo"]["requestId"]
    assert entry["incident"] in body["message"]
    assert str(entry["exc_info"]) == str(error)
    assert authorization not in str(entry)


def test_an_error_does_not_repeat_the_query(queue: Queue) -> None:
    """A bewit is a credential: 404s and incidents name the path alone."""
    answer = queue.send("GET", "/v1/no-such?bewit=c2VjcmV0", credentials=None)
    assert "c2VjcmV0" not in answer.get_data(as_text=True)


def test_the_time_of_an_error_is_that_of_the_queues_clock(queue: Queue) -> None:
    queue.clock.advance(timedelta(minutes=2))
    answer = queue.call("task", taskId=slugid())
    assert answer.get_json()["requestInfo"]["time"] == "2018-03-04T05:08:07.890Z"


def test_only_the_answers_of_a_server_in_development_have_the_development_header() -> None:
    for is_development in (False, True):
        queue = Queue(development=is_development)
        for path in ("/v1/ping", "/ready", "/events?exchange=none", "/v1/task/none", "/nowhere", "/v1/%"):
            answer = queue.http.get(path)
            assert ("x-legacy-queue-development" in answer.headers) is is_development
            answer.close()
