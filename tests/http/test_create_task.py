"""Each rule of the task definition, at its limit and just beyond.

Source: docs/explanation/http-contract.md#task-definition.
"""

import json
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import pytest

from legacy_queue.domain.authentication import Client
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from tests.http.calls import (
    NOW,
    PROVISIONER,
    TODAY,
    WORKER_TYPE,
    Credentials,
    Queue,
    play,
    refused,
    succeeded,
    task_body,
)

MS, MINUTE, DAY = timedelta(milliseconds=1), timedelta(minutes=1), timedelta(days=1)
DEADLINE = NOW + DAY
IDENTIFIERS = ("provisionerId", "workerType", "schedulerId")
MANY_IDS = [f"{number:03}Q3g3rTZuH-bUFBpVoxw" for number in range(101)]
OTHER_ID = "eJzQ3g3rTZuH-bUFBpVoxw"


def at(time: datetime) -> str:
    return format_time(time)


def metadata(**changes: Any) -> dict[str, Any]:
    changed = {**task_body()["metadata"], **changes}
    return {name: value for name, value in changed.items() if value is not None}


ACCEPTED: list[dict[str, Any]] = [
    *({name: value} for name in IDENTIFIERS for value in ("a", "-", "_", "Z9-_" * 9 + "38")),
    {"taskGroupId": OTHER_ID},
    {"taskQueueId": f"{PROVISIONER}/{WORKER_TYPE}"},
    {"taskQueueId": f"{'p' * 38}/{'w' * 38}", "provisionerId": None, "workerType": None},
    *({"projectId": project} for project in ("none", "a/project", "p" * 500)),
    {"metadata": metadata(name="n" * 255)},
    {"metadata": metadata(name="")},
    {"metadata": metadata(name="\u00e4\U0001f600\u0000")},
    {"metadata": metadata(description="d" * 32768)},
    {"metadata": metadata(source="http://h/" + "s" * 4087)},
    {"metadata": metadata(owner="first.last+tag@sub.example.com")},
    {"tags": {}},
    {"tags": {"a": "t" * 4096, "": "", "\u00e4": "\u2028"}},
    {"routes": []},
    {"routes": [f"route.{number}" for number in range(64)]},
    {"routes": ["r" * 249]},
    {"routes": ["r", "a route with ~ and spaces"]},
    {"retries": 0},
    {"retries": 49},
    *({"priority": priority} for priority in ("highest", "very-high", "high", "medium", "low", "very-low")),
    {"priority": "lowest"},
    {"priority": "normal"},
    {"scopes": []},
    {"scopes": ["a", "a*", "*", "a**b", " ~"]},
    {"scopes": [f"scope:{number}" for number in range(1000)]},
    {"dependencies": []},
    {"requires": "all-completed"},
    {"requires": "all-resolved"},
    {"payload": {}},
    {"extra": {"anything": [None, {}, 1.5]}},
    {"created": at(NOW - 15 * MINUTE)},
    {"created": at(NOW + 15 * MINUTE)},
    {"created": at(NOW), "deadline": at(NOW + MS)},
    {"created": at(NOW + MINUTE), "deadline": at(NOW + MINUTE)},
    {"deadline": at(NOW + 5 * DAY)},
    {"deadline": at(NOW + 5 * DAY + 15 * MINUTE)},
    {"expires": at(DEADLINE)},
    {"expires": "9999-12-31T23:59:59.999Z"},
]  # fmt: skip

NOT_IDENTIFIERS: list[Any] = [
    *("", "x" * 39, "a b", "a/b", "a.b", "a:b", "\u00e4", "a\n", "\n"),
    *(1, ["a"], {}),
]  # fmt: skip
NOT_GROUP_IDS: list[Any] = [
    *("", "a", OTHER_ID[:-1], OTHER_ID + "A", OTHER_ID[:-1] + "B", f" {OTHER_ID}"),
    7,
]  # fmt: skip
NOT_TIMES: list[Any] = ["", "today", "2018-03-05", "2018-03-05T05:06:07", "2018-13-05T05:06:07Z", 15201, {}]
NOT_TASK_QUEUE_IDS: list[Any] = ["", "a", "a/", "/a", "a/b/c", "a%2Fb", "a/b\n", 1]
NOT_PROJECT_IDS: list[Any] = ["", "a b", "p" * 501, 1]
NOT_PRIORITIES: list[Any] = ["urgent", "", "High", 4, ["low"]]
NOT_RETRIES: list[Any] = [-1, 50, 1.5, "5", True, 2**40]
NOT_OBJECTS: list[Any] = [[], "x", 1, True]

# the changes, the code, and the text that the message must contain
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    *(
        ({name: value}, "InputValidationError", name)
        for name, value in product(["schedulerId"], NOT_IDENTIFIERS)
    ),
    *(({name: "a b"}, "InputValidationError", name) for name in IDENTIFIERS[:2]),
    *(
        ({"taskGroupId": value}, "InputValidationError", "taskGroupId")
        for value in NOT_GROUP_IDS
    ),
    ({"metadata": metadata(name="n" * 256)}, "InputValidationError", "metadata/name"),
    ({"metadata": metadata(name=1)}, "InputValidationError", "metadata/name"),
    ({"metadata": metadata(description="d" * 32769)}, "InputValidationError", "metadata/description"),
    ({"metadata": metadata(owner="nobody")}, "InputValidationError", '"nobody"'),
    ({"metadata": metadata(owner="@")}, "InputValidationError", "metadata/owner"),
    ({"metadata": metadata(owner="o" * 250 + "@e.com")}, "InputValidationError", "metadata/owner"),
    ({"metadata": metadata(source="ftp://h/")}, "InputValidationError", '"ftp://h/"'),
    ({"metadata": metadata(source="h")}, "InputValidationError", "metadata/source"),
    ({"metadata": metadata(source="https://")}, "InputValidationError", "metadata/source"),
    ({"metadata": metadata(source="http://h/ a")}, "InputValidationError", "metadata/source"),
    ({"metadata": metadata(source="http://h/" + "s" * 4088)}, "InputValidationError", "metadata/source"),
    ({"metadata": metadata(unknown="x")}, "InputValidationError", "'unknown'"),
    *(({"metadata": metadata(**{name: None})}, "InputValidationError", f'"{name}"') for name in metadata()),
    *(({"metadata": value}, "InputValidationError", "metadata") for value in NOT_OBJECTS),
    ({"tags": {"a": "t" * 4097}}, "InputValidationError", "tags/a"),
    ({"tags": {"a": 1}}, "InputValidationError", "tags/a"),
    ({"tags": {"a": None}}, "InputValidationError", "tags/a"),
    ({"tags": ["a"]}, "InputValidationError", "tags"),
    ({"routes": [f"route.{number}" for number in range(65)]}, "InputValidationError", "routes"),
    ({"routes": ["r", "q", "r"]}, "InputValidationError", "routes"),
    ({"routes": ["r" * 250]}, "InputValidationError", "routes/0"),
    ({"routes": ["r", ""]}, "InputValidationError", "routes/1"),
    ({"routes": ["\u00e4"]}, "InputValidationError", "routes/0"),
    ({"routes": [1]}, "InputValidationError", "routes/0"),
    ({"routes": "r"}, "InputValidationError", "routes"),
    *(({"retries": value}, "InputValidationError", "retries") for value in NOT_RETRIES),
    *(({"priority": value}, "InputValidationError", "very-low") for value in NOT_PRIORITIES),
    ({"scopes": ["a**"]}, "InputError", "'a**'"),
    ({"scopes": ["a", "***"]}, "InputError", "'***'"),
    ({"scopes": [""]}, "InputValidationError", "scopes/0"),
    ({"scopes": ["\u00e4"]}, "InputValidationError", "scopes/0"),
    ({"scopes": ["a\nb"]}, "InputValidationError", "scopes/0"),
    ({"scopes": ["a\n"]}, "InputValidationError", "scopes/0"),
    ({"scopes": ["a", 1]}, "InputValidationError", "scopes/1"),
    ({"scopes": "a"}, "InputValidationError", "scopes"),
    ({"dependencies": [OTHER_ID]}, "InputError", f"{OTHER_ID} does not exist"),
    ({"dependencies": ["x"]}, "InputValidationError", "dependencies/0"),
    ({"dependencies": [OTHER_ID, OTHER_ID]}, "InputValidationError", "dependencies"),
    ({"dependencies": MANY_IDS}, "InputError", "there are 101; 100 are accepted"),
    ({"dependencies": MANY_IDS[:100]}, "InputError", "and 90 more"),
    ({"requires": "any"}, "InputValidationError", "all-resolved"),
    *(({"payload": value}, "InputValidationError", "payload") for value in NOT_OBJECTS),
    ({"extra": []}, "InputValidationError", "extra"),
    ({"unknown": 1}, "InputValidationError", "'unknown'"),
    ({"taskId": OTHER_ID}, "InputValidationError", "'taskId'"),
    ({"Priority": "low"}, "InputValidationError", "'Priority'"),
    *(
        ({name: None}, "InputValidationError", f'"{name}"')
        for name in task_body()
        if name not in ("provisionerId", "workerType")
    ),
    ({"provisionerId": None}, "InputError", "taskQueueId, or both provisionerId and workerType"),
    ({"workerType": None}, "InputError", "taskQueueId, or both provisionerId and workerType"),
    ({"taskQueueId": "another/pool"}, "InputError", "they must name the same pool"),
    *(
        ({"taskQueueId": value}, "InputValidationError", "taskQueueId")
        for value in NOT_TASK_QUEUE_IDS
    ),
    *(({"projectId": value}, "InputValidationError", "projectId") for value in NOT_PROJECT_IDS),
    ({"created": at(NOW - 15 * MINUTE - MS)}, "InputError", at(NOW - 15 * MINUTE - MS)),
    ({"created": at(NOW + 15 * MINUTE + MS)}, "InputError", "within 15 minutes of now, " + at(NOW)),
    ({"created": at(NOW + MINUTE), "deadline": at(NOW + MINUTE - MS)}, "InputError", "before created"),
    ({"created": at(NOW - MINUTE), "deadline": at(NOW)}, "InputError", "in the future"),
    ({"deadline": at(NOW + 5 * DAY + 15 * MINUTE + MS)}, "InputError", "at most 5 days"),
    ({"deadline": "9999-12-31T23:59:59.999Z"}, "InputError", "deadline"),
    ({"expires": at(DEADLINE - MS)}, "InputError", at(DEADLINE - MS)),
    *(
        ({name: value}, "InputValidationError", name)
        for name, value in [*product(["created"], NOT_TIMES), *product(["deadline", "expires"], ["today"])]
    ),
    ({"created": "0000-03-05T05:06:07Z"}, "Input", "created"),
    ({"created": "0001-01-01T00:00:00+23:59"}, "Input", "created"),
    ({"deadline": "9999-12-31T23:59:59-23:59"}, "Input", "deadline"),
    ({"deadline": "2018-03-05T23:59:60Z"}, "Input", "deadline"),
]  # fmt: skip


def name_of(case: Any) -> str:
    return json.dumps(case)[:60]


@pytest.mark.parametrize("changes", ACCEPTED, ids=name_of)
def test_a_definition_at_a_limit_is_accepted(queue: Queue, changes: dict[str, Any]) -> None:
    task_id = queue.create(**changes)
    stored = queue.definition(task_id)
    priority = {"priority": "lowest"} if changes.get("priority") == "normal" else {}
    given = {name: value for name, value in changes.items() if value is not None}
    assert stored == {**stored, **given, **priority}


@pytest.mark.parametrize(
    ("changes", "code", "mentioned"), REFUSED, ids=[name_of(case[0]) for case in REFUSED]
)
def test_a_definition_beyond_a_limit_is_refused(
    queue: Queue, changes: dict[str, Any], code: str, mentioned: str
) -> None:
    task_id = slugid()
    answer = queue.call("createTask", task_body(**changes), taskId=task_id)
    body = answer.get_json()
    assert answer.status_code == 400
    assert body["code"].startswith(code)
    assert mentioned in body["message"]
    refused(queue.call("task", taskId=task_id), 404, "ResourceNotFound")
    assert queue.messages() == []


@pytest.mark.parametrize("name", [name for name in task_body() if name != "metadata"] + ["tags", "expires"])
def test_a_property_with_the_value_null_is_refused(queue: Queue, name: str) -> None:
    answer = queue.call("createTask", {**task_body(), name: None}, taskId=slugid())
    refused(answer, 400, "InputValidationError", name)


@pytest.mark.parametrize("body", [[], [task_body()], "text", 1, True, 1.5, {}])
def test_a_body_that_is_not_a_definition_is_refused(queue: Queue, body: Any) -> None:
    refused(queue.call("createTask", body, taskId=slugid()), 400, "InputValidationError", "body")


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("2018-03-04T05:06:07.089402Z", "2018-03-04T05:06:07.089Z"),
        ("2018-03-04T05:06:07.123456+00:00", "2018-03-04T05:06:07.123Z"),
        ("2018-03-04T05:06:07Z", "2018-03-04T05:06:07.000Z"),
        ("2018-03-04T05:06:07.9Z", "2018-03-04T05:06:07.900Z"),
        ("2018-03-04T07:06:07.089+02:00", "2018-03-04T05:06:07.089Z"),
        ("2018-03-04t05:06:07.089z", "2018-03-04T05:06:07.089Z"),
    ],
)
def test_a_time_is_accepted_in_the_forms_that_clients_write(queue: Queue, sent: str, stored: str) -> None:
    task_id = queue.create(created=sent)
    assert queue.definition(task_id)["created"] == stored


def test_the_defaults_of_a_definition_are_as_documented(queue: Queue) -> None:
    task_id = queue.create()
    assert queue.definition(task_id) == {
        **task_body(),
        "taskQueueId": f"{PROVISIONER}/{WORKER_TYPE}",
        "projectId": "none",
        "schedulerId": "-",
        "taskGroupId": task_id,
        "dependencies": [],
        "requires": "all-completed",
        "routes": [],
        "priority": "lowest",
        "retries": 5,
        "expires": at(DEADLINE + 365 * DAY),
        "scopes": [],
        "tags": {},
        "extra": {},
    }


def test_the_status_of_a_new_task_is_as_documented(queue: Queue) -> None:
    task_id = slugid()
    answer = succeeded(queue.call("createTask", task_body(), taskId=task_id, prefix=TODAY))
    status = answer.get_json()["status"]
    assert status == {
        "taskId": task_id,
        "provisionerId": PROVISIONER,
        "workerType": WORKER_TYPE,
        "taskQueueId": f"{PROVISIONER}/{WORKER_TYPE}",
        "projectId": "none",
        "schedulerId": "-",
        "priority": "lowest",
        "taskGroupId": task_id,
        "deadline": at(DEADLINE),
        "expires": at(DEADLINE + 365 * DAY),
        "retriesLeft": 5,
        "state": "pending",
        "runs": [{"runId": 0, "state": "pending", "reasonCreated": "scheduled", "scheduled": at(NOW)}],
    }
    assert queue.call("status", taskId=task_id, prefix=TODAY).get_json()["status"] == status


def test_creating_a_task_again_with_the_same_definition_answers_the_same(queue: Queue) -> None:
    task_id, body = slugid(), task_body(scopes=["a"], extra={"b": 1})
    first = succeeded(queue.call("createTask", body, taskId=task_id)).get_json()
    queue.clock.advance(MINUTE)
    assert succeeded(queue.call("createTask", body, taskId=task_id)).get_json() == first
    defaults = queue.definition(task_id)
    assert succeeded(queue.call("createTask", defaults, taskId=task_id)).get_json() == first
    assert {message[:2] for message in queue.messages()} == {(task_id, 0)}


@pytest.mark.parametrize(
    "changes",
    [
        {"retries": 4},
        {"payload": {"command": ["false"]}},
        {"payload": {"command": ["true"], "more": 1}},
        {"deadline": at(DEADLINE + MS)},
        {"priority": "low"},
        {"tags": {"a": "b"}},
        {"workerType": "another", "taskQueueId": f"{PROVISIONER}/another"},
        {"projectId": "another"},
        {"scopes": ["a"]},
        {"metadata": metadata(name="another name")},
    ],
    ids=name_of,
)
def test_creating_a_task_again_with_another_definition_is_a_conflict(
    queue: Queue, changes: dict[str, Any]
) -> None:
    task_id = queue.create()
    before = queue.definition(task_id)
    answer = queue.call("createTask", task_body(**changes), taskId=task_id)
    message = refused(answer, 409, "RequestConflict", task_id)
    assert [name for name in changes if name != "taskQueueId" and name not in message] == []
    both = json.loads(message.partition("\n\n")[2])
    assert both == {"existing": before, "given": {**before, **changes, "expires": both["given"]["expires"]}}
    assert queue.definition(task_id) == before


def test_a_project_needs_its_scope_unless_it_is_none() -> None:
    pool = f"{PROVISIONER}/{WORKER_TYPE}"
    caller = Credentials("legacy", "the-access-token-of-a-legacy-client")
    queue = Queue(Client(caller.client_id, caller.access_token, (f"queue:create-task:{pool}",)))
    cases: list[dict[str, Any]] = [{}, {"projectId": "none"}, {"projectId": "a-project"}]
    for changes in cases:
        answer = queue.call("createTask", task_body(**changes), caller, taskId=slugid())
        if changes.get("projectId") == "a-project":
            refused(answer, 403, "InsufficientScopes", "`queue:create-task:project:a-project`")
        else:
            succeeded(answer)


@pytest.mark.parametrize("size", [900 * 1024 - 2000, 500_000])
def test_a_large_definition_is_accepted(queue: Queue, size: int) -> None:
    payload = {"text": "x" * size}
    assert queue.definition(queue.create(payload=payload))["payload"] == payload


@pytest.mark.parametrize("size", [900 * 1024, 1024 * 1024 - 2000, 1024 * 1024, 3 * 1024 * 1024])
def test_a_definition_too_large_for_storage_is_refused(queue: Queue, size: int) -> None:
    task_id = slugid()
    answer = queue.call("createTask", task_body(payload={"text": "x" * size}), taskId=task_id)
    refused(answer, 413, "InputTooLarge", "bytes")
    refused(queue.call("task", taskId=task_id), 404, "ResourceNotFound")


def test_a_definition_is_measured_in_stored_bytes(queue: Queue) -> None:
    """A character that is not ASCII takes up to six bytes in storage."""
    answer = queue.call("createTask", task_body(payload={"text": "\u00e4" * 160_000}), taskId=slugid())
    refused(answer, 413, "InputTooLarge", "bytes")


def test_scopes_are_checked_before_the_rules_between_fields(
    queue: Queue,
) -> None:
    answer = queue.call("createTask", task_body(scopes=["a**"]), None, taskId=slugid())
    refused(answer, 403, "InsufficientScopes")
    assert play(queue, "createTask").status_code == 200
