"""Makes a data directory with tasks in each state. Run it with the Python of an older release.

``PYTHON tests/stored/make.py tests/stored/0.1.0``: PYTHON is in an environment with the wheel of this
release. The times are in 2040, so that no deadline passes before then.
"""

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from legacy_queue.credentials import Credentials
from legacy_queue.queue_client import QueueClient
from legacy_queue.testing import LegacyQueue

BEGIN = datetime(2040, 1, 1, tzinfo=UTC)
SMALL, LARGE = b"a small artifact", bytes(range(256)) * 300


def client(queue: LegacyQueue) -> QueueClient:
    """A client for calls that clients of 2018 do not have."""
    return QueueClient(queue.base_url, Credentials.from_wire(queue.credentials))


def make(folder: Path) -> None:
    with LegacyQueue("embedded", data_dir=folder / "data") as queue:
        queue.advance(BEGIN - queue.now())
        claimed = "completed", "failed", "exception", "running"
        tasks = {name: queue.create_task(worker_type=name) for name in claimed}
        group: Any = {"worker_type": "waiting", "task_group_id": tasks["running"]}
        tasks["waiting"] = queue.create_task(priority="high", **group)
        tasks["blocked"] = queue.create_task(dependencies=[tasks["waiting"]], **group)
        runs: dict[str, Any] = {name: queue.claim(name) for name in claimed}
        for name, content in (("small", SMALL), ("large", LARGE)):
            runs["completed"].create_artifact(f"public/{name}", content)
        runs["completed"].report("completed")
        runs["failed"].report("failed")
        runs["exception"].report("exception", "malformed-payload")

        # a sealed group, and a group whose only task was rerun
        tasks["sealed"] = queue.create_task(worker_type="sealed")
        tasks["member"] = queue.create_task(worker_type="sealed", task_group_id=tasks["sealed"])
        client(queue).call("POST", f"/v1/task-group/{tasks['sealed']}/seal")
        tasks["rerun"] = queue.create_task(worker_type="rerun")
        queue.claim("rerun").report("completed")  # type: ignore[union-attr]
        queue.rerun(tasks["rerun"])

    # The broker is away, so the events of these tasks are not published.
    with LegacyQueue("embedded", data_dir=folder / "data", amqp_url="amqp://127.0.0.1:1") as queue:
        queue.advance(BEGIN + timedelta(seconds=10) - queue.now())
        tasks["owed"] = queue.create_task(worker_type="owed")
        tasks["owed-ended"] = queue.create_task(worker_type="owed-ended")
        queue.claim("owed-ended").report("completed")  # type: ignore[union-attr]
        known = {
            "tasks": tasks,
            "statuses": {name: queue.status(task_id) for name, task_id in tasks.items()},
        }
    (folder / "known.json").write_text(json.dumps(known, indent=1))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
