"""The worker explorer with real clients of 2018."""

from typing import Any

from .conftest import EACH_CLIENT
from .http_queue import Queue, definition, in_time
from .processes import wait_until
from .real_clients import RealClient, refusal

ACTION = {
    "name": "reboot",
    "title": "Reboot",
    "context": "worker",
    "url": "https://example.com/<workerId>",
    "method": "POST",
    "description": "Reboots the machine",
}


@EACH_CLIENT
def test_a_real_client_declares_lists_and_quarantines_workers(
    queue: Queue, client: RealClient, worker_type: str
) -> None:
    pool, alice = ("system", worker_type), ("system", worker_type, "group", "alice")
    assert refusal(lambda: client.call("getWorker", *alice)) == (404, "ResourceNotFound")
    client.call("declareProvisioner", "system", {"description": "for tests", "actions": [ACTION]})
    assert client.call("getProvisioner", "system")["description"] == "for tests"
    declared = client.call("declareWorkerType", *pool, {"stability": "stable"})
    assert declared["stability"] == "stable"
    assert client.call("getWorkerType", *pool) == declared
    task_ids = [queue.create(definition(worker_type)) for _ in range(3)]
    for task_id, worker in zip(task_ids, ("alice", "bob", "carol"), strict=True):
        assert queue.claim_by_name(task_id, 0, worker).status_code == 200
    worker = client.call("getWorker", *alice)
    assert (worker["actions"], worker["recentTasks"]) == ([ACTION], [{"taskId": task_ids[0], "runId": 0}])
    expires = in_time(days=9)
    assert client.call("declareWorker", *alice, {"expires": expires})["expires"] == expires
    until = in_time(days=1)
    assert client.call("quarantineWorker", *alice, {"quarantineUntil": until})["quarantineUntil"] == until

    def listed(**query: Any) -> list[str]:
        pages = client.pages("listWorkers", *pool, **query)
        return [worker["workerId"] for page in pages for worker in page["workers"]]

    # a server writes a new worker after half a second
    wait_until(lambda: listed(limit=1) == ["alice", "bob", "carol"])
    assert listed(quarantined="true") == ["alice"]
    assert listed(quarantined="false") == ["bob", "carol"]
    provisioners = [entry for page in client.pages("listProvisioners") for entry in page["provisioners"]]
    assert "system" in [entry["provisionerId"] for entry in provisioners]
    worker_types = [
        entry for page in client.pages("listWorkerTypes", "system") for entry in page["workerTypes"]
    ]
    assert worker_type in [entry["workerType"] for entry in worker_types]
