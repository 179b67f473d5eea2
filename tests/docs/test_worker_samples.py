"""Workers start with the samples of docs/how-to/legacy-workers.md as they are."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from legacy_queue.domain.authentication import Client
from tests.docs.page import read
from tests.docs.terminal import ROOT
from tests.http.calls import Credentials, artifact_body
from tests.http.calls import Queue as HttpQueue
from tests.system.http_queue import Queue
from tests.system.processes import LONG, environment, serve

pytestmark = pytest.mark.processes

PAGE = read(ROOT / "docs/how-to/legacy-workers.md")
CLIENT = {"clientId": "my-workers", "accessToken": "an-access-token-of-the-workers"}
# Runs scriptworker's own code for its settings and its loop. Only the queue's URL, which is built in, is
# replaced.
SCRIPTWORKER = """
import asyncio, os, sys
import on_todays_python
import scriptworker.worker
from aiohttp import ClientSession
from scriptworker.config import create_config
from scriptworker.utils import cleanup

class Context(on_todays_python.Context):
    def create_queue(self, credentials):
        options = {"baseUrl": os.environ["LEGACY_QUEUE_BASE_URL"], "credentials": dict(credentials)}
        return on_todays_python.Queue(options, session=self.session)

async def main():
    context = Context()
    context.config, credentials = create_config("scriptworker.yaml")
    async with ClientSession() as context.session:
        context.credentials = credentials
        cleanup(context)
        await scriptworker.worker.run_loop(context)

asyncio.run(main())
"""


def sample(language: str, word: str) -> str:
    [found] = [step.text for step in PAGE.steps if step.language == language and word in step.text]
    return found


def test_scriptworker_runs_a_task_with_the_sample_settings(tmp_path: Path) -> None:
    settings = sample("yaml", "task_script")
    (tmp_path / "scriptworker.yaml").write_text(settings)
    clients = {CLIENT["clientId"]: {"accessToken": CLIENT["accessToken"], "scopes": ["*"]}}
    env = {"LEGACY_QUEUE_CLIENTS": json.dumps(clients)}
    names = yaml.safe_load(settings)
    with serve(tmp_path / "server", "--storage", "memory", env=env) as server:
        queue = Queue(server, CLIENT)
        task_id = queue.create(provisionerId=names["provisioner_id"], workerType=names["worker_type"])
        examples = os.pathsep.join([str(ROOT / "examples/scriptworker"), os.environ["PYTHONPATH"]])
        worker = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SCRIPTWORKER],
            cwd=tmp_path,
            env=environment(LEGACY_QUEUE_BASE_URL=server.base_url, PYTHONPATH=examples),
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * LONG,
        )
        assert worker.returncode == 0, worker.stderr
        status = queue.status(task_id)
        assert (status["state"], status["runs"][0]["workerId"]) == ("completed", names["worker_id"])


def test_generic_worker_can_make_all_its_calls_with_the_scopes_on_the_page() -> None:
    """generic-worker signs every call with its own credentials."""
    own = tomllib.loads(sample("toml", "clients.my-workers"))["clients"]["my-workers"]
    queue = HttpQueue(Client("my-workers", own["accessToken"], tuple(own["scopes"])))
    credentials = Credentials("my-workers", own["accessToken"])
    pool = {"provisionerId": "my-provisioner", "workerType": "my-worker"}
    worker = {"workerGroup": "my-group", "workerId": "my-generic-worker-1"}
    run = {"taskId": queue.create(**pool), "runId": 0}
    for name, body, params in (
        ("pollTaskUrls", None, pool),
        ("claimTask", worker, run),
        ("reclaimTask", None, run),
        ("createArtifact", artifact_body("s3"), {**run, "name": "public/logs/live.log"}),
        ("reportCompleted", None, run),
    ):
        assert queue.call(name, body, credentials, **params).status_code == 200
