"""Many tasks at once, and the scopes of changed priorities: as a client of today's queue sees them."""

import json
from typing import Any

import pytest

from legacy_queue.domain.authentication import Client
from tests.http.calls import (
    GROUP_ID,
    TASK_ID,
    Credentials,
    Queue,
    refused,
    succeeded,
)

TESTED = Credentials("tested/client", "the-access-token-of-the-tested-client")


def member(queue: Queue, **changes: Any) -> str:
    return queue.create(taskGroupId=GROUP_ID, schedulerId="a-scheduler", **changes)


def asked(queue: Queue, path: str, task_ids: list[str], query: str = "") -> Any:
    body = json.dumps({"taskIds": task_ids} if task_ids else {}).encode()
    return succeeded(queue.send("POST", f"/v1{path}{query}", body, credentials=None)).get_json()


def test_a_token_is_valid_only_with_the_same_body(queue: Queue) -> None:
    tasks = [queue.create() for _ in range(3)]
    token = asked(queue, "/tasks", tasks, "?limit=1")["continuationToken"]
    query = f"?limit=1&continuationToken={token}"
    assert asked(queue, "/tasks", tasks, query)["tasks"][0]["taskId"] == tasks[1]
    answer = queue.send("POST", f"/v1/tasks{query}", json.dumps({"taskIds": tasks[:1]}).encode())
    refused(answer, 400, "InvalidRequestArguments", "continuationToken")


def holding(*scopes: str) -> Queue:
    return Queue(Client(TESTED.client_id, TESTED.access_token, scopes))


@pytest.mark.parametrize(
    ("scope", "raised", "lowered"),
    [
        (f"queue:raise-task-priority:{TASK_ID}", 200, 403),
        (f"queue:lower-task-priority:{TASK_ID}", 403, 200),
        ("queue:create-task:high:provisioner/worker-Type_1", 200, 200),
        ("queue:create-task:medium:provisioner/worker-Type_1", 403, 200),
        ("queue:create-task:low:provisioner/worker-Type_1", 403, 403),  # it has no right to the task as it is
    ],
)
def test_a_scope_allows_to_raise_or_to_lower_a_priority(scope: str, raised: int, lowered: int) -> None:
    for new, status in (("high", raised), ("low", lowered)):
        queue = holding(scope)
        queue.create(TASK_ID, priority="medium")
        answer = queue.call("changeTaskPriority", {"newPriority": new}, TESTED, taskId=TASK_ID)
        assert answer.status_code == status


def test_only_the_tasks_whose_change_the_scopes_allow_are_changed() -> None:
    may_raise, may_lower = (f"queue:{verb}-task-group-priority:{GROUP_ID}" for verb in ("raise", "lower"))
    queue = holding(may_raise)
    low, high = member(queue, priority="low"), member(queue, priority="high")
    answer = queue.call("changeTaskGroupPriority", {"newPriority": "medium"}, TESTED, taskGroupId=GROUP_ID)
    assert succeeded(answer).get_json() == {
        "taskGroupId": GROUP_ID,
        "schedulerId": "a-scheduler",
        "newPriority": "medium",
        "tasksAffected": 1,
        "taskIds": [low],
    }
    assert queue.definition(high)["priority"] == "high"
    both = holding(may_raise, may_lower)
    member(both, priority="low"), member(both, priority="high")
    answer = both.call("changeTaskGroupPriority", {"newPriority": "medium"}, TESTED, taskGroupId=GROUP_ID)
    assert succeeded(answer).get_json()["tasksAffected"] == 2
