"""The Object service: objects uploaded and downloaded with the credentials that the queue answers."""

import base64
import hashlib
from typing import Any

import pytest

from tests.http.calls import BLOB, Queue, claimed, refused, succeeded

NAME = "private/a b"
HASHES = {"sha256": hashlib.sha256(BLOB).hexdigest(), "sha512": hashlib.sha512(BLOB).hexdigest()}
INLINE = {"dataInline": {"contentType": "text/html", "objectData": base64.b64encode(BLOB).decode()}}


class Object:
    """An object artifact of a running task; calls about it have the credentials that createArtifact gave."""

    def __init__(self, queue: Queue) -> None:
        self.queue, self.task_id = queue, queue.running(projectId="a/project")
        created = succeeded(queue.artifact(self.task_id, NAME, "object"))
        self.created, self.credentials = created.get_json(), claimed(created)
        self.name = self.created["name"]
        self.upload = {key: self.created[key] for key in ("projectId", "uploadId")}

    def create_upload(self, methods: Any, **changes: Any) -> Any:
        body = {
            **self.upload,
            "expires": self.created["expires"],
            "proposedUploadMethods": methods,
            **changes,
        }
        return self.queue.object("PUT", "upload", self.name, body, self.credentials)

    def finish_upload(self, **changes: Any) -> Any:
        body = {**self.upload, "hashes": HASHES, **changes}
        return self.queue.object("POST", "finish-upload", self.name, body, self.credentials)

    def download(self, method: str, call: str, body: Any = None) -> Any:
        answer = self.queue.call("artifact", taskId=self.task_id, runId=0, name=NAME)
        return self.queue.object(method, call, self.name, body, claimed(succeeded(answer)))

    def finish(self) -> Any:
        body = {"uploadId": self.upload["uploadId"]}
        return self.queue.call("finishArtifact", body, taskId=self.task_id, runId=0, name=NAME)


@pytest.fixture
def unfinished(queue: Queue) -> Object:
    return Object(queue)


@pytest.fixture
def uploaded(unfinished: Object) -> Object:
    succeeded(unfinished.create_upload(INLINE))
    succeeded(unfinished.finish_upload())
    succeeded(unfinished.finish())
    return unfinished


def test_an_object_is_described_and_redirected_to(uploaded: Object) -> None:
    metadata = succeeded(uploaded.download("GET", "metadata")).get_json()
    assert metadata == {"projectId": "a/project", "expires": uploaded.created["expires"], "hashes": HASHES}
    got = uploaded.download("GET", "download")
    assert (got.status_code, got.get_json()) == (
        303,
        {"storageType": "object", "url": got.headers["location"]},
    )
    redirect = uploaded.queue.call("getArtifact", taskId=uploaded.task_id, runId=0, name=NAME)
    assert redirect.headers["x-taskcluster-artifact-storage-type"] == "object"


def test_credentials_are_valid_for_one_object_and_one_direction(uploaded: Object) -> None:
    queue, upload = uploaded.queue, uploaded.credentials
    accepted = {"acceptDownloadMethods": {"simple": True}}
    for credentials in (None, upload):
        answer = queue.object("PUT", "start-download", uploaded.name, accepted, credentials)
        refused(answer, 403, "InsufficientScopes", "object:download:")
    download = claimed(queue.call("artifact", taskId=uploaded.task_id, runId=0, name=NAME))
    other = f"{uploaded.name}x"
    refused(queue.object("GET", "metadata", other, None, download), 403, "InsufficientScopes", other)
    body = {**uploaded.upload, "hashes": HASHES}
    for name, credentials, changes in (
        (uploaded.name, download, {}),
        (other, upload, {}),
        (uploaded.name, upload, {"projectId": "another"}),
    ):
        answer = queue.object("POST", "finish-upload", name, {**body, **changes}, credentials)
        refused(answer, 403, "InsufficientScopes", "object:upload:")
