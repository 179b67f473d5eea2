"""Workers of all generations share a queue: the sample worker in each protocol, and today's clients."""

import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import requests

from legacy_queue.local_processes.azurite import Azurite

from .accounts import as_root, on_account
from .http_queue import Json, Queue, definition, slugid
from .processes import LONG, PROTOCOLS, environment, serve, wait_until, work
from .real_clients import CLIENTS_DIR, TODAY, python_of_today

BATCH = 12  # tasks
PRIORITIES = ("highest", "high", "medium", "lowest")
SHORT_WAIT = ("--claim-work-wait", "1s")
Claims = set[tuple[str, int]]
ReadClaims = Callable[[], Claims]


@contextmanager
def sample_worker(queue: Queue, worker_type: str, protocol: str, folder: Path) -> Iterator[ReadClaims]:
    """Run a sample worker; yields a function that returns the runs that it has claimed."""
    options = ("--protocol", protocol, "--worker-id", folder.name)
    with work(folder, queue.server, worker_type, *options, credentials=queue.credentials) as worker:

        def claims() -> Claims:
            assert worker.process.poll() is None, worker.errors
            return {(step["task_id"], step["run_id"]) for step in worker.steps if step["event"] == "claim"}

        yield claims
        assert worker.end() == 0


@contextmanager
def todays_worker(queue: Queue, worker_type: str, client: str, output: Path) -> Iterator[ReadClaims]:
    """The same of a worker that is written with the newest client of that name."""
    of_python = [str(python_of_today()), str(CLIENTS_DIR / "worker.py")]
    script = of_python if client.startswith("pypi") else ["node", str(CLIENTS_DIR / "worker.mjs")]
    env = environment(
        TASKCLUSTER_ROOT_URL=queue.server.root_url,
        TASKCLUSTER_CLIENT_ID=queue.credentials["clientId"],
        TASKCLUSTER_ACCESS_TOKEN=queue.credentials["accessToken"],
    )
    words = [f"system/{worker_type}", "group", output.name]
    with output.open("wb") as file, subprocess.Popen([*script, *words], env=env, stdout=file) as process:

        def claims() -> Claims:
            assert process.poll() is None, f"the worker on {client} has ended"
            lines = output.read_text().splitlines(keepends=True)
            steps = [json.loads(line) for line in lines if line.endswith("\n")]
            return {(step["taskId"], step["runId"]) for step in steps if step["event"] == "claim"}

        try:
            yield claims
        finally:
            process.kill()
            process.wait(LONG)


def create_tasks(queue: Queue, worker_type: str, group: str) -> None:
    """Tasks of each of the priorities, which take a sample worker long enough for the others to claim too."""
    payload = {"command": ["sleep", "0.2"]}

    def create(number: int) -> None:
        priority = PRIORITIES[number % len(PRIORITIES)]
        of_group = {"taskGroupId": group, "schedulerId": "scheduler"}
        queue.create(definition(worker_type, priority=priority, payload=payload, **of_group))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(create, range(BATCH)))


def test_a_mixed_fleet_on_two_servers_runs_each_task_once_and_leaves_no_message(
    azurite: Azurite, worker_type: str, tmp_path: Path
) -> None:
    env = on_account(azurite)
    group = slugid()
    with ExitStack() as stack:
        servers = [stack.enter_context(serve(tmp_path / name, *SHORT_WAIT, env=env)) for name in ("1", "2")]
        queues = [as_root(server) for server in servers]
        workers: dict[str, ReadClaims] = {}
        for number, queue in enumerate(queues):
            for protocol in PROTOCOLS:
                name = f"{protocol}-{number}"
                sample = sample_worker(queue, worker_type, protocol, tmp_path / name)
                workers[name] = stack.enter_context(sample)
        for number, client in enumerate(TODAY):
            today = todays_worker(queues[number], worker_type, client, tmp_path / f"today-{number}")
            workers[f"today-{number}"] = stack.enter_context(today)

        def statuses() -> list[Json]:
            return [entry["status"] for entry in queues[0].ask("GET", f"/task-group/{group}/list")["tasks"]]

        while not all(claims() for claims in workers.values()):
            create_tasks(queues[0], worker_type, group)
            wait_until(lambda: all(status["state"] == "completed" for status in statuses()))
        ended = statuses()
        assert {(len(status["runs"]), status["retriesLeft"]) for status in ended} == {(1, 5)}
        for name, claims in workers.items():
            ran = {(each["taskId"], 0) for each in ended if each["runs"][0]["workerId"] == name}
            assert claims() == ran
        for status in ended:
            url = f"{servers[1].base_url}/task/{status['taskId']}/runs/0/artifacts/public/logs/live.log"
            assert requests.get(url, timeout=LONG).status_code == 200
        wait_until(lambda: not any(queue.pending(worker_type) for queue in queues))
