"""claimWork over HTTP: docs/explanation/http-contract.md#claims."""

import json
from datetime import timedelta
from typing import Any

import pytest
from werkzeug.test import TestResponse

from legacy_queue.domain.authentication import Client
from legacy_queue.domain.errors import ServiceUnavailable
from tests.http.calls import (
    PROVISIONER,
    ROOT,
    ROOT_URL,
    WORKER,
    WORKER_TYPE,
    Credentials,
    Queue,
    claimed,
    refused,
    succeeded,
)
from tests.memory_server import FakeClock, memory_storage
from tests.services.harness import FaultAt, failing
from tests.services.ports import intercept_storage

SHORT = timedelta(milliseconds=50)
MEMBER = Credentials("a-worker", "the-access-token-of-a-worker-of-2018")


def claim_work(
    queue: Queue, credentials: Credentials = ROOT, worker_type: str = WORKER_TYPE, **more: Any
) -> TestResponse:
    body = {**WORKER, **more}
    return queue.call("claimWork", body, credentials, provisionerId=PROVISIONER, workerType=worker_type)


@pytest.fixture
def briefly_waiting() -> Queue:
    """A server whose claimWork waits only for a moment."""
    return Queue(claim_work_wait=SHORT)


def test_without_pending_tasks_the_answer_is_empty(briefly_waiting: Queue) -> None:
    assert succeeded(claim_work(briefly_waiting)).get_json() == {"tasks": []}


def test_a_client_that_prefers_not_to_wait_is_answered_at_once() -> None:
    queue = Queue(claim_work_wait=timedelta(hours=1))
    target = f"/v1/claim-work/{PROVISIONER}/{WORKER_TYPE}"
    for prefer in ("wait=0", "respond-async, wait=0"):
        sent = queue.send("POST", target, json.dumps(WORKER).encode(), headers={"Prefer": prefer})
        assert succeeded(sent).get_json() == {"tasks": []}


def test_a_claim_is_as_that_of_claim_task(queue: Queue) -> None:
    first, second = queue.create(scopes=["a:scope"]), queue.create(scopes=["a:scope"])
    (by_work,) = succeeded(claim_work(queue)).get_json()["tasks"]
    by_task = succeeded(queue.claim(second)).get_json()
    assert by_work["status"]["taskId"] == first
    assert set(by_work) == set(by_task)
    assert by_work["task"] == succeeded(queue.call("task", taskId=first)).get_json()
    assert by_work["takenUntil"] == by_task["takenUntil"]


def test_the_property_tasks_limits_the_claims_and_is_one_by_default(queue: Queue) -> None:
    for _ in range(3):
        queue.create()
    assert len(succeeded(claim_work(queue)).get_json()["tasks"]) == 1
    assert len(succeeded(claim_work(queue, tasks=32)).get_json()["tasks"]) == 2


def test_the_scopes_for_claim_work_suffice_for_the_whole_task(queue: Queue) -> None:
    scopes = (f"queue:claim-work:{PROVISIONER}/{WORKER_TYPE}", "queue:worker-id:group/alice")
    queue = Queue(Client(MEMBER.client_id, MEMBER.access_token, scopes))
    task_id = queue.create()
    (claim,) = succeeded(claim_work(queue, MEMBER)).get_json()["tasks"]
    credentials = claim["credentials"]
    holder = Credentials(credentials["clientId"], credentials["accessToken"], credentials["certificate"])
    renewed = claimed(succeeded(queue.call("reclaimTask", None, holder, taskId=task_id, runId=0)))
    succeeded(queue.call("reportCompleted", None, renewed, taskId=task_id, runId=0))


@pytest.mark.parametrize(
    ("worker_type", "more"),
    [("another", {}), (WORKER_TYPE, {"workerId": "bob"}), (WORKER_TYPE, {"workerGroup": "another"})],
)
def test_a_worker_may_not_claim_the_work_of_another(worker_type: str, more: dict[str, str]) -> None:
    scopes = (f"queue:claim-work:{PROVISIONER}/{WORKER_TYPE}", "queue:worker-id:group/alice")
    queue = Queue(Client(MEMBER.client_id, MEMBER.access_token, scopes))
    task_id = queue.create(workerType=worker_type)
    refused(claim_work(queue, MEMBER, worker_type, **more), 403, "InsufficientScopes", "lacks")
    assert queue.state(task_id) == "pending"


@pytest.mark.parametrize("tasks", [0, 33, -1, 1.5, "1", None, True, 10**30])
def test_an_invalid_number_of_tasks_is_refused(queue: Queue, tasks: Any) -> None:
    task_id = queue.create()
    answer = claim_work(queue, tasks=tasks)
    assert answer.status_code == 400
    assert queue.state(task_id) == "pending"
    if tasks in (0, 33):
        refused(answer, 400, "InputValidationError", "tasks", str(tasks))


@pytest.mark.parametrize("missing", ["workerGroup", "workerId"])
def test_a_claim_without_the_name_of_the_worker_is_refused(queue: Queue, missing: str) -> None:
    queue.create()
    body = {name: value for name, value in WORKER.items() if name != missing}
    answer = queue.call("claimWork", body, provisionerId=PROVISIONER, workerType=WORKER_TYPE)
    refused(answer, 400, "InputValidationError", missing)


def test_a_claim_without_a_body_is_refused(queue: Queue) -> None:
    answer = queue.call("claimWork", provisionerId=PROVISIONER, workerType=WORKER_TYPE)
    refused(answer, 400, "InputValidationError")


def test_a_pool_may_be_one_escaped_segment(queue: Queue) -> None:
    task_id = queue.create()
    route = f"/api/queue/v1/claim-work/{PROVISIONER}%2F{WORKER_TYPE}"
    answer = succeeded(queue.send("POST", route, json.dumps(WORKER).encode()))
    assert [claim["status"]["taskId"] for claim in answer.get_json()["tasks"]] == [task_id]


@pytest.mark.parametrize("pool", ["a", "a%2F", "%2Fb", "a%2Fb%2Fc", "a%252Fb", "a%2Fb%00"])
def test_an_invalid_escaped_pool_is_refused(queue: Queue, pool: str) -> None:
    answer = queue.send("POST", f"/v1/claim-work/{pool}", json.dumps(WORKER).encode())
    refused(answer, 400, "InvalidRequestArguments", "taskQueueId")


@pytest.mark.parametrize("worker_type", ["a.b", "x" * 39, "%2F", "%00"])
def test_an_invalid_worker_type_is_refused(queue: Queue, worker_type: str) -> None:
    refused(claim_work(queue, worker_type=worker_type), 400, "InvalidRequestArguments", "workerType")


def test_a_claim_without_credentials_is_refused(queue: Queue) -> None:
    task_id = queue.create()
    answer = queue.send(
        "POST", f"/v1/claim-work/{PROVISIONER}/{WORKER_TYPE}", json.dumps(WORKER).encode(), credentials=None
    )
    refused(answer, 403, "InsufficientScopes")
    assert queue.state(task_id) == "pending"


def test_an_outage_of_storage_is_a_503_and_not_an_empty_answer() -> None:
    clock = FakeClock()
    storage = intercept_storage(
        memory_storage(clock, f"{ROOT_URL}/azure", "q"),
        FaultAt(0, of="receive", before=failing(ServiceUnavailable("storage is away, try again"))),
    )
    refused(claim_work(Queue(clock=clock, storage=storage)), 503, "ServiceUnavailable", "storage")
