"""A server with --control as a process: after a reset it serves, moves its clock, and ends in order."""

import json
import signal
import threading
from pathlib import Path
from typing import Any

import requests

from .http_queue import Queue, definition
from .processes import LONG, serve

POOL = "reset"


def control(queue: Queue, command: str, body: Any) -> requests.Response:
    url = f"{queue.server.root_url}/control/v1/{command}"
    content, content_type = json.dumps(body).encode(), "application/json"
    headers = {
        "Authorization": queue.header("POST", url, content, content_type),
        "Content-Type": content_type,
    }
    return requests.post(url, data=content, headers=headers, timeout=LONG)


def test_a_server_serves_and_ends_in_order_after_a_reset(tmp_path: Path) -> None:
    answers: list[Any] = []
    worker = {"workerGroup": "group", "workerId": "one"}
    with serve(tmp_path, "--storage", "memory", "--control") as server:
        queue = Queue(server)
        removed = queue.create(definition(POOL))
        waiting = threading.Thread(
            target=lambda: answers.append(
                queue.ask("POST", f"/claim-work/system/{POOL}2", {**worker, "tasks": 1})
            )
        )
        waiting.start()
        for _ in range(3):
            answer = control(queue, "reset", {})
            assert (answer.status_code, answer.json()) == (200, {})
        waiting.join(LONG)
        assert answers == [{"tasks": []}]
        assert queue.send("GET", f"/task/{removed}/status").status_code == 404
        task_id = queue.create(definition(POOL))
        assert queue.claim_by_name(task_id, 0).status_code == 200
        assert control(queue, "clock", {"advance": "21m"}).status_code == 200
        assert queue.runs(task_id) == [("exception", "claim-expired"), ("pending", None)]
        metrics = requests.get(f"{server.root_url}/metrics", timeout=LONG).text
        assert 'legacy_queue_requests_total{endpoint="createTask",status="200"} 1.0' in metrics
        assert server.end(signal.SIGTERM) == 0
