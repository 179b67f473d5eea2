"""The worker explorer with real clients of 2018, and on several servers of an account."""

from pathlib import Path
from typing import Any

from legacy_queue.adapters.azurite import Azurite

from .accounts import as_root, on_account
from .conftest import EACH_CLIENT
from .http_queue import Queue, definition, in_time
from .processes import serve, wait_until
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


def recent_tasks(queue: Queue, worker: str) -> list[str]:
    """The recentTasks of a worker; empty if the server does not know it."""
    answer = queue.send("GET", f"/provisioners/system/worker-types/shared/workers/group/{worker}")
    return [run["taskId"] for run in answer.json().get("recentTasks", ())]


def wait_for_recent_tasks(queue: Queue, tasks: list[str]) -> None:
    wait_until(lambda: sorted(recent_tasks(queue, "one")) == sorted(tasks))


def claimed(queue: Queue, worker: str) -> tuple[str, int, Any]:
    """Create a task and claim it; the task id, and status and body of the answer."""
    task_id = queue.create(definition("shared"))
    answer = queue.claim_by_name(task_id, 0, worker)
    return task_id, answer.status_code, answer.json()


def test_servers_of_an_account_share_recent_tasks_and_quarantine(tmp_path: Path, azurite: Azurite) -> None:
    env = on_account(azurite)
    path = "/provisioners/system/worker-types/shared/workers/group/one"
    with serve(tmp_path / "first", env=env) as first, serve(tmp_path / "second", env=env) as second:
        queues = [as_root(server) for server in (first, second)]
        tasks = [claimed(queues[number % 2], "one")[0] for number in range(4)]
        for queue in queues:
            wait_for_recent_tasks(queue, tasks)
        until = in_time(days=1)
        queues[0].ask("PUT", path, {"quarantineUntil": until})
        task_id, status, body = claimed(queues[0], "one")
        assert (status, body["code"]) == (409, "RequestConflict")
        assert until in body["message"]
        wait_until(lambda: claimed(queues[1], "one")[1] == 409)
        assert queues[1].claim_by_name(task_id, 0, "two").status_code == 200
        assert [server.end() for server in (first, second)] == [0, 0]
    with serve(tmp_path / "third", env=env) as third:
        queue = as_root(third)
        assert recent_tasks(queue, "two") == [task_id], "a server writes its records when it ends"
        assert claimed(queue, "one")[1] == 409
        queue.ask("PUT", path, {"quarantineUntil": in_time()})
        assert claimed(queue, "one")[1] == 200
