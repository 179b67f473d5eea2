"""Task queues over HTTP: their pending tasks, their claimed tasks, and the list of them."""

from datetime import timedelta
from typing import Any
from urllib.parse import quote

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


def test_pending_and_claimed_tasks_are_counted(queue: Queue) -> None:
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


def test_the_counts_of_each_task_queue_need_its_scopes() -> None:
    scopes = [
        f"queue:{what}-count:{task_queue_id}"
        for what in ("pending", "claimed")
        for task_queue_id in ("a/b", "a/c")
    ]
    caller = Credentials("counts", "the-access-token-of-a-client-that-counts")
    queue = Queue(Client(caller.client_id, caller.access_token, tuple(scopes)), anonymous_scopes=())
    succeeded(queue.call("taskQueueCountsBatch", {"taskQueueIds": ["a/b", "a/c"]}, caller))
    answer = queue.call("taskQueueCountsBatch", {"taskQueueIds": ["a/b", "a/d"]}, caller)
    refused(answer, 403, "InsufficientScopes", "`queue:pending-count:a/d`", "`queue:claimed-count:a/d`")


def test_pending_tasks_are_listed_in_pages_with_the_time_of_their_insertion(queue: Queue) -> None:
    tasks = []
    for _ in range(3):
        tasks.append(queue.create())
        queue.clock.advance(SECOND)
    first = listed(queue, "listPendingTasks", limit=2)
    second = listed(queue, "listPendingTasks", continuationToken=first["continuationToken"])
    assert "continuationToken" not in second
    entries = first["tasks"] + second["tasks"]
    assert [entry["taskId"] for entry in entries] == tasks
    assert [entry["inserted"] for entry in entries] == [
        format_time(NOW + number * SECOND) for number in range(3)
    ]
    assert {entry["runId"] for entry in entries} == {0}
    assert entries[0]["task"] == queue.definition(tasks[0])


def test_claimed_tasks_are_listed_with_their_worker(queue: Queue) -> None:
    task_id = slugid()
    queue.running(task_id)
    queue.create()
    (entry,) = listed(queue, "listClaimedTasks")["tasks"]
    assert entry == {
        "taskId": task_id,
        "runId": 0,
        **WORKER,
        "claimed": format_time(NOW),
        "task": queue.definition(task_id),
    }


def test_task_queues_are_listed_in_pages(queue: Queue) -> None:
    pools = [(f"p{number}", f"w{other}") for number in range(3) for other in range(2)]
    for provisioner, worker_type in pools:
        pool: dict[str, Any] = {"provisionerId": provisioner, "workerType": worker_type}
        succeeded(queue.call("declareWorkerType", {"description": f"of {worker_type}"}, **pool))
    ids = ["/".join(pool_id) for pool_id in pools]
    for limit in (1, 4, 6, 7):
        entries: list[Any] = []
        token: str | None = ""
        while token is not None:
            answer = queue.send("GET", f"/v1/task-queues?limit={limit}&continuationToken={token}")
            page = succeeded(answer).get_json()
            entries, token = entries + page["taskQueues"], page.get("continuationToken")
        assert [entry["taskQueueId"] for entry in entries] == ids
    first = queue.call("getTaskQueue", taskQueueId=of(ids[0])).get_json()
    assert first == entries[0]
    assert (first["description"], first["stability"]) == ("of w0", "experimental")


def test_an_unknown_task_queue_is_not_found(queue: Queue) -> None:
    refused(queue.call("getTaskQueue", taskQueueId="a%2Fb"), 404, "ResourceNotFound", "a/b")
    assert queue.call("listTaskQueues").get_json() == {"taskQueues": []}
