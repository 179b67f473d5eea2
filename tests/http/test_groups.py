"""Many tasks at once, sealed groups, and changed priorities: as a client of today's queue sees them."""

import json
from typing import Any

import pytest

from legacy_queue.domain.authentication import Client
from legacy_queue.domain.ids import slugid
from tests.http.calls import (
    GROUP_ID,
    NOW,
    PROVISIONER,
    TASK_ID,
    TODAY,
    WORKER_TYPE,
    Credentials,
    Queue,
    refused,
    succeeded,
    task_body,
)

TESTED = Credentials("tested/client", "the-access-token-of-the-tested-client")


def member(queue: Queue, **changes: Any) -> str:
    return queue.create(taskGroupId=GROUP_ID, schedulerId="a-scheduler", **changes)


def asked(queue: Queue, path: str, task_ids: list[str], query: str = "") -> Any:
    body = json.dumps({"taskIds": task_ids} if task_ids else {}).encode()
    return succeeded(queue.send("POST", f"/v1{path}{query}", body, credentials=None)).get_json()


@pytest.mark.parametrize(
    ("path", "name", "item"), [("/tasks", "tasks", "task"), ("/tasks/status", "statuses", "status")]
)
def test_tasks_are_answered_in_the_order_of_the_request(
    queue: Queue, path: str, name: str, item: str
) -> None:
    first, second = queue.create(), queue.running()
    answer = asked(queue, path, [second, slugid(), first, second])
    assert list(answer) == [name]
    assert [entry["taskId"] for entry in answer[name]] == [second, first]
    single = succeeded(queue.call(item, taskId=second, prefix=TODAY)).get_json()
    assert answer[name][0][item] == (single if item == "task" else single["status"])
    assert asked(queue, path, []) == {name: []}


def test_tasks_come_in_pages(queue: Queue) -> None:
    tasks = [queue.create() for _ in range(5)]
    missing = [*tasks[:2], slugid(), *tasks[2:]]
    seen, query = [], "?limit=2"
    for _ in range(3):
        page = asked(queue, "/tasks/status", missing, query)
        seen += [entry["taskId"] for entry in page["statuses"]]
        query = f"?limit=2&continuationToken={page.get('continuationToken', '')}"
    assert seen == tasks
    assert "continuationToken" not in page


def test_a_token_is_valid_only_with_the_same_body(queue: Queue) -> None:
    tasks = [queue.create() for _ in range(3)]
    token = asked(queue, "/tasks", tasks, "?limit=1")["continuationToken"]
    query = f"?limit=1&continuationToken={token}"
    assert asked(queue, "/tasks", tasks, query)["tasks"][0]["taskId"] == tasks[1]
    answer = queue.send("POST", f"/v1/tasks{query}", json.dumps({"taskIds": tasks[:1]}).encode())
    refused(answer, 400, "InvalidRequestArguments", "continuationToken")


def test_at_most_a_thousand_tasks_are_answered_at_once(queue: Queue) -> None:
    ids = [slugid() for _ in range(1001)]
    assert asked(queue, "/tasks/status", ids[:1000]) == {"statuses": []}
    refused(queue.call("statuses", {"taskIds": ids}), 400, "InputValidationError", "1000")
    refused(queue.call("statuses", {"taskIds": ["a/b"]}), 400, "InputValidationError", "a/b")


def test_a_sealed_group_shows_its_time_and_takes_no_new_task(queue: Queue) -> None:
    first = member(queue)
    before = succeeded(queue.call("getTaskGroup", taskGroupId=GROUP_ID)).get_json()
    assert before == {
        "taskGroupId": GROUP_ID,
        "schedulerId": "a-scheduler",
        "expires": "2019-03-06T00:00:00.000Z",
    }
    sealed = succeeded(queue.call("sealTaskGroup", taskGroupId=GROUP_ID)).get_json()
    assert sealed == {**before, "sealed": "2018-03-04T05:06:07.890Z"}
    assert succeeded(queue.call("getTaskGroup", taskGroupId=GROUP_ID)).get_json() == sealed
    listed = succeeded(queue.call("listTaskGroup", taskGroupId=GROUP_ID, prefix=TODAY)).get_json()
    assert {name: listed[name] for name in sealed} == sealed
    late = task_body(NOW, taskGroupId=GROUP_ID, schedulerId="a-scheduler")
    answer = queue.call("createTask", late, taskId=TASK_ID)
    refused(answer, 409, "RequestConflict", f"task group {GROUP_ID} is sealed", "Use another taskGroupId")
    succeeded(queue.call("createTask", late, taskId=first))


def test_only_a_sealed_group_is_canceled(queue: Queue) -> None:
    first, second = member(queue), member(queue)
    answer = queue.call("cancelTaskGroup", taskGroupId=GROUP_ID)
    refused(answer, 409, "RequestConflict", "is not sealed", "sealTaskGroup first")
    succeeded(queue.call("cancelTask", taskId=first))
    succeeded(queue.call("sealTaskGroup", taskGroupId=GROUP_ID))
    assert succeeded(queue.call("cancelTaskGroup", taskGroupId=GROUP_ID)).get_json() == {
        "taskGroupId": GROUP_ID,
        "taskGroupSize": 2,
        "cancelledCount": 1,
        "taskIds": [second],
    }


@pytest.mark.parametrize("name", ["getTaskGroup", "sealTaskGroup", "cancelTaskGroup"])
def test_an_unknown_group_is_not_found(queue: Queue, name: str) -> None:
    refused(queue.call(name, taskGroupId=GROUP_ID), 404, "ResourceNotFound", GROUP_ID)


def in_queue(queue: Queue, state: str) -> Any:
    """The only task of the task queue that is ``pending``, or ``claimed``, as in the list."""
    path = f"/v1/task-queues/{PROVISIONER}%2F{WORKER_TYPE}/{state}"
    (listed,) = succeeded(queue.send("GET", path)).get_json()["tasks"]
    return listed


def test_a_changed_priority_is_shown_wherever_the_task_is(queue: Queue) -> None:
    task_id = queue.create()
    change = {"newPriority": "high"}
    answer = succeeded(queue.call("changeTaskPriority", change, taskId=task_id, prefix=TODAY))
    assert answer.get_json()["status"]["priority"] == "high"
    assert queue.definition(task_id)["priority"] == "high"
    page = succeeded(queue.call("listTaskGroup", taskGroupId=task_id, prefix=TODAY)).get_json()
    (listed,) = page["tasks"]
    assert (listed["task"]["priority"], listed["status"]["priority"]) == ("high", "high")
    assert [message[0] for message in queue.messages()] == [task_id, task_id]
    assert in_queue(queue, "pending")["task"]["priority"] == "high"
    claim = succeeded(queue.claim(task_id)).get_json()
    assert in_queue(queue, "claimed")["task"]["priority"] == "high"
    assert claim["task"]["priority"] == "high"


def test_an_invalid_priority_is_refused(queue: Queue) -> None:
    task_id = queue.create()
    for body in ({}, {"newPriority": "normal"}, {"newPriority": 7}):
        refused(queue.call("changeTaskPriority", body, taskId=task_id), 400, "InputValidationError")


def test_a_change_of_the_priority_of_a_resolved_task_is_a_conflict(queue: Queue) -> None:
    answer = queue.call("changeTaskPriority", {"newPriority": "high"}, taskId=queue.canceled())
    refused(answer, 409, "RequestConflict", "it is resolved")


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


def test_a_refused_change_of_a_group_names_the_missing_scope() -> None:
    queue = holding("queue:create-task:*")
    member(queue)
    answer = queue.call("changeTaskGroupPriority", {"newPriority": "high"}, TESTED, taskGroupId=GROUP_ID)
    refused(answer, 403, "InsufficientScopes", f"queue:change-task-group-priority:a-scheduler/{GROUP_ID}")
