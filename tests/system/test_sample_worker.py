"""The sample worker as a process, in each protocol, with a real server.

Tests with short claims are in test_expiry.
"""

import signal
from pathlib import Path
from urllib.parse import quote

import pytest
import requests

from .http_queue import Queue, definition
from .processes import LONG, work

PROTOCOLS = ["draft", "deployed", "claimwork"]
LOG = "public/logs/live.log"
TEXT = "text/plain; charset=utf-8"
SHELL = "sh", "-c"
on_memory = pytest.mark.parametrize("server", ["memory"], indirect=True)
on_azurite = pytest.mark.parametrize("server", ["azurite"], indirect=True)


def artifact(queue: Queue, task_id: str, name: str) -> requests.Response:
    """GET the artifact without credentials, and follow redirects."""
    url = f"{queue.server.base_url}/task/{task_id}/runs/0/artifacts/{quote(name, safe='')}"
    return requests.get(url, timeout=LONG)


@on_azurite
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_worker_follows_the_chart_of_its_protocol_and_uploads_log_and_artifacts(
    queue: Queue, worker_type: str, tmp_path: Path, protocol: str
) -> None:
    command = "mkdir site; echo '<p>' > site/index.html; echo x > 'x%2F y'; echo hello"
    artifacts = {
        "public/index.html": {"type": "file", "path": "site/index.html"},
        "public/x%2F y": {"type": "file", "path": "x%2F y"},
    }
    payload = {"command": [*SHELL, f'{command} "$RUN_ID"'], "artifacts": artifacts}
    task_id = queue.create(definition(worker_type, payload=payload))
    with work(tmp_path, queue.server, worker_type, "--max-tasks", "1", "--protocol", protocol) as worker:
        assert worker.wait() == 0
    assert worker.output == "hello 0\n"
    finding = {
        "draft": ["poll-urls", "claim"],
        "deployed": ["poll-urls", "claim", "deleted"],
        "claimwork": ["claim"],
    }[protocol]
    assert worker.step_names == [*finding, "run", *["artifact"] * 3, "report"]
    sent = next(step["sent"] for step in worker.steps if step["event"] == "claim")
    more = {"draft": ["messageId", "receipt", "signature"], "deployed": [], "claimwork": ["tasks"]}[protocol]
    assert sent == sorted([*more, "workerGroup", "workerId"])
    assert queue.runs(task_id) == [("completed", "completed")]
    assert queue.pending(worker_type) == 0

    listed = queue.ask("GET", f"/task/{task_id}/runs/0/artifacts")["artifacts"]
    assert {entry["name"]: (entry["storageType"], entry["contentType"]) for entry in listed} == {
        "public/index.html": ("s3", "text/html"),
        "public/x%2F y": ("s3", "application/octet-stream"),
        LOG: ("s3", TEXT),
    }
    assert artifact(queue, task_id, "public/x%2F y").text == "x\n"
    log = artifact(queue, task_id, LOG)
    assert (log.text, log.headers["Content-Type"]) == ("hello 0\n", TEXT)


@on_memory
def test_each_end_of_a_task_is_reported_as_the_protocol_says(
    queue: Queue, worker_type: str, tmp_path: Path
) -> None:
    payloads = [
        {"command": [*SHELL, "exit 3"]},
        {"command": ["sleep", "30"], "maxRunTime": 0.2},
        {"command": []},
        {"command": ["/nowhere/to/be/found"]},
    ]
    tasks = [queue.create(definition(worker_type, payload=payload)) for payload in payloads]
    with work(tmp_path, queue.server, worker_type, "--max-tasks", "4") as worker:
        assert worker.wait() == 0
    assert [queue.runs(task_id) for task_id in tasks] == [
        *[[("failed", "failed")]] * 2,
        *[[("exception", "malformed-payload")]] * 2,
    ]
    assert queue.pending(worker_type) == 0


@on_memory
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_sigterm_makes_the_worker_report_worker_shutdown_and_the_next_worker_runs_the_task(
    queue: Queue, worker_type: str, tmp_path: Path, protocol: str
) -> None:
    command = [*SHELL, "test $RUN_ID != 0 || exec sleep 60"]
    task_id = queue.create(definition(worker_type, payload={"command": command}))
    options = ("--protocol", protocol, "--capacity", "3")
    with work(tmp_path / "first", queue.server, worker_type, *options) as first:
        first.wait_for("run")
        assert first.end(signal.SIGTERM) == 0
    assert queue.runs(task_id) == [("exception", "worker-shutdown"), ("pending", None)]
    with work(tmp_path / "second", queue.server, worker_type, "--max-tasks", "1") as second:
        assert second.wait() == 0
    assert queue.runs(task_id) == [("exception", "worker-shutdown"), ("completed", "completed")]
    assert queue.status(task_id)["retriesLeft"] == 4


@on_memory
def test_a_worker_uploads_an_artifact_without_holding_it_in_memory(
    queue: Queue, worker_type: str, tmp_path: Path
) -> None:
    size = 200 * 1024 * 1024
    payload = {
        "command": [*SHELL, f"truncate -s {size} large"],
        "artifacts": {"public/large": {"type": "file", "path": "large"}},
    }
    task_id = queue.create(definition(worker_type, payload=payload))
    with work(tmp_path, queue.server, worker_type, "--poll-interval", "1s") as worker:
        worker.wait_for("report")
        status = Path(f"/proc/{worker.process.pid}/status").read_text()
        assert worker.end(signal.SIGTERM) == 0
    assert int(status.split("VmHWM:")[1].split()[0]) * 1024 < size
    assert queue.runs(task_id) == [("completed", "completed")]
    url = f"{queue.server.base_url}/task/{task_id}/artifacts/public/large"
    with requests.get(url, stream=True, timeout=LONG) as answer:
        assert int(answer.headers["Content-Length"]) == size
