"""A worker that has artifacts stored: what it sends to a real client, and what sends the bytes."""

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from .http_queue import Json, Queue, definition, in_time
from .processes import LONG
from .real_clients import RealClient, refusal

TEXT = "text/plain; charset=utf-8"
_BESIDE = {
    "reference": {"contentType": TEXT, "url": "https://elsewhere.example.com/live.log?a=%2F&b=c#d"},
    "error": {"reason": "file-missing-on-worker", "message": "there is no such file"},
}


def body(storage_type: str, **changes: Any) -> Json:
    """What createArtifact is given, but for the storage type blob; it expires in an hour."""
    beside = _BESIDE.get(storage_type, {"contentType": TEXT})
    return {"storageType": storage_type, "expires": in_time(hours=1), **beside, **changes}


def of_blob(content: bytes, **changes: Any) -> Json:
    """The body for a blob of that content."""
    sha256 = hashlib.sha256(content).hexdigest()
    return body("blob", **{"contentLength": len(content), "contentSha256": sha256, **changes})


def of_parts(parts: Sequence[bytes], **changes: Any) -> Json:
    """The body for a blob that is uploaded in these parts."""
    of_each = [{"sha256": hashlib.sha256(part).hexdigest(), "size": len(part)} for part in parts]
    return of_blob(b"".join(parts), parts=of_each, **changes)


def send(upload: Mapping[str, Any], content: bytes) -> requests.Response:
    """One of the ``requests`` that createArtifact answers for a blob."""
    return requests.request(
        upload["method"], upload["url"], data=content, headers=upload["headers"], timeout=LONG
    )


def curl(*words: str) -> tuple[int, bytes]:
    """The status and the body that curl got with these words."""
    program = shutil.which("curl")
    if program is None:
        pytest.fail("curl is missing; on Debian: apt-get install curl")
    words = (
        "--silent",
        "--show-error",
        "--max-time",
        str(LONG),
        "--write-out",
        "%{stderr}%{http_code}",
        *words,
    )
    done = subprocess.run([program, *words], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return int(done.stderr), done.stdout


def curl_upload(file: Path, url: str, *headers: str) -> tuple[int, bytes]:
    """``curl -T``, with these headers."""
    return curl("-T", str(file), *(word for header in headers for word in ("-H", header)), url)


@dataclass(frozen=True)
class Run:
    """Run 0 of a task, claimed, for the worker that holds it."""

    client: RealClient
    task_id: str
    credentials: dict[str, str]
    secrets: set[str]  # that no log may hold

    def call(self, method: str, *args: Any) -> Any:
        answer = self.client.call(method, self.task_id, "0", *args, credentials=self.credentials)
        self.secrets.update(re.findall(r'\bsig(?:nature)?=([^&"]+)', json.dumps(answer)))
        return answer

    def refusal(self, method: str, *args: Any) -> tuple[int, str]:
        return refusal(self.call, method, *args)

    def put(self, name: str, content: bytes, **changes: Any) -> None:
        """An s3 artifact, uploaded as docker-worker did."""
        created = self.call("createArtifact", name, body("s3", **changes))
        headers = {"Content-Type": created["contentType"]}
        answer = requests.put(created["putUrl"], data=content, headers=headers, timeout=LONG)
        assert answer.status_code == 200, answer.text

    def get(self, name: str, **headers: str) -> requests.Response:
        """What the client's signed URL leads to."""
        return requests.get(self.signed_url(name), headers=headers, timeout=LONG)

    def redirect(self, name: str) -> requests.Response:
        return requests.get(self.signed_url(name), allow_redirects=False, timeout=LONG)

    def signed_url(self, name: str) -> str:
        return self.client.signed_url("getArtifact", self.task_id, "0", name)


def claimed(queue: Queue, client: RealClient, worker_type: str, **changes: Any) -> Run:
    task_id = queue.create(definition(worker_type, **changes))
    worker = {"workerGroup": "group", "workerId": "one"}
    credentials = client.call("claimTask", task_id, "0", worker)["credentials"]
    queue.with_credentials(credentials)
    return Run(client, task_id, credentials, queue.server.secrets)
