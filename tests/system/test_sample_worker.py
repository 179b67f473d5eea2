"""The sample worker as a process, in each protocol, with a real server."""

import signal
from pathlib import Path

import pytest
import requests

from .http_queue import Queue, definition
from .processes import LONG, PROTOCOLS, work


@pytest.mark.parametrize("server", ["azurite"], indirect=True)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_stopped_workers_task_is_run_by_the_next_with_its_log_and_artifacts(
    queue: Queue, worker_type: str, tmp_path: Path, protocol: str
) -> None:
    command = "test $RUN_ID != 0 || exec sleep 60; echo x > x; echo hello $RUN_ID"
    artifacts = {"public/x%2F y.html": {"type": "file", "path": "x"}}
    payload = {"command": ["sh", "-c", command], "artifacts": artifacts}
    task_id = queue.create(definition(worker_type, payload=payload))
    with work(tmp_path / "first", queue.server, worker_type, "--protocol", protocol) as first:
        first.wait_for("run")
        assert first.end(signal.SIGTERM) == 0
    options = ("--max-tasks", "1", "--protocol", protocol)
    with work(tmp_path / "second", queue.server, worker_type, *options) as second:
        assert second.wait() == 0
    assert second.output == "hello 1\n"
    finding = {
        "draft": ["poll-urls", "claim"],
        "deployed": ["poll-urls", "claim", "deleted"],
        "claimwork": ["claim"],
    }[protocol]
    assert second.step_names == [*finding, "run", *["artifact"] * 2, "report"]
    assert queue.runs(task_id) == [("exception", "worker-shutdown"), ("completed", "completed")]
    assert queue.pending(worker_type) == 0
    path = f"{queue.server.base_url}/task/{task_id}/runs/1/artifacts/public"
    for name, content_type, text in (
        ("x%252F%20y.html", "text/html", "x\n"),
        ("logs/live.log", "text/plain; charset=utf-8", "hello 1\n"),
    ):
        answer = requests.get(f"{path}/{name}", timeout=LONG)
        assert (answer.text, answer.headers["Content-Type"]) == (text, content_type)
