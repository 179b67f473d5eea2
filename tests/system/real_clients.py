"""Unchanged clients of 2015 to 2018 and of today, all with the same interface."""

import base64
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import requests

from legacy_queue.domain.ids import slugid
from tests.http.calls import WORKER, artifact_body, blob_of

from .http_queue import Queue, secrets_in
from .processes import LONG, Server

CLIENTS = ("pypi-3.0.2", "npm-4.1.0", "npm-11.0.0")
TODAY = ("pypi-113.2.0", "npm-87.1.3")  # these have no pollTaskUrls

CLIENTS_DIR = Path(__file__).parents[1] / "clients"


class Refused(Exception):
    """The server answered with this error status and code. The code is "" if the answer has none."""


class RealClient:
    """A client in a process of its own. `call.js` or `call.py` makes its calls."""

    def __init__(self, options: Mapping[str, Any], process: "subprocess.Popen[str]") -> None:
        self._options = options
        self._process = process

    def call(
        self,
        method: str,
        *args: Any,
        credentials: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        job: str = "call",
    ) -> Any:
        """Make a call, or another job of `call.js`. Returns the answer, or raises Refused."""
        assert self._process.stdin
        assert self._process.stdout
        options = {**self._options, **({"credentials": dict(credentials)} if credentials else {})}
        request = {"job": job, "options": options, "method": method, "args": args, "query": query}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()  # the client has a timeout of its own
        assert line, f"the client could not do {job} {method}: see standard error"
        result = json.loads(line)
        if "refused" in result:
            raise Refused(result["refused"]["status"], result["refused"]["body"].get("code", ""))
        return result.get("answer")

    def url(self, method: str, *args: Any) -> str:
        """The URL that the client builds for a GET method."""
        return str(self.call(method, *args, job="url"))

    def download(self, task_id: str, run_id: str | None, name: str) -> tuple[bytes, str]:
        """Download an artifact. Returns its content and its content type. Only the newest clients can."""
        downloaded = self.call("", task_id, run_id, name, job="download")
        return base64.b64decode(downloaded["content"]), downloaded["contentType"]


class ClaimedRun:
    """Run 0 of a new task. The client has claimed it with its message."""

    def __init__(self, queue: Queue, client: RealClient, worker_type: str) -> None:
        self.client, self._queue, self.task_id = client, queue, slugid()
        client.call("createTask", self.task_id, queue.task_body(workerType=worker_type))
        [message] = queue.messages(workerType=worker_type)
        claim = client.call("claimTask", self.task_id, "0", {**WORKER, **message.proof_body})
        self.credentials = claim["credentials"]
        queue.server.secrets.add(self.credentials["accessToken"])

    def call(self, method: str, *args: Any) -> Any:
        answer = self.client.call(method, self.task_id, "0", *args, credentials=self.credentials)
        self._queue.server.secrets.update(secrets_in(json.dumps(answer)))
        return answer

    def create(self, name: str, storage_type: str, **changes: Any) -> Any:
        return self.call("createArtifact", name, artifact_body(storage_type, self._queue.now(), **changes))

    def create_blob(self, name: str, *parts: bytes) -> Any:
        """Create a blob. The answer's ``requests`` has one request for each part."""
        sizes = [{"sha256": sha256(part).hexdigest(), "size": len(part)} for part in parts]
        more = {"parts": sizes} if len(parts) > 1 else {}
        return self.create(name, "blob", **blob_of(b"".join(parts)), **more)

    def send(self, request: Mapping[str, Any], content: bytes) -> requests.Response:
        return requests.request(
            request["method"], request["url"], data=content, headers=request["headers"], timeout=LONG
        )

    def put(self, name: str, content: bytes, **changes: Any) -> None:
        """Create an s3 artifact and upload it the way docker-worker did."""
        created = self.create(name, "s3", **changes)
        headers = {"Content-Type": created["contentType"]}
        assert requests.put(created["putUrl"], content, headers=headers, timeout=LONG).status_code == 200

    def get(self, name: str) -> requests.Response:
        """GET the client's URL, with a bewit that is valid for a minute, and follow redirects."""
        run, life = (self.task_id, "0"), {"expiration": 60}
        return requests.get(self.client.call("getArtifact", *run, name, life, job="signedUrl"), timeout=LONG)


def refusal(call: Callable[..., object], *args: Any, **options: Any) -> tuple[int, str]:
    """Make a call that must be refused. Returns the status and the code."""
    with pytest.raises(Refused) as refused:
        call(*args, **options)
    status, code = refused.value.args
    return status, code


@contextmanager
def real_client(name: str, server: Server) -> Iterator[RealClient]:
    """Start the client with this name from CLIENTS or TODAY."""
    package, _, version = name.partition("-")
    major = version.partition(".")[0]
    # on Node.js 24, clients of 2017 and 2018 do not follow redirects
    node = "node" if name in TODAY else CLIENTS_DIR / "node_modules/node-10/bin/node"
    command: list[str | Path] = [node, CLIENTS_DIR / "call.js", major]
    if package == "pypi":
        command = [python_of_today() if name in TODAY else sys.executable, "-m", "tests.clients.call"]
    elif not (CLIENTS_DIR / "node_modules").is_dir():
        pytest.fail(f"{CLIENTS_DIR}/node_modules is missing: run scripts/install --services.")
    url = {"baseUrl": server.base_url} if major in ("3", "4") else {"rootUrl": server.root_url}
    options = {**url, "credentials": server.credentials}
    root, pipe = CLIENTS_DIR.parents[1], subprocess.PIPE
    with subprocess.Popen(command, cwd=root, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield RealClient(options, process)
        finally:
            process.kill()
            process.wait(LONG)


def python_of_today() -> Path:
    """The path of the Python that has the newest client."""
    python = CLIENTS_DIR / ".venv/bin/python"
    if not python.exists():
        pytest.fail(f"{python} is missing: run scripts/install --services.")
    return python
