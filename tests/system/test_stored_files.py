"""A server can continue with the embedded file of every earlier version, and with a backup of it.

``tests/stored/make.py`` made the files.
"""

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from legacy_queue.adapters.embedded.sqlite_connection import VERSION
from legacy_queue.testing import LegacyQueue
from tests.stored.make import BEGIN, LARGE, SMALL, client
from tests.system.processes import wait_until

pytestmark = pytest.mark.processes

STORED = Path(__file__).parents[1] / "stored"
VERSIONS = sorted(path.parent.name for path in STORED.glob("*/known.json"))


@pytest.fixture(params=product(VERSIONS, ("data", "backup")), ids="-".join)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[LegacyQueue, Any]]:
    """A server on a copy of the file, and what was recorded when the file was made, a minute earlier."""
    version, start = request.param
    source = STORED / version
    folder = tmp_path / "data"
    shutil.copytree(source / "data", folder)
    for path in folder.rglob("*"):  # git does not keep the modes
        path.chmod(0o700 if path.is_dir() else 0o600)
    folder.chmod(0o700)
    known = json.loads((source / "known.json").read_text())
    _kill_before_its_events(folder, known["tasks"]["failed"])
    if start == "backup":
        words = ["backup", str(tmp_path / start), "--data-dir", str(folder)]
        subprocess.run([sys.executable, "-m", "legacy_queue", *words], check=True)
        folder = tmp_path / start
    with LegacyQueue("embedded", data_dir=folder) as queue:
        queue.advance(BEGIN + timedelta(minutes=1) - queue.now())
        yield queue, known
    with closing(sqlite3.connect(folder / "storage.sqlite")) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def _kill_before_its_events(folder: Path, task_id: str) -> None:
    """Add the row that 0.1.0 left if it was killed between writing a task and publishing the events."""
    begin = f"d{BEGIN.timestamp() * 1000:.0f}"
    timer = {"inserted": begin, "due": begin, "since": begin, "taskGroupId": "s", "hasArtifacts": False}
    with closing(sqlite3.connect(folder / "storage.sqlite", isolation_level=None)) as file:
        values = ("lqtimers", "0276123600-dead", f"{task_id}.dead.1", None, None, "e", json.dumps(timer))
        file.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)", values)


def _members(queue: LegacyQueue, task_group_id: str) -> set[str]:
    group = client(queue).call("GET", f"/v1/task-group/{task_group_id}/list")
    return {member["status"]["taskId"] for member in group["tasks"]}


def _events(queue: LegacyQueue, task_id: str) -> list[str]:
    events = queue.events(routing_key=f"primary.{task_id}.#")
    return [event["exchange"].rpartition("/")[2] for event in events]


def _resolutions(queue: LegacyQueue, task_group_id: str) -> int:
    events = queue.events("task-group-resolved")
    return [event["payload"]["taskGroupId"] for event in events].count(task_group_id)


def test_tasks_claims_and_artifacts_of_an_earlier_version_still_work(stored: tuple[LegacyQueue, Any]) -> None:
    queue, known = stored
    tasks = known["tasks"]
    assert {name: queue.status(task_id) for name, task_id in tasks.items()} == known["statuses"]

    for name, content in (("small", SMALL), ("large", LARGE)):
        path = f"/v1/task/{tasks['completed']}/artifacts/public/{name}"
        assert b"".join(client(queue).download(path)) == content

    # The claim is still valid. Its credentials have expired, because they follow the machine's clock.
    claim = queue.client().reclaimTask(tasks["running"], 0)
    queue.client(credentials=claim["credentials"]).reportCompleted(tasks["running"], 0)
    assert queue.status(tasks["running"])["state"] == "completed"

    # a message from then can be polled
    run = queue.claim("waiting", protocol="draft")
    assert run is not None
    assert run.task_id == tasks["waiting"]
    assert queue.status(tasks["blocked"])["state"] == "unscheduled"
    run.report("completed")
    assert queue.status(tasks["blocked"])["state"] == "pending"


def test_events_that_an_earlier_version_did_not_publish_are_published(
    stored: tuple[LegacyQueue, Any],
) -> None:
    queue, known = stored
    tasks = known["tasks"]
    life = ["task-defined", "task-pending", "task-running", "task-completed", "task-group-resolved"]
    wait_until(lambda: _events(queue, tasks["owed-ended"]) == life)
    wait_until(lambda: _events(queue, tasks["owed"]) == life[:2])
    wait_until(lambda: _events(queue, tasks["failed"]) == [*life[:3], "task-failed", life[4]])
    assert _events(queue, tasks["completed"]) == []


def test_groups_of_an_earlier_version_are_listed_canceled_and_resolved(
    stored: tuple[LegacyQueue, Any],
) -> None:
    """In 0.1.0, a task whose taskId is the taskGroupId had no row in the group."""
    queue, known = stored
    tasks = known["tasks"]
    assert _members(queue, tasks["completed"]) == {tasks["completed"]}
    assert _members(queue, tasks["running"]) == {tasks[name] for name in ("running", "waiting", "blocked")}

    canceled = client(queue).call("POST", f"/v1/task-group/{tasks['sealed']}/cancel")
    assert {*canceled["taskIds"]} == {tasks["sealed"], tasks["member"]}
    assert queue.status(tasks["sealed"])["state"] == "exception"
    wait_until(lambda: _resolutions(queue, tasks["sealed"]))

    client(queue).call("POST", f"/v1/task-group/{tasks['rerun']}/seal")
    run = queue.claim("rerun")
    assert run is not None
    assert _resolutions(queue, tasks["rerun"]) == 0
    run.report("completed")
    wait_until(lambda: _resolutions(queue, tasks["rerun"]))
