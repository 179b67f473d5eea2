"""Unchanged clients of 2015 to 2018 create, claim and report tasks."""

import pytest

from legacy_queue.domain.ids import slugid

from .conftest import EACH_CLIENT
from .http_queue import Json, Queue
from .real_clients import RealClient, refusal

pytestmark = pytest.mark.processes

WORKER = {"workerGroup": "group", "workerId": "one"}


def claim(queue: Queue, client: RealClient, worker_type: str) -> tuple[str, Json]:
    """Create a task and claim it with its message; the task id and the claim."""
    task_id = slugid()
    client.call("createTask", task_id, queue.task_body(workerType=worker_type))
    urls = client.call("pollTaskUrls", "system", worker_type)["queues"][-1]
    [message] = queue.poll(urls["signedPollUrl"])
    claim = client.call("claimTask", task_id, str(message.run_id), {**WORKER, **message.proof_body})
    queue.server.secrets.add(claim["credentials"]["accessToken"])
    return task_id, claim


@EACH_CLIENT
def test_a_real_client_takes_a_task_from_its_creation_to_its_end(
    queue: Queue, client: RealClient, worker_type: str
) -> None:
    assert client.call("ping")["alive"] is True
    task_id, task = slugid(), queue.task_body(workerType=worker_type, scopes=["a:scope"])
    created = client.call("createTask", task_id, task)["status"]
    assert client.call("createTask", task_id, task)["status"] == created
    assert client.call("status", task_id)["status"] == created
    assert client.call("task", task_id)["metadata"] == task["metadata"]
    assert client.call("pendingTasks", "system", worker_type)["pendingTasks"] > 0

    urls = client.call("pollTaskUrls", "system", worker_type)
    messages = [message for pair in urls["queues"] for message in queue.poll(pair["signedPollUrl"])]
    assert {message.run for message in messages} == {(task_id, 0)}
    claim = client.call("claimTask", task_id, "0", {**WORKER, **messages[0].proof_body})
    assert claim["task"] == client.call("task", task_id)

    mine = claim["credentials"]
    reclaim = client.call("reclaimTask", task_id, "0", credentials=mine)
    assert reclaim["takenUntil"] > claim["takenUntil"]
    queue.server.secrets.update((mine["accessToken"], reclaim["credentials"]["accessToken"]))
    done = client.call("reportCompleted", task_id, "0", credentials=reclaim["credentials"])
    assert done["status"]["state"] == "completed"
    assert client.call("status", task_id) == done


@EACH_CLIENT
def test_a_real_client_gets_the_status_and_code_of_each_refusal(
    queue: Queue, client: RealClient, worker_type: str
) -> None:
    task_id, claimed = claim(queue, client, worker_type)
    wrong = {**queue.server.credentials, "accessToken": "w" * 44}
    another = {**WORKER, "workerId": "two"}
    mine = claimed["credentials"]
    assert refusal(client.call, "status", slugid()) == (404, "ResourceNotFound")
    assert refusal(client.call, "claimTask", task_id, "0", another) == (409, "RequestConflict")
    assert refusal(client.call, "createTask", task_id, queue.task_body()) == (409, "RequestConflict")
    assert refusal(client.call, "createTask", slugid(), {}) == (400, "InputValidationError")
    assert refusal(client.call, "cancelTask", task_id, credentials=mine) == (403, "InsufficientScopes")
    assert refusal(client.call, "cancelTask", task_id, credentials=wrong) == (401, "AuthenticationFailed")
    assert queue.runs(task_id) == [("running", None)]


@EACH_CLIENT
def test_a_real_client_defines_schedules_and_reruns_a_task_and_lists_its_group_and_dependents(
    queue: Queue, client: RealClient, worker_type: str
) -> None:
    first, second, third = sorted(slugid() for _ in range(3))
    task = queue.task_body(workerType=worker_type, taskGroupId=first, schedulerId="scheduler")
    defined = client.call("defineTask", first, task)["status"]
    assert (defined["state"], defined["runs"]) == ("unscheduled", [])
    for task_id in (second, third):
        waiting = client.call("createTask", task_id, {**task, "dependencies": [first]})["status"]
        assert waiting["state"] == "unscheduled"
    assert client.call("scheduleTask", first)["status"]["state"] == "pending"
    assert client.call("cancelTask", first)["status"]["state"] == "exception"
    rerun = client.call("rerunTask", first)["status"]
    assert [run["reasonCreated"] for run in rerun["runs"]] == ["scheduled", "rerun"]

    for method, expected in (
        ("listTaskGroup", [first, second, third]),
        ("listDependentTasks", [first, second, third]),  # a defined task depends on itself
    ):
        whole = client.call(method, first)["tasks"]
        assert [entry["status"] for entry in whole] == [
            client.call("status", task_id)["status"] for task_id in expected
        ]
        assert [entry["task"] for entry in whole] == [client.call("task", task_id) for task_id in expected]
        pages = client.pages(method, first, limit=1)
        assert [entry["status"]["taskId"] for page in pages for entry in page["tasks"]] == expected
        assert all(len(page["tasks"]) <= 1 for page in pages)
    other = slugid()
    another = {**task, "schedulerId": "another"}
    assert refusal(client.call, "createTask", other, another) == (409, "RequestConflict")
