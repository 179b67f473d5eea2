"""Task queues over HTTP: what waits in them, what is claimed, and which there are."""

import json
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest

from legacy_queue.domain.authentication import Client
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from tests.http.calls import (
    NOW,
    POOL,
    PROVISIONER,
    WORKER,
    WORKER_TYPE,
    Credentials,
    Queue,
    refused,
    succeeded,
)

QUEUE_ID = f"{PROVISIONER}/{WORKER_TYPE}"
NAMED = {**POOL, "taskQueueId": QUEUE_ID}
SECOND = timedelta(seconds=1)


def of(queue_id: str) -> str:
    return quote(queue_id, safe="")


def listed(queue: Queue, name: str, **query: Any) -> Any:
    path = {"listPendingTasks": "pending", "listClaimedTasks": "claimed"}[name]
    words = "&".join(f"{key}={value}" for key, value in query.items())
    route = f"/api/queue/v1/task-queues/{of(QUEUE_ID)}/{path}?{words}".rstrip("?")
    return succeeded(queue.send("GET", route)).get_json()


def test_counts_are_those_of_pending_and_of_claimed_tasks(queue: Queue) -> None:
    queue.create()
    queue.running(slugid())
    counts = {**NAMED, "pendingTasks": 1, "claimedTasks": 1}
    assert queue.call("taskQueueCounts", taskQueueId=of(QUEUE_ID)).get_json() == counts
    body = {"taskQueueIds": ["none/such", QUEUE_ID]}
    none = {"provisionerId": "none", "workerType": "such", "taskQueueId": "none/such"}
    assert queue.call("taskQueueCountsBatch", body).get_json() == {
        "taskQueueCounts": [{**none, "pendingTasks": 0, "claimedTasks": 0}, counts]
    }
    assert queue.call("taskQueueCountsBatch", {"taskQueueIds": []}).get_json() == {"taskQueueCounts": []}


@pytest.mark.parametrize("ids", [["a"], ["a/b", "a/b"], ["a/b/c"], "a/b", [f"a/{n}" for n in range(1001)]])
def test_counts_of_what_is_no_task_queue_are_refused(queue: Queue, ids: Any) -> None:
    refused(queue.call("taskQueueCountsBatch", {"taskQueueIds": ids}), 400, "InputValidationError")


def test_counts_of_each_task_queue_need_scopes_of_their_own() -> None:
    scopes = [f"queue:{what}-count:{one}" for what in ("pending", "claimed") for one in ("a/b", "a/c")]
    caller = Credentials("counts", "the-access-token-of-a-client-that-counts")
    queue = Queue(Client(caller.client_id, caller.access_token, tuple(scopes)))
    succeeded(queue.call("taskQueueCountsBatch", {"taskQueueIds": ["a/b", "a/c"]}, caller))
    answer = queue.call("taskQueueCountsBatch", {"taskQueueIds": ["a/b", "a/d"]}, caller)
    refused(answer, 403, "InsufficientScopes", "`queue:pending-count:a/d`", "`queue:claimed-count:a/d`")


def test_pending_tasks_are_listed_page_by_page_with_the_time_since_which_they_wait(queue: Queue) -> None:
    tasks = []
    for _ in range(3):
        tasks.append(queue.create())
        queue.clock.advance(SECOND)
    first = listed(queue, "listPendingTasks", limit=2)
    second = listed(queue, "listPendingTasks", continuationToken=first["continuationToken"])
    assert "continuationToken" not in second
    found = first["tasks"] + second["tasks"]
    assert [one["taskId"] for one in found] == tasks
    assert [one["inserted"] for one in found] == [format_time(NOW + number * SECOND) for number in range(3)]
    assert {one["runId"] for one in found} == {0}
    assert found[0]["task"] == queue.definition(tasks[0])


def test_claimed_tasks_are_listed_with_their_worker(queue: Queue) -> None:
    task_id = slugid()
    queue.running(task_id)
    queue.create()
    (one,) = listed(queue, "listClaimedTasks")["tasks"]
    assert one == {
        "taskId": task_id,
        "runId": 0,
        **WORKER,
        "claimed": format_time(NOW),
        "task": queue.definition(task_id),
    }


def test_a_continuation_token_of_one_list_is_refused_by_another(queue: Queue) -> None:
    for _ in range(2):
        queue.create()
    token = listed(queue, "listPendingTasks", limit=1)["continuationToken"]
    for name, task_queue_id in (("claimed", QUEUE_ID), ("pending", "another/queue")):
        path = f"/v1/task-queues/{of(task_queue_id)}/{name}?continuationToken={token}"
        answer = queue.send("GET", path)
        refused(answer, 400, "InvalidRequestArguments", "continuationToken")
        assert answer.get_json()["message"].endswith(f"gave for {task_queue_id}")


def test_task_queues_are_listed_page_by_page(queue: Queue) -> None:
    known = [(f"p{number}", f"w{other}") for number in range(3) for other in range(2)]
    for provisioner, worker_type in known:
        pool = {"provisionerId": provisioner, "workerType": worker_type}
        succeeded(queue.call("declareWorkerType", {"description": f"of {worker_type}"}, **pool))
    ids = ["/".join(one) for one in known]
    for limit in (1, 4, 6, 7):
        found: list[Any] = []
        token = ""
        while token is not None:
            answer = queue.send("GET", f"/v1/task-queues?limit={limit}&continuationToken={token}")
            page = succeeded(answer).get_json()
            found, token = found + page["taskQueues"], page.get("continuationToken")
        assert [one["taskQueueId"] for one in found] == ids
    one = queue.call("getTaskQueue", taskQueueId=of(ids[0])).get_json()
    assert one == found[0]
    assert (one["description"], one["stability"]) == ("of w0", "experimental")


def test_a_task_queue_that_was_never_seen_is_not_there(queue: Queue) -> None:
    refused(queue.call("getTaskQueue", taskQueueId="a%2Fb"), 404, "ResourceNotFound", "a/b")
    assert queue.call("listTaskQueues").get_json() == {"taskQueues": []}


def test_a_worker_that_claims_makes_its_task_queue_known(queue: Queue) -> None:
    queue.create()
    route = f"/v1/claim-work/{of(QUEUE_ID)}"
    succeeded(queue.send("POST", route, json.dumps(WORKER).encode()))
    assert [one["taskQueueId"] for one in queue.call("listTaskQueues").get_json()["taskQueues"]] == [QUEUE_ID]
