"""The reference of the exchanges, compared with that of the original queue and with clients of its time."""

from functools import cache
from typing import Any

import pytest

from legacy_queue.domain.events import EXCHANGES, group_resolved
from legacy_queue.http.schemas import message_schema
from tests.clients.javascript import javascript
from tests.http.calls import GROUP_ID, PROVISIONER, TASK_ID, WORKER, WORKER_TYPE, Queue, schema, succeeded
from tests.http.published import check_event, exchanges
from tests.topics import matches

OTHER_ID = "OtherAAAQ3GP5tDKTRPnTA"
CLIENTS = ("4", "11")
KEYS: list[Any] = [
    None,
    {},
    {"taskId": TASK_ID},
    {"runId": 0, "workerId": "alice"},
    {"taskGroupId": GROUP_ID, "schedulerId": "a-scheduler"},
    {"provisionerId": PROVISIONER, "workerType": WORKER_TYPE, "reserved": "a.b.#"},
    {"routingKeyKind": "other", "taskId": "*"},
    {"taskId": "a.b"},
    "route.index.#",
]


# of today's queue (PyPI taskcluster 113): the old exchange whose keys each has, and what differs
LATER: dict[str, tuple[str, dict[str, str]]] = {
    "task-group-sealed": (
        "task-group-resolved",
        {
            "name": "taskGroupSealed",
            "title": "Task Group Sealed Messages",
            "schema": "v1/task-group-changed-message.json#",
        },
    ),
    "task-priority-changed": (
        "task-defined",
        {
            "name": "taskPriorityChanged",
            "title": "Task Priority Changed Messages",
            "schema": "v1/task-priority-changed-message.json#",
        },
    ),
    "task-group-priority-changed": (
        "task-group-resolved",
        {
            "name": "taskGroupPriorityChanged",
            "title": "Task Group Priority Changed Messages",
            "schema": "v1/task-group-priority-changed-message.json#",
        },
    ),
}


@cache
def original(client: str) -> Any:
    """The reference that the client of that version was made from."""
    return javascript("reference", client=client, name="QueueEvents")


def named(entries: Any, name: str) -> Any:
    (entry,) = (entry for entry in entries if entry["exchange"] == name)
    return entry


@pytest.mark.parametrize("client", CLIENTS)
def test_the_exchanges_have_the_names_of_the_original_queue(client: str) -> None:
    theirs, ours = original(client), exchanges()
    for field in ("$schema", "version", "title", "exchangePrefix"):
        assert ours[field] == theirs[field]
    assert ours["serviceName"] == "queue"
    names = [entry["exchange"] for entry in ours["entries"]]
    assert names == [*(entry["exchange"] for entry in theirs["entries"]), *LATER]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", EXCHANGES)
def test_an_exchange_is_described_as_by_the_original_queue(client: str, name: str) -> None:
    """A later exchange differs from an old exchange only as LATER says."""
    like, changes = LATER.get(name, (name, {}))
    theirs = {**named(original(client)["entries"], like), **changes}
    ours = named(exchanges()["entries"], name)
    assert set(ours) == set(theirs)
    for field in ("type", "name", "title"):
        assert ours[field] == theirs[field]
    assert ours["schema"].rpartition("/")[2] == theirs["schema"].rpartition("/")[2]
    assert ours["description"].endswith(".")
    for our_key, their_key in zip(ours["routingKey"], theirs["routingKey"], strict=True):
        assert {**our_key, "summary": ""} == {**their_key, "summary": ""}
        assert our_key["summary"].endswith(".")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_made_from_the_reference_binds_as_the_original_client(client: str) -> None:
    ours = javascript("bindings", client=client, reference=exchanges(), keys=KEYS)
    assert ours[:8] == javascript("bindings", client=client, reference=original(client), keys=KEYS)
    assert ours[0][2] == {
        "exchange": "exchange/taskcluster-queue/v1/task-defined",
        "routingKeyPattern": f"primary.{TASK_ID}.*.*.*.*.*.*.*.#",
    }
    assert "cannot contain dots" in ours[0][7]["refused"]


# "Queue AMQP Exchanges": the properties of each message beside its version, required and optional
PROPERTIES: dict[str, tuple[set[str], set[str]]] = {
    "task-defined": ({"status"}, set()),
    "task-pending": ({"status", "runId"}, set()),
    "task-running": ({"status", "runId", "workerGroup", "workerId", "takenUntil"}, set()),
    "artifact-created": ({"status", "runId", "workerGroup", "workerId", "artifact"}, set()),
    "task-completed": ({"status", "runId", "workerGroup", "workerId"}, set()),
    "task-failed": ({"status", "runId", "workerGroup", "workerId"}, set()),
    "task-exception": ({"status"}, {"runId", "workerGroup", "workerId"}),
    "task-group-resolved": ({"taskGroupId", "schedulerId"}, set()),
    # of today's queue
    "task-group-sealed": ({"taskGroupId", "schedulerId", "expires", "sealed"}, set()),
    "task-priority-changed": ({"status", "oldPriority", "newPriority"}, set()),
    "task-group-priority-changed": ({"taskGroupId", "schedulerId", "newPriority", "tasksAffected"}, set()),
}
# today's have the tags of the task too
STATES = ("defined", "pending", "running", "completed", "failed", "exception")
WITH_TAGS = {f"task-{state}" for state in STATES}


@pytest.mark.parametrize("name", EXCHANGES)
def test_a_message_has_the_documented_properties(name: str) -> None:
    published = schema(f"/schemas/queue/v1/{message_schema(name)}.json#")
    required, optional = PROPERTIES[name]
    optional = optional | ({"task"} if name in WITH_TAGS else set())
    assert set(published["required"]) == {"version"} | required
    assert set(published["properties"]) == {"version"} | required | optional
    assert published["properties"]["version"] == {"enum": [1]}


def completed(queue: Queue) -> None:
    queue.running(TASK_ID, routes=["index.a.b"])
    succeeded(queue.call("reportCompleted", taskId=TASK_ID, runId=0))


def failed(queue: Queue) -> None:
    queue.running(TASK_ID)
    succeeded(queue.call("reportFailed", taskId=TASK_ID, runId=0))


def retried(queue: Queue) -> None:
    queue.running(TASK_ID)
    succeeded(queue.call("reportException", {"reason": "worker-shutdown"}, taskId=TASK_ID, runId=0))
    succeeded(queue.claim(TASK_ID, 1))


def test_a_binding_by_keys_gets_exactly_the_messages_with_these_keys(queue: Queue) -> None:

    retried(queue)
    queue.running(OTHER_ID, workerType="another-worker")
    entries = [entry["exchange"] for entry in exchanges()["entries"]]
    for keys, wanted in [
        ({"taskId": TASK_ID}, {TASK_ID}),
        ({"workerType": "another-worker"}, {OTHER_ID}),
        ({"taskGroupId": TASK_ID, "runId": 1}, {TASK_ID}),
        ({**WORKER, "provisionerId": PROVISIONER}, {TASK_ID, OTHER_ID}),
        ({"workerId": "bob"}, set()),
    ]:
        bound = javascript("bindings", client="11", reference=exchanges(), keys=[keys])
        patterns = {
            name: binding["routingKeyPattern"] for name, (binding,) in zip(entries, bound, strict=True)
        }
        routed = {
            event.payload["status"]["taskId"]
            for event in queue.published()
            if matches(patterns[event.exchange], event.routing_key)
        }
        assert routed == wanted, keys


def test_the_event_of_a_resolved_group_matches_its_published_schema() -> None:
    check_event(group_resolved(GROUP_ID, "a-scheduler"))
