"""The reference of the exchanges, compared with the original queue's and with clients of its time."""

from typing import Any

import pytest

from tests.clients.javascript import javascript
from tests.http.calls import GROUP_ID, PROVISIONER, TASK_ID, WORKER_TYPE
from tests.http.published_references import exchanges

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
# exchanges that only today's queue has, each with an older exchange that has the same routing keys
LATER = {
    "task-group-sealed": "task-group-resolved",
    "task-priority-changed": "task-defined",
    "task-group-priority-changed": "task-group-resolved",
}


def without_prose(entry: Any) -> Any:
    keys = [{**key, "summary": ""} for key in entry["routingKey"]]
    return {**entry, "schema": entry["schema"].rpartition("/")[2], "description": "", "routingKey": keys}


@pytest.mark.processes
@pytest.mark.parametrize("client", ["4", "11"])
def test_each_exchange_is_described_like_the_original_queues(client: str) -> None:
    """This version of the client was generated from the original queue's reference."""
    theirs, ours = javascript("reference", client=client, name="QueueEvents"), exchanges()
    for field in ("$schema", "version", "title", "exchangePrefix"):
        assert ours[field] == theirs[field]
    assert ours["serviceName"] == "queue"
    names = [entry["exchange"] for entry in ours["entries"]]
    assert names == [*(entry["exchange"] for entry in theirs["entries"]), *LATER]
    for our, their in zip(ours["entries"], theirs["entries"], strict=False):
        assert without_prose(our) == without_prose(their)
    described = {entry["exchange"]: without_prose(entry) for entry in ours["entries"]}
    for name, older in LATER.items():
        assert described[name]["routingKey"] == described[older]["routingKey"]
        assert described[name].keys() == described[older].keys()
    bound, of_theirs = (
        javascript("bindings", client=client, reference=reference, keys=KEYS) for reference in (ours, theirs)
    )
    assert bound[: len(of_theirs)] == of_theirs
    assert bound[0][2] == {
        "exchange": "exchange/taskcluster-queue/v1/task-defined",
        "routingKeyPattern": f"primary.{TASK_ID}.*.*.*.*.*.*.*.#",
    }
    assert "cannot contain dots" in bound[0][7]["refused"]
