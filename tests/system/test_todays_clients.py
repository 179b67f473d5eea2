"""The newest clients of the queue, unchanged, and workers written with them."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import requests

from .conftest import EACH_NEWEST_CLIENT
from .fleet import COMPLETED, PROTOCOLS, HttpWorker, Work, at_work, claimed_by, wait_for_completion
from .http_queue import Json, Queue, definition, slugid
from .processes import LONG, Server, environment, wait_until
from .real_clients import TODAY, Called, RealClient, python_of_today

_CLIENTS = Path(__file__).parents[1] / "clients"
_TASKS = 20
WORKER = {"workerGroup": "northamerica-northeast1-a", "workerId": "4611686018427387904"}


@pytest.fixture(params=TODAY)
def client(
    request: pytest.FixtureRequest, server: Server, clients: Callable[[str, Server], RealClient]
) -> RealClient:
    return clients(request.param, server)


def task(worker_type: str, **changes: object) -> Json:
    """A task definition with taskQueueId, as today's clients send it."""
    old = definition(worker_type, **changes)
    return {"taskQueueId": f"{old.pop('provisionerId')}/{old.pop('workerType')}", **old}


@EACH_NEWEST_CLIENT
def test_the_newest_client_takes_a_task_from_its_creation_to_its_end(
    queue: Queue, client: RealClient, worker_type: str
) -> None:
    pool = f"system/{worker_type}"
    task_id = slugid()
    created = client.call("createTask", task_id, task(worker_type, projectId="a-project"))["status"]
    assert (created["taskQueueId"], created["projectId"]) == (pool, "a-project")
    assert (created["provisionerId"], created["workerType"]) == ("system", worker_type)
    assert client.call("task", task_id)["taskQueueId"] == pool
    assert client.call("pendingTasks", pool)["pendingTasks"] == 1

    [claim] = client.call("claimWork", pool, {**WORKER, "tasks": 4})["tasks"]
    mine = claim["credentials"]
    queue.with_credentials(mine)
    assert claim["status"]["runs"][0]["workerGroup"] == WORKER["workerGroup"]
    counts = client.call("taskQueueCounts", pool)
    assert (counts["pendingTasks"], counts["claimedTasks"]) == (0, 1)
    reclaim = client.call("reclaimTask", task_id, "0", credentials=mine)
    queue.with_credentials(reclaim["credentials"])
    done = client.call("reportCompleted", task_id, "0", credentials=reclaim["credentials"])
    assert done["status"]["state"] == "completed"
    assert client.call("status", task_id) == done


@EACH_NEWEST_CLIENT
def test_each_method_of_the_newest_clients_has_a_route(server: Server, client: RealClient) -> None:
    assert isinstance(client, Called)
    reference = requests.get(f"{server.root_url}/references/queue/v1/api.json", timeout=LONG).json()
    served = {(entry["method"].upper(), entry["name"]) for entry in reference["entries"]}
    called = {(method, name) for name, (method, _) in client.methods().items()}
    assert called - served == set()


@contextmanager
def working(name: str, queue: Queue, worker_type: str, folder: Path) -> Iterator[Callable[[], list[Json]]]:
    """Run a worker with the newest client of that name; yields a function that returns its steps."""
    script = (
        [python_of_today(), _CLIENTS / "worker.py"]
        if name.startswith("pypi")
        else ["node", _CLIENTS / "worker.mjs"]
    )
    words = [f"system/{worker_type}", "today", name.replace(".", "-")]
    env = environment(
        TASKCLUSTER_ROOT_URL=queue.server.root_url,
        TASKCLUSTER_CLIENT_ID=queue.credentials["clientId"],
        TASKCLUSTER_ACCESS_TOKEN=queue.credentials["accessToken"],
    )
    output = folder / name
    with output.open("wb") as file, subprocess.Popen([*script, *words], env=env, stdout=file) as process:

        def steps() -> list[Json]:
            assert process.poll() is None, f"the worker on {name} has ended"
            return [json.loads(line) for line in output.read_text().splitlines(True) if line.endswith("\n")]

        try:
            yield steps
        finally:
            process.kill()
            process.wait(LONG)


@pytest.mark.parametrize("server", ["azurite"], indirect=True)
def test_workers_with_the_newest_clients_and_legacy_workers_run_each_task_once(
    queue: Queue, worker_type: str, tmp_path: Path
) -> None:
    legacy = [HttpWorker(queue, worker_type, f"{protocol}-0", protocol) for protocol in PROTOCOLS]
    work = Work(queue, worker_type)
    with ExitStack() as stack:
        todays = [stack.enter_context(working(name, queue, worker_type, tmp_path)) for name in TODAY]
        tasks: list[str] = []
        while not all(steps() for steps in todays):  # each has run a task before the others start
            tasks += work.create(1)
            wait_until(work.is_completed)
        with at_work(legacy) as check:
            tasks += work.create(_TASKS)
            wait_for_completion(check, work)
        steps = [steps() for steps in todays]
    assert work.runs() == {task_id: [COMPLETED] for task_id in tasks}
    claims = [
        (step["taskId"], step["runId"], name.replace(".", "-"))
        for name, steps_of_worker in zip(TODAY, steps, strict=True)
        for step in steps_of_worker
        if step["event"] == "claim"
    ]
    ran = [(status["taskId"], 0, status["runs"][0]["workerId"]) for status in work.statuses()]
    assert sorted([*claims, *claimed_by(legacy)]) == sorted(ran)
    cycle = ["claim", "upload", "reclaim", "report"]
    for steps_of_worker in steps:
        assert [step["event"] for step in steps_of_worker] == cycle * (len(steps_of_worker) // 4)
    for task_id, run_id, _ in claims:
        url = f"{queue.server.base_url}/task/{task_id}/runs/{run_id}/artifacts/public/logs/live.log"
        assert requests.get(url, timeout=LONG).status_code == 200
    assert queue.pending(worker_type) == 0
