"""The Object service with the credentials of the queue. Its rules are in tests/services/test_objects.py."""

import base64
import hashlib
from typing import Any

from tests.http.calls import BLOB, Queue, claimed, refused, succeeded

NAME = "private/a b"


def test_credentials_are_valid_for_one_object_and_one_direction(queue: Queue) -> None:
    where: dict[str, Any] = {"taskId": queue.running(projectId="a/project"), "runId": 0, "name": NAME}
    answer = succeeded(queue.artifact(where["taskId"], NAME, "object"))
    created, uploading = answer.get_json(), claimed(answer)
    name, other = created["name"], created["name"] + "x"
    upload = {key: created[key] for key in ("projectId", "uploadId")}
    inline = {"contentType": "text/html", "objectData": base64.b64encode(BLOB).decode()}
    methods = {"expires": created["expires"], "proposedUploadMethods": {"dataInline": inline}}
    succeeded(queue.object("PUT", "upload", name, {**upload, **methods}, uploading))
    hashes = {"sha256": hashlib.sha256(BLOB).hexdigest(), "sha512": hashlib.sha512(BLOB).hexdigest()}
    finish = {**upload, "hashes": hashes}
    succeeded(queue.object("POST", "finish-upload", name, finish, uploading))
    succeeded(queue.call("finishArtifact", {"uploadId": upload["uploadId"]}, **where))
    downloading = claimed(queue.call("artifact", **where))
    for wrong, of, body in (
        (downloading, name, finish),
        (uploading, other, finish),
        (uploading, name, {**finish, "projectId": "another"}),
    ):
        answer = queue.object("POST", "finish-upload", of, body, wrong)
        refused(answer, 403, "InsufficientScopes", "object:upload:")
    for caller in (None, uploading):
        accepted = {"acceptDownloadMethods": {"simple": True}}
        answer = queue.object("PUT", "start-download", name, accepted, caller)
        refused(answer, 403, "InsufficientScopes", "object:download:")
    refused(queue.object("GET", "metadata", other, None, downloading), 403, "InsufficientScopes", other)
    metadata = succeeded(queue.object("GET", "metadata", name, None, downloading)).get_json()
    assert metadata == {"projectId": "a/project", "expires": created["expires"], "hashes": hashes}
    got = queue.object("GET", "download", name, None, downloading)
    assert got.status_code == 303
    assert got.get_json() == {"storageType": "object", "url": got.headers["location"]}
    redirect = queue.call("getArtifact", **where)
    assert redirect.headers["x-taskcluster-artifact-storage-type"] == "object"
