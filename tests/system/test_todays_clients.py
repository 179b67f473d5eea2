"""The newest clients of the queue, unchanged."""

from datetime import UTC, datetime

import pytest
import requests

from legacy_queue.domain.ids import slugid
from tests.domain.tasks import task_body

from .conftest import EACH_NEWEST_CLIENT
from .http_queue import Json, Queue
from .processes import LONG, Server
from .real_clients import RealClient

pytestmark = pytest.mark.processes

WORKER = {"workerGroup": "northamerica-northeast1-a", "workerId": "4611686018427387904"}


def task(worker_type: str, **changes: object) -> Json:
    """A task definition with taskQueueId, as today's clients send it."""
    old = task_body(datetime.now(UTC), workerType=worker_type, **changes)
    return {"taskQueueId": f"{old.pop('provisionerId')}/{old.pop('workerType')}", **old}


@EACH_NEWEST_CLIENT
def test_the_newest_client_takes_a_task_from_its_creation_to_its_end(
    queue: Queue, client: RealClient, worker_type: str
) -> None:
    pool = f"provisioner/{worker_type}"
    task_id = slugid()
    created = client.call("createTask", task_id, task(worker_type, projectId="a-project"))["status"]
    assert (created["taskQueueId"], created["projectId"]) == (pool, "a-project")
    assert (created["provisionerId"], created["workerType"]) == ("provisioner", worker_type)
    assert client.call("task", task_id)["taskQueueId"] == pool
    assert client.call("pendingTasks", pool)["pendingTasks"] == 1

    [claim] = client.call("claimWork", pool, {**WORKER, "tasks": 4})["tasks"]
    mine = claim["credentials"]
    queue.server.secrets.add(mine["accessToken"])
    assert claim["status"]["runs"][0]["workerGroup"] == WORKER["workerGroup"]
    counts = client.call("taskQueueCounts", pool)
    assert (counts["pendingTasks"], counts["claimedTasks"]) == (0, 1)
    reclaim = client.call("reclaimTask", task_id, "0", credentials=mine)
    queue.server.secrets.add(reclaim["credentials"]["accessToken"])
    done = client.call("reportCompleted", task_id, "0", credentials=reclaim["credentials"])
    assert done["status"]["state"] == "completed"
    assert client.call("status", task_id) == done


@EACH_NEWEST_CLIENT
def test_each_method_of_the_newest_clients_has_a_route(server: Server, client: RealClient) -> None:
    reference = requests.get(f"{server.root_url}/references/queue/v1/api.json", timeout=LONG).json()
    served = {(entry["method"].upper(), entry["name"]) for entry in reference["entries"]}
    called = {(method, name) for name, (method, _) in client.methods().items()}
    assert called - served == set()
