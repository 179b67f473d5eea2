"""Provisioners, worker types and workers, declared, read, listed and quarantined by clients of 2018."""

from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from legacy_queue.domain.authentication import Client
from legacy_queue.domain.times import format_time
from tests.http.calls import (
    DECLARED,
    NOW,
    POOL,
    PROVISIONER,
    TASK_ID,
    TODAY,
    WORKER,
    WORKER_TYPE,
    Credentials,
    Queue,
    of_workers,
    refused,
    scene,
    succeeded,
)

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
ALICE: dict[str, Any] = {**POOL, **WORKER}
BOTH = {"taskQueueId": f"{PROVISIONER}/{WORKER_TYPE}"}
WORKERS = f"/v1/provisioners/{PROVISIONER}/worker-types/{WORKER_TYPE}/workers"
LISTS = {
    "listProvisioners": "/v1/provisioners",
    "listWorkerTypes": f"/v1/provisioners/{PROVISIONER}/worker-types",
    "listWorkers": WORKERS,
}
ENDPOINTS = [name for name in DECLARED if "Worker" in name or "Provisioner" in name]
TAKING = [name for name in ENDPOINTS if DECLARED[name].method == "PUT"]
GETTING = ["getProvisioner", "getWorkerType", "getWorker"]
DECLARING = ["declareProvisioner", "declareWorkerType", "declareWorker"]
each_list = pytest.mark.parametrize("name", LISTS)


def action(**changes: Any) -> dict[str, Any]:
    words = {
        "name": "reboot",
        "title": "Reboot",
        "context": "worker",
        "url": "https://example.com/<provisionerId>/<workerType>/<workerGroup>/<workerId>",
        "method": "POST",
        "description": "Reboots the machine",
        **changes,
    }
    return {name: value for name, value in words.items() if value is not None}


def ask(queue: Queue, name: str, body: Any = None, **changes: Any) -> Any:
    """The body of the answer; about alice unless ``changes`` name another record."""
    params = {param: {**ALICE, **changes}[param] for param in of_workers(name)}
    return succeeded(queue.call(name, body, prefix=TODAY, **params)).get_json()


def quarantine(queue: Queue, until: str = format_time(NOW + DAY), **changes: str) -> Any:
    return ask(queue, "quarantineWorker", {"quarantineUntil": until}, **changes)


def names(page: Any) -> list[str]:
    (entries,) = (value for value in page.values() if isinstance(value, list))
    return [entry.get("workerId") or entry.get("workerType") or entry["provisionerId"] for entry in entries]


def fill(queue: Queue, name: str, count: int) -> list[str]:
    """Make that many records for the list; their names."""
    made = [f"n{number:02}" for number in range(count)]
    parameter = {"listProvisioners": "provisionerId", "listWorkerTypes": "workerType"}.get(name, "workerId")
    for identifier in made:
        ask(queue, "declareWorker", {"expires": format_time(NOW + DAY)}, **{parameter: identifier})
    return made


def pages(queue: Queue, name: str, query: str) -> list[Any]:
    received: list[Any] = []
    token = ""
    while not received or token:
        target = f"{LISTS[name]}?{query}" + (f"&continuationToken={token}" if token else "")
        received.append(succeeded(queue.send("GET", target, credentials=None)).get_json())
        token = received[-1].get("continuationToken", "")
    return received


# --- records


def test_a_claim_records_the_worker_its_worker_type_and_its_provisioner(queue: Queue) -> None:
    queue.running(TASK_ID)
    answers = [ask(queue, name) for name in GETTING]
    now = format_time(NOW)
    assert answers == [
        {
            "provisionerId": PROVISIONER,
            "description": "",
            "stability": "experimental",
            "lastDateActive": now,
            "expires": format_time(NOW + 5 * DAY),
            "actions": [],
        },
        {
            **POOL,
            **BOTH,
            "description": "",
            "stability": "experimental",
            "lastDateActive": now,
            "expires": format_time(NOW + 5 * DAY),
            "actions": [],
        },
        {
            **ALICE,
            **BOTH,
            "firstClaim": now,
            "lastDateActive": now,
            "expires": format_time(NOW + DAY),
            "recentTasks": [{"taskId": TASK_ID, "runId": 0}],
            "actions": [],
        },
    ]


def test_the_lists_answer_as_the_original_queue(queue: Queue) -> None:
    queue.running(TASK_ID)
    quarantine(queue)
    (provisioner,) = ask(queue, "listProvisioners")["provisioners"]
    assert provisioner == ask(queue, "getProvisioner")
    (worker_type,) = ask(queue, "listWorkerTypes")["workerTypes"]
    assert {**worker_type, "actions": []} == ask(queue, "getWorkerType")
    (worker,) = ask(queue, "listWorkers")["workers"]
    assert worker == {
        **WORKER,
        "firstClaim": format_time(NOW),
        "lastDateActive": format_time(NOW),
        "latestTask": {"taskId": TASK_ID, "runId": 0},
        "quarantineUntil": format_time(NOW + DAY),
        "quarantineDetails": [
            {
                "updatedAt": format_time(NOW),
                "clientId": "root",
                "quarantineUntil": format_time(NOW + DAY),
                "quarantineInfo": "",
            }
        ],
    }


def test_a_worker_without_a_task_has_no_latest_task(queue: Queue) -> None:
    ask(queue, "declareWorker", {"expires": format_time(NOW + DAY)})
    (worker,) = ask(queue, "listWorkers")["workers"]
    assert "latestTask" not in worker
    assert "quarantineUntil" not in worker


@pytest.mark.parametrize(
    ("name", "mentioned"),
    [
        ("getProvisioner", f"provisioner {PROVISIONER}"),
        ("getWorkerType", f"worker type {PROVISIONER}/{WORKER_TYPE}"),
        ("getWorker", f"worker {PROVISIONER}/{WORKER_TYPE}/group/alice"),
    ],
)
def test_a_provisioner_worker_type_or_worker_without_a_record_is_not_found(
    queue: Queue, name: str, mentioned: str
) -> None:
    answer = queue.call(name, **of_workers(name))
    refused(answer, 404, "ResourceNotFound", mentioned, "never active")


def test_a_quarantine_of_an_unknown_worker_is_refused(queue: Queue) -> None:
    """As by the original queue, and today's."""
    until = {"quarantineUntil": format_time(NOW + DAY)}
    answer = queue.call("quarantineWorker", until, **ALICE)
    refused(answer, 404, "ResourceNotFound", f"there is no worker {PROVISIONER}/{WORKER_TYPE}/group/alice")


@each_list
def test_the_list_below_an_unknown_provisioner_or_worker_type_is_empty(queue: Queue, name: str) -> None:
    """As with the original queue."""
    assert names(ask(queue, name)) == []
    assert "continuationToken" not in ask(queue, name)


# --- declared


@pytest.mark.parametrize("name", DECLARING)
def test_a_declaration_answers_what_get_answers_afterwards(queue: Queue, name: str) -> None:
    body = scene(name).body
    answer = ask(queue, name, body)
    assert answer == ask(queue, name.replace("declare", "get"))
    assert {key: answer[key] for key in body} == body


def test_the_actions_of_a_provisioner_are_shown_by_their_context(queue: Queue) -> None:
    actions = [action(context=context) for context in ("provisioner", "worker-type", "worker")]
    assert ask(queue, "declareProvisioner", {"actions": actions})["actions"] == actions
    queue.running()
    assert ask(queue, "getWorkerType")["actions"] == actions[1:2]
    assert ask(queue, "getWorker")["actions"] == actions[2:]


@pytest.mark.parametrize("name", DECLARING)
def test_each_declared_property_needs_its_own_scope(name: str) -> None:
    params, body = of_workers(name), scene(name).body
    path = "/".join(params.values())
    kind = {"declareProvisioner": "provisioner", "declareWorkerType": "worker-type"}.get(name, "worker")
    tested = Credentials("tested", "the-access-token-of-the-tested-client")
    queue = Queue(Client(tested.client_id, tested.access_token, (f"queue:declare-{kind}:{path}#expires",)))
    succeeded(queue.call(name, {"expires": body["expires"]}, tested, **params))
    for more in ({"description": "d"}, {"stability": "stable"}):
        if name != "declareWorker":
            answer = queue.call(name, {"expires": body["expires"], **more}, tested, **params)
            refused(answer, 403, "InsufficientScopes", f"`queue:declare-{kind}:{path}#{next(iter(more))}`")


@pytest.mark.parametrize("name", DECLARING)
def test_a_declaration_without_properties_needs_any_declare_scope_and_changes_only_the_times(
    name: str,
) -> None:
    kind = {"declareProvisioner": "provisioner", "declareWorkerType": "worker-type"}.get(name, "worker")
    scope = f"queue:declare-{kind}:{'/'.join(of_workers(name).values())}#expires"
    tested = Credentials("tested", "the-access-token-of-the-tested-client")
    queue = Queue(Client(tested.client_id, tested.access_token, (scope,)))
    before = ask(queue, name, scene(name).body)
    queue.clock.advance(HOUR)
    after = succeeded(queue.call(name, {}, tested, TODAY, **of_workers(name))).get_json()
    assert after == {**before, "lastDateActive": format_time(NOW + HOUR), "expires": after["expires"]}
    assert after["expires"] >= before["expires"]
    assert ask(queue, name.replace("declare", "get")) == after


@pytest.mark.parametrize("name", DECLARING)
@pytest.mark.parametrize("has_client", [False, True])
def test_a_declaration_without_a_declare_scope_is_refused_and_makes_no_record(
    name: str, has_client: bool
) -> None:
    tested = Credentials("tested", "the-access-token-of-the-tested-client")
    queue = Queue(Client(tested.client_id, tested.access_token, ("queue:declare-provisioner:other#*",)))
    answer = queue.call(name, {}, tested if has_client else None, **of_workers(name))
    refused(answer, 403, "InsufficientScopes", "queue:declare-")
    assert names(ask(queue, "listProvisioners")) == []


DECLARATIONS = {
    "unknown": {"colour": "red"},
    "its id": {"provisionerId": PROVISIONER},
    "null": {"description": None},
    "long": {"description": "x" * 16_385},
    "stability": {"stability": "broken"},
    "no time": {"expires": "tomorrow"},
    "a number": {"expires": 1_900_000_000},
    "no list": {"actions": {}},
    "many": {"actions": [action(name=str(number)) for number in range(33)]},
    "twice": {"actions": [action(), action()]},
    "no context": {"actions": [action(context=None)]},
    "other context": {"actions": [action(context="task")]},
    "method": {"actions": [action(method="GET")]},
    "url": {"actions": [action(url="https://example.com/a b")]},
    "label": {"actions": [action(label="x")]},
}


@pytest.mark.parametrize(
    ("name", "why"),
    [*product(["declareProvisioner"], DECLARATIONS), *product(DECLARING[1:], ["unknown"])],
)
def test_an_invalid_declaration_is_refused_and_makes_no_record(queue: Queue, name: str, why: str) -> None:
    refused(
        queue.call(name, DECLARATIONS[why], **of_workers(name)),
        400,
        "InputValidationError",
        "body",
        "schemas",
    )
    assert names(ask(queue, "listProvisioners")) == []


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("declareWorkerType", {"actions": []}),
        ("declareWorker", {"description": "d"}),
        ("declareWorker", {"quarantineUntil": format_time(NOW + DAY)}),
        ("quarantineWorker", {"expires": format_time(NOW + DAY)}),
    ],
)
def test_a_property_of_another_kind_of_record_is_refused(queue: Queue, name: str, more: Any) -> None:
    answer = queue.call(name, {**scene(name).body, **more}, **of_workers(name))
    refused(answer, 400, "InputValidationError", next(iter(more)))


@pytest.mark.parametrize("name", TAKING)
def test_a_request_without_a_body_is_refused(queue: Queue, name: str) -> None:
    refused(queue.call(name, None, **of_workers(name)), 400, "InputValidationError", "body")


@pytest.mark.parametrize(
    ("name", "time"),
    [
        *product(["quarantineWorker"], ["2018-02-30T00:00:00Z", "0000-01-01T00:00:00Z", "2018-03-05", ""]),
        *product(TAKING, ["soon"]),
    ],
)
def test_an_invalid_time_is_refused(queue: Queue, name: str, time: str) -> None:
    queue.running()
    field = "quarantineUntil" if name == "quarantineWorker" else "expires"
    answer = queue.call(name, {field: time}, **of_workers(name))
    assert (answer.status_code, answer.get_json()["code"][:5]) == (400, "Input")
    assert field in answer.get_json()["message"]


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "1600-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"])
@pytest.mark.parametrize("name", ["declareWorker", "quarantineWorker"])
def test_a_time_far_in_the_past_or_the_future_is_accepted(queue: Queue, name: str, time: str) -> None:
    """The times of Azure begin in 1601: a time in the past counts as now."""
    queue.running()
    ask(queue, name, {"quarantineUntil" if name == "quarantineWorker" else "expires": time})


@pytest.mark.parametrize("name", ENDPOINTS)
def test_an_invalid_identifier_is_refused_by_each_endpoint_of_workers(queue: Queue, name: str) -> None:
    params = of_workers(name)
    for parameter in params:
        answer = queue.call(name, scene(name).body, **{**params, parameter: "a.b"})
        refused(answer, 400, "InvalidRequestArguments", parameter, "'a.b'", "must match")


# --- quarantined


def test_a_claim_of_a_quarantined_worker_is_a_conflict(queue: Queue) -> None:
    queue.running()
    quarantine(queue)
    task_id = queue.create()
    until = format_time(NOW + DAY)
    refused(queue.claim(task_id), 409, "RequestConflict", "group/alice", f"quarantined until {until}")
    assert queue.state(task_id) == "pending"
    succeeded(queue.claim(task_id, workerId="bob"))


def test_the_client_the_time_and_the_reason_of_each_quarantine_are_kept(queue: Queue) -> None:
    queue.running()
    until = format_time(NOW + DAY)
    ask(queue, "quarantineWorker", {"quarantineUntil": until, "quarantineInfo": "its disk fails"})
    queue.clock.advance(timedelta(seconds=1))
    now = format_time(NOW + timedelta(seconds=1))
    lifted = quarantine(queue, format_time(NOW))
    first = {"updatedAt": format_time(NOW), "quarantineUntil": until, "quarantineInfo": "its disk fails"}
    second = {"updatedAt": now, "quarantineUntil": now, "quarantineInfo": ""}
    assert lifted["quarantineDetails"] == [{**detail, "clientId": "root"} for detail in (first, second)]
    (worker,) = ask(queue, "listWorkers")["workers"]
    assert (
        worker["quarantineDetails"]
        == lifted["quarantineDetails"]
        == ask(queue, "getWorker")["quarantineDetails"]
    )


def test_the_list_of_workers_is_filtered_by_quarantine(queue: Queue) -> None:
    for worker_id in ("alice", "bob", "carol"):
        succeeded(queue.claim(queue.create(), workerId=worker_id))
    quarantine(queue, workerId="bob")
    listed = {
        query: names(queue.send("GET", f"{WORKERS}{query}").get_json())
        for query in ("", "?quarantined=true", "?quarantined=false", "?limit=2&quarantined=false")
    }
    assert listed == {
        "": ["alice", "bob", "carol"],
        "?quarantined=true": ["bob"],
        "?quarantined=false": ["alice", "carol"],
        "?limit=2&quarantined=false": ["alice"],
    }
    (only,) = [
        name for page in pages(queue, "listWorkers", "limit=1&quarantined=true") for name in names(page)
    ]
    assert only == "bob"


@pytest.mark.parametrize("quarantined", ["", "True", "1", "yes", "true%0A", "false,true"])
def test_a_filter_that_is_neither_true_nor_false_is_refused(queue: Queue, quarantined: str) -> None:
    answer = queue.send("GET", f"{WORKERS}?quarantined={quarantined}")
    refused(answer, 400, "InvalidRequestArguments", "quarantined is", "true|false")


def test_only_the_list_of_workers_has_the_quarantine_filter(queue: Queue) -> None:
    for target in (LISTS["listProvisioners"], LISTS["listWorkerTypes"]):
        answer = queue.send("GET", f"{target}?quarantined=true")
        refused(answer, 400, "InvalidRequestArguments", "takes no query parameter 'quarantined'")


# --- in pages


@pytest.mark.parametrize(
    ("name", "limit"), [*product(["listWorkers"], [1, 2, 6, 7, 8, 1000]), *product([*LISTS][:2], [2])]
)
def test_all_pages_together_hold_each_record_once_in_order(queue: Queue, name: str, limit: int) -> None:
    made = fill(queue, name, 7)
    received = pages(queue, name, f"limit={limit}")
    assert [identifier for page in received for identifier in names(page)] == made
    assert [len(names(page)) for page in received] == [limit] * (7 // limit) + [7 % limit] * bool(7 % limit)
    assert names(ask(queue, name)) == made
