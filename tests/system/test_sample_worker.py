"""The sample worker as a process, in each protocol, with a real server."""

import signal
from pathlib import Path

import pytest
import requests

from legacy_queue.testing import LegacyQueue

from .http_queue import Queue
from .processes import LONG, PROTOCOLS, client_env, run, wait_until, work

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("server", ["azurite"], indirect=True)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_stopped_workers_task_is_run_by_the_next_with_its_log_and_artifacts(
    queue: Queue, worker_type: str, tmp_path: Path, protocol: str
) -> None:
    command = "test $RUN_ID != 0 || exec sleep 60; echo x > x; echo hello $RUN_ID"
    artifacts = {"public/x%2F y.html": {"type": "file", "path": "x"}}
    payload = {"command": ["sh", "-c", command], "artifacts": artifacts}
    task_id = queue.create(workerType=worker_type, payload=payload)
    with work(tmp_path / "first", queue.server, worker_type, "--protocol", protocol) as first:
        first.wait_for("run")
        assert first.end(signal.SIGTERM) == 0
    options = ("--max-tasks", "1", "--protocol", protocol)
    with work(tmp_path / "second", queue.server, worker_type, *options) as second:
        assert second.wait() == 0
    assert second.output == "hello 1\n"
    finding = [] if protocol == "claimwork" else ["poll-urls"]
    assert second.step_names == [*finding, "claim", "run", *["artifact"] * 2, "report"]
    assert queue.runs(task_id) == [("exception", "worker-shutdown"), ("completed", "completed")]
    assert queue.messages(workerType=worker_type) == []
    path = f"{queue.server.base_url}/task/{task_id}/runs/1/artifacts/public"
    for name, content_type, text in (
        ("x%252F%20y.html", "text/html", "x\n"),
        ("logs/live.log", "text/plain; charset=utf-8", "hello 1\n"),
    ):
        answer = requests.get(f"{path}/{name}", timeout=LONG)
        assert (answer.text, answer.headers["Content-Type"]) == (text, content_type)


def test_a_second_signal_ends_the_worker_at_once(legacy_queue: LegacyQueue, tmp_path: Path) -> None:
    up = tmp_path / "up"
    legacy_queue.create_task(worker_type="w", payload={"command": f"touch {up}; sleep {2 * LONG}"})
    slow = legacy_queue.fault("reportException", delay=2 * LONG)
    env = client_env(legacy_queue.root_url, legacy_queue.credentials)
    with run(tmp_path, "worker", "test-provisioner/w", env=env) as worker:
        wait_until(up.exists)
        worker.send(signal.SIGTERM)
        wait_until(lambda: slow.fired)
        assert worker.end() == 128 + signal.SIGTERM
