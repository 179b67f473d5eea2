"""A worker on the newest PyPI client: ``.venv/bin/python worker.py P/W GROUP ID``, until it is ended.

It claims work, runs ``payload.command``, stores what that prints as ``public/logs/live.log``, reclaims, and
reports, each with the credentials of the claim. A line of JSON on stdout for each step of a run.
The server and the worker's own credentials are in TASKCLUSTER_ROOT_URL, TASKCLUSTER_CLIENT_ID and
TASKCLUSTER_ACCESS_TOKEN.
"""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import requests
import taskcluster

LOG = "public/logs/live.log"


def log(event: str, claim: dict[str, Any]) -> None:
    line = {"event": event, "taskId": claim["status"]["taskId"], "runId": claim["runId"]}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def run(claim: dict[str, Any]) -> None:
    task_id, run_id = claim["status"]["taskId"], str(claim["runId"])
    root = {"rootUrl": own_options["rootUrl"]}
    queue = taskcluster.Queue({**root, "credentials": claim["credentials"]})
    log("claim", claim)
    ended = subprocess.run(claim["task"]["payload"]["command"], capture_output=True, check=False)
    expires = datetime.now(UTC) + timedelta(hours=1)
    artifact = {"storageType": "s3", "contentType": "text/plain", "expires": taskcluster.stringDate(expires)}
    created = queue.createArtifact(task_id, run_id, LOG, artifact)
    upload = requests.put(
        created["putUrl"], data=ended.stdout, headers={"Content-Type": "text/plain"}, timeout=60
    )
    upload.raise_for_status()
    log("upload", claim)
    reclaimed = queue.reclaimTask(task_id, run_id)
    log("reclaim", claim)
    queue = taskcluster.Queue({**root, "credentials": reclaimed["credentials"]})
    (queue.reportFailed if ended.returncode else queue.reportCompleted)(task_id, run_id)
    log("report", claim)


task_queue_id, worker_group, worker_id = sys.argv[1:]
own_options = taskcluster.optionsFromEnvironment()
while True:
    wanted = {"workerGroup": worker_group, "workerId": worker_id, "tasks": 1}
    for claim in taskcluster.Queue(own_options).claimWork(task_queue_id, wanted)["tasks"]:
        run(claim)
