"""Bodies of createArtifact, and uploads, for a run that a real client has claimed."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import requests

from .http_queue import Json, Queue, in_time, secrets_in
from .processes import LONG
from .real_clients import RealClient, refusal

TEXT = "text/plain; charset=utf-8"
_FIELDS = {
    "reference": {"contentType": TEXT, "url": "https://elsewhere.example.com/live.log?a=%2F&b=c#d"},
    "error": {"reason": "file-missing-on-worker", "message": "there is no such file"},
}


def body(storage_type: str, **changes: Any) -> Json:
    """The body of createArtifact for any storage type but blob; it expires in an hour."""
    fields = _FIELDS.get(storage_type, {"contentType": TEXT})
    return {"storageType": storage_type, "expires": in_time(hours=1), **fields, **changes}


def of_blob(content: bytes, **changes: Any) -> Json:
    """The body of createArtifact for a blob of this content."""
    sha256 = hashlib.sha256(content).hexdigest()
    return body("blob", **{"contentLength": len(content), "contentSha256": sha256, **changes})


def of_parts(parts: Sequence[bytes], **changes: Any) -> Json:
    """The body of createArtifact for a blob that is uploaded in these parts."""
    of_each = [{"sha256": hashlib.sha256(part).hexdigest(), "size": len(part)} for part in parts]
    return of_blob(b"".join(parts), parts=of_each, **changes)


def send(upload: Mapping[str, Any], content: bytes) -> requests.Response:
    """Send one of the ``requests`` of createArtifact's answer for a blob."""
    return requests.request(
        upload["method"], upload["url"], data=content, headers=upload["headers"], timeout=LONG
    )


@dataclass(frozen=True)
class Run:
    """Run 0 of a task, with the credentials of its claim."""

    client: RealClient
    task_id: str
    credentials: dict[str, str]
    secrets: set[str]  # no log may hold these

    def call(self, method: str, *args: Any) -> Any:
        answer = self.client.call(method, self.task_id, "0", *args, credentials=self.credentials)
        self.secrets.update(secrets_in(json.dumps(answer)))
        return answer

    def refusal(self, method: str, *args: Any) -> tuple[int, str]:
        return refusal(self.call, method, *args)

    def put(self, name: str, content: bytes, **changes: Any) -> None:
        """Create an s3 artifact and upload it as docker-worker did."""
        created = self.call("createArtifact", name, body("s3", **changes))
        headers = {"Content-Type": created["contentType"]}
        answer = requests.put(created["putUrl"], data=content, headers=headers, timeout=LONG)
        assert answer.status_code == 200, answer.text

    def get(self, name: str, **headers: str) -> requests.Response:
        """GET the client's signed URL, and follow redirects."""
        return requests.get(self.signed_url(name), headers=headers, timeout=LONG)

    def redirect(self, name: str) -> requests.Response:
        return requests.get(self.signed_url(name), allow_redirects=False, timeout=LONG)

    def signed_url(self, name: str) -> str:
        return self.client.signed_url("getArtifact", self.task_id, "0", name)


def claimed(queue: Queue, client: RealClient, worker_type: str, **changes: Any) -> Run:
    task_id = queue.create(workerType=worker_type, **changes)
    worker = {"workerGroup": "group", "workerId": "one"}
    credentials = client.call("claimTask", task_id, "0", worker)["credentials"]
    queue.server.secrets.add(credentials["accessToken"])
    return Run(client, task_id, credentials, queue.server.secrets)
