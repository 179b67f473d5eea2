"""A decision task creates a graph of tasks, and the queue runs them in the order of the graph."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
POOL = "my-provisioner/my-worker"  # as in taskcluster/config.yml


@pytest.fixture
def checkout(tmp_path):
    """A copy of this project in a git repository, because taskgraph asks git what has changed."""
    shutil.copy(HERE / ".taskcluster.yml", tmp_path)
    shutil.copytree(HERE / "taskcluster", tmp_path / "taskcluster")
    author = ["-c", "user.name=me", "-c", "user.email=me@example.com"]
    for words in (["init", "--quiet"], ["add", "."], [*author, "commit", "--quiet", "--message", "Begin"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def decide(checkout, root_url, run):
    """Runs ``taskgraph decision`` as the worker of the run would, and returns the taskId of each label."""
    head = ["git", "rev-parse", "HEAD"]
    revision = subprocess.run(head, cwd=checkout, check=True, capture_output=True, text=True).stdout.strip()
    options = {
        "project": "example",
        "owner": "me@example.com",
        "level": "1",
        "pushlog-id": "1",
        "pushdate": "0",
        "repository-type": "git",
        "base-repository": "https://github.com/example/project",
        "base-ref": "main",
        "base-rev": revision,
        "head-repository": "https://github.com/example/project",
        "head-ref": "main",
        "head-rev": revision,
        "head-tag": "",
        "tasks-for": "github-push",
    }
    env = {name: value for name, value in os.environ.items() if not name.startswith("TASKCLUSTER_")}
    env |= {
        "TASK_ID": run.task_id,
        "RUN_ID": str(run.run_id),
        "TASKCLUSTER_ROOT_URL": root_url,
        "TASKCLUSTER_CLIENT_ID": run.credentials["clientId"],
        "TASKCLUSTER_ACCESS_TOKEN": run.credentials["accessToken"],
        "TASKCLUSTER_CERTIFICATE": run.credentials["certificate"],
    }
    words = ["taskgraph", "decision", *(f"--{name}={value}" for name, value in options.items())]
    subprocess.run(words, cwd=checkout, env=env, check=True)
    return json.loads((checkout / "artifacts" / "label-to-taskid.json").read_text())


def test_the_tasks_of_the_graph_run_in_its_order(legacy_queue, checkout):
    queue = legacy_queue
    decision = queue.create_task(
        worker_type="decision",
        scheduler_id="example-level-1",
        # taskgraph needs no other scopes to create its tasks
        scopes=[f"queue:create-task:low:{POOL}", "queue:scheduler-id:example-level-1", "queue:route:checks"],
    )
    run = queue.claim("decision")
    tasks = decide(checkout, queue.root_url, run)

    def states():
        return {label: queue.status(task_id)["state"] for label, task_id in tasks.items()}

    assert queue.status(tasks["compile"])["taskGroupId"] == decision
    assert states() == {"compile": "unscheduled", "test": "unscheduled"}
    run.report("completed")
    queue.wait_for(tasks["compile"], "pending")
    assert states() == {"compile": "pending", "test": "unscheduled"}

    compiled = queue.claim(task_queue_id=POOL)
    assert (compiled.task_id, compiled.task["payload"]["command"]) == (tasks["compile"], ["echo", "compiled"])
    compiled.report("completed")
    queue.wait_for(tasks["test"], "pending")
    queue.claim(task_queue_id=POOL).report("completed")
    assert states() == {"compile": "completed", "test": "completed"}
