"""The rules of each field of a task definition, at its limit and just beyond, as the schema has them.

Source: docs/explanation/http-contract.md#task-definition. Those between fields, and of times, are in
tests/domain/test_definition.py.
"""

import json
from typing import Any

import pytest

from legacy_queue.domain.errors import InputValidationError
from legacy_queue.domain.priority import PRIORITIES
from legacy_queue.domain.times import format_time
from legacy_queue.http.bodies import validate
from tests.http.calls import NOW, Queue, refused, task_body

IDENTIFIERS = ("provisionerId", "workerType", "schedulerId")
MANY_IDS = [f"{number:03}Q3g3rTZuH-bUFBpVoxw" for number in range(101)]
OTHER_ID = "eJzQ3g3rTZuH-bUFBpVoxw"


def metadata(**changes: Any) -> dict[str, Any]:
    changed = {**task_body()["metadata"], **changes}
    return {name: value for name, value in changed.items() if value is not None}


# at the limits
ACCEPTED: list[dict[str, Any]] = [
    *({name: value} for name in IDENTIFIERS for value in ("a", "Z9-_" * 9 + "38")),
    {"taskQueueId": f"{'p' * 38}/{'w' * 38}", "provisionerId": None, "workerType": None},
    *({"projectId": project} for project in ("none", "a/project", "p" * 500)),
    {"metadata": metadata(name="n" * 255, description="d" * 32768, source="http://h/" + "s" * 4087)},
    {"metadata": metadata(name="\u00e4\U0001f600\u0000", owner="first.last+tag@sub.example.com")},
    {"tags": {"a": "t" * 4096, "": "", "\u00e4": "\u2028"}},
    {"routes": [f"route.{number}" for number in range(64)]},
    {"routes": ["r" * 249, "a route with ~ and spaces"]},
    *({"retries": retries} for retries in (0, 49)),
    *({"priority": priority} for priority in (*PRIORITIES, "normal")),
    {"scopes": ["a", "a*", "*", "a**b", " ~"]},
    *({"requires": requires} for requires in ("all-completed", "all-resolved")),
    {"extra": {"anything": [None, {}, 1.5]}},
    *({"expires": expires} for expires in (format_time(NOW), "9999-12-31T23:59:59.999Z")),
]

# beyond them: the values of a property, and of a property of metadata
NOT_VALID: dict[str, list[Any]] = {
    "schedulerId": ["", "x" * 39, "a b", "\u00e4", "a\n", 1],
    "provisionerId": ["a b"],
    "workerType": ["a b"],
    "taskGroupId": ["", OTHER_ID[:-1], OTHER_ID + "A", OTHER_ID[:-1] + "B", 7],
    "taskQueueId": ["", "a", "a/", "a/b/c", "a%2Fb", "a/b\n", 1],
    "projectId": ["", "a b", "p" * 501, 1],
    "metadata": [[], "x"],
    "tags": [{"a": "t" * 4097}, {"a": 1}, ["a"]],
    "routes": [[str(number) for number in range(65)], ["r", "r"], ["r" * 250], [""], ["\u00e4"], "r"],
    "retries": [-1, 50, 1.5, "5", True, 2**40],
    "priority": ["urgent", "", "High", 4],
    "scopes": [[""], ["\u00e4"], ["a\nb"], ["a\n"], ["a", 1], "a"],
    "dependencies": [["x"], [OTHER_ID, OTHER_ID]],
    "requires": ["any"],
    "payload": [[], "x", 1],
    "extra": [[]],
    "created": ["", "today", "2018-03-05", "2018-03-05T05:06:07", "2018-13-05T05:06:07Z", 15201],
    "deadline": ["today"],
    "expires": ["today"],
    "unknown": [1],
    "taskId": [OTHER_ID],
}
NOT_METADATA: dict[str, list[Any]] = {
    "name": ["n" * 256, 1],
    "description": ["d" * 32769],
    "owner": ["nobody", "@", "o" * 250 + "@e.com"],
    "source": ["ftp://h/", "https://", "http://h/ a", "http://h/" + "s" * 4088],
    "unknown": ["x"],
}
REQUIRED = [name for name in task_body() if name not in ("provisionerId", "workerType")]

REFUSED: list[tuple[str, dict[str, Any]]] = [
    *((name, {name: value}) for name, values in NOT_VALID.items() for value in values),
    *(
        (name, {"metadata": metadata(**{name: value})})
        for name, values in NOT_METADATA.items()
        for value in (*values, None)
        if value or name != "unknown"
    ),
    *((f'"{name}"', {name: None}) for name in REQUIRED),
]


def checked(changes: dict[str, Any]) -> None:
    body = task_body(**changes)
    validate(body, "create-task-request", len(json.dumps(body)))


def test_a_definition_at_each_limit_is_accepted() -> None:
    for changes in ACCEPTED:
        checked(changes)


@pytest.mark.parametrize(("named", "changes"), REFUSED, ids=lambda case: json.dumps(case)[:60])
def test_a_definition_beyond_a_limit_is_refused(named: str, changes: dict[str, Any]) -> None:
    with pytest.raises(InputValidationError, match=named):
        checked(changes)


def test_a_definition_at_all_limits_comes_back_as_it_was_sent(queue: Queue) -> None:
    limits = {name: value for changes in ACCEPTED for name, value in changes.items()}
    del limits["expires"], limits["priority"]
    task_id = queue.create(**limits)
    given = {name: value for name, value in limits.items() if value is not None}
    stored = queue.definition(task_id)
    assert stored == {**stored, **given}


@pytest.mark.parametrize(
    ("changes", "code", "mentioned"),
    [
        ({"retries": -1}, "InputValidationError", "body/retries"),
        ({"deadline": "2018-03-05T23:59:60Z"}, "InputError", "deadline"),
        ({"dependencies": MANY_IDS}, "InputError", "there are 101; 100 are accepted"),
        ({"dependencies": MANY_IDS[:100]}, "InputError", "and 90 more"),
    ],
    ids=str,
)
def test_a_refused_definition_makes_no_task_and_no_message(
    queue: Queue, changes: dict[str, Any], code: str, mentioned: str
) -> None:
    refused(queue.call("createTask", task_body(**changes), taskId=OTHER_ID), 400, code, mentioned)
    refused(queue.call("task", taskId=OTHER_ID), 404, "ResourceNotFound")
    assert queue.messages() == []


def test_creating_a_task_again_with_another_definition_is_a_conflict(queue: Queue) -> None:
    task_id = queue.create()
    changes: dict[str, Any] = {"retries": 4, "metadata": metadata(name="another name")}
    before = queue.definition(task_id)
    answer = queue.call("createTask", task_body(**changes), taskId=task_id)
    message = refused(answer, 409, "RequestConflict", task_id, *changes)
    both = json.loads(message.partition("\n\n")[2])
    assert both == {"existing": before, "given": {**before, **changes, "expires": both["given"]["expires"]}}
    assert queue.definition(task_id) == before
