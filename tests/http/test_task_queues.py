"""Task queues over HTTP: their pending tasks, and the scopes of their counts."""

from datetime import timedelta
from typing import Any
from urllib.parse import quote

from legacy_queue.domain.authentication import Client
from legacy_queue.domain.times import format_time
from tests.http.calls import (
    NOW,
    PROVISIONER,
    WORKER_TYPE,
    Credentials,
    Queue,
    refused,
    succeeded,
)

QUEUE_ID = f"{PROVISIONER}/{WORKER_TYPE}"
SECOND = timedelta(seconds=1)


def pending(queue: Queue, query: str) -> Any:
    route = f"/api/queue/v1/task-queues/{quote(QUEUE_ID, safe='')}/pending?{query}"
    return succeeded(queue.send("GET", route)).get_json()


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
    first = pending(queue, "limit=2")
    second = pending(queue, f"continuationToken={first['continuationToken']}")
    assert "continuationToken" not in second
    entries = first["tasks"] + second["tasks"]
    assert [entry["taskId"] for entry in entries] == tasks
    assert [entry["inserted"] for entry in entries] == [
        format_time(NOW + number * SECOND) for number in range(3)
    ]
    assert {entry["runId"] for entry in entries} == {0}
    assert entries[0]["task"] == queue.definition(tasks[0])


def test_an_unknown_task_queue_is_not_found(queue: Queue) -> None:
    refused(queue.call("getTaskQueue", taskQueueId="a%2Fb"), 404, "ResourceNotFound", "a/b")
    assert queue.call("listTaskQueues").get_json() == {"taskQueues": []}
