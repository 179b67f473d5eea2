"""Runs the unchanged loop of scriptworker 3.1.2 on today's Python.

Start it with ``python worker.py PROVISIONER WORKER_TYPE WORKER_GROUP WORKER_ID``. It reads the queue and its
credentials from LEGACY_QUEUE_BASE_URL, TASKCLUSTER_CLIENT_ID and TASKCLUSTER_ACCESS_TOKEN. The script of a
task runs the command in its payload. The exit code 3 means that the payload is malformed.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import on_todays_python
import scriptworker.worker
from aiohttp import ClientSession
from scriptworker.constants import DEFAULT_CONFIG
from scriptworker.utils import cleanup

SCRIPT = """
import json, subprocess, sys
command = json.load(open(sys.argv[1] + "/task.json"))["payload"].get("command")
sys.exit(subprocess.run(command).returncode if isinstance(command, list) else 3)
"""


class Context(on_todays_python.Context):
    """A context that uses the queue of the environment. scriptworker has its own queue's URL built in."""

    def create_queue(self, credentials):
        options = {"baseUrl": os.environ["LEGACY_QUEUE_BASE_URL"], "credentials": credentials}
        return on_todays_python.Queue(options, session=self.session)


async def main(directory: str) -> None:
    names = dict(
        zip(("provisioner_id", "worker_type", "worker_group", "worker_id"), sys.argv[1:], strict=True)
    )
    folders = {name: f"{directory}/{name}" for name in ("work_dir", "log_dir", "artifact_dir")}
    context = Context()
    context.config = {
        **DEFAULT_CONFIG,
        **names,
        **folders,
        "task_log_dir": f"{directory}/artifact_dir/public/logs",
        "task_script": (sys.executable, "-c", SCRIPT, folders["work_dir"]),
        "sign_chain_of_trust": False,
        "poll_interval": 1,  # seconds
        "reclaim_interval": 5,  # conform's claims last 12 seconds
    }
    for folder in folders.values():
        Path(folder).mkdir()
    async with ClientSession() as context.session:
        names = ("clientId", "TASKCLUSTER_CLIENT_ID"), ("accessToken", "TASKCLUSTER_ACCESS_TOKEN")
        context.credentials = {name: os.environ[variable] for name, variable in names}
        cleanup(context)
        while True:
            await scriptworker.worker.run_loop(context)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(folder))
