"""The reference of the exchanges, compared with that of the original queue and with clients of its time."""

from functools import cache
from typing import Any

import pytest

from legacy_queue.domain.events import EXCHANGES, group_resolved
from tests.clients.javascript import javascript
from tests.http.calls import GROUP_ID, PROVISIONER, TASK_ID, WORKER_TYPE
from tests.http.published import check_event, exchanges

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


@pytest.mark.processes
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


@pytest.mark.processes
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_made_from_the_reference_binds_as_the_original_client(client: str) -> None:
    ours = javascript("bindings", client=client, reference=exchanges(), keys=KEYS)
    assert ours[:8] == javascript("bindings", client=client, reference=original(client), keys=KEYS)
    assert ours[0][2] == {
        "exchange": "exchange/taskcluster-queue/v1/task-defined",
        "routingKeyPattern": f"primary.{TASK_ID}.*.*.*.*.*.*.*.#",
    }
    assert "cannot contain dots" in ours[0][7]["refused"]


def test_the_event_of_a_resolved_group_matches_its_published_schema() -> None:
    check_event(group_resolved(GROUP_ID, "a-scheduler"))
