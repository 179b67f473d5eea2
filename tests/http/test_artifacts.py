"""Artifacts over HTTP: created, completed, redirected to and listed, and how each of these is refused."""

import gzip
import hashlib
from datetime import timedelta
from typing import Any

import pytest

from tests.http.calls import (
    BLOB,
    ROOT_URL,
    TASK_ID,
    Queue,
    artifact_body,
    blob_of,
    refused,
    succeeded,
)

GETS: list[tuple[str, dict[str, Any]]] = [("getArtifact", {"runId": 0}), ("getLatestArtifact", {})]
each_get = pytest.mark.parametrize(("get", "of_run"), GETS, ids=[name for name, _ in GETS])
STORED_TYPE = "x-taskcluster-artifact-storage-type"


def create(queue: Queue, task_id: str, body: Any, name: str = "a", run_id: Any = 0) -> Any:
    return queue.call("createArtifact", body, taskId=task_id, runId=run_id, name=name)


def complete(queue: Queue, task_id: str, etags: list[str], name: str = "a") -> Any:
    return queue.call("completeArtifact", {"etags": etags}, taskId=task_id, runId=0, name=name)


def location_of_blob(queue: Queue, content: bytes = BLOB, **encoded: Any) -> str:
    """The target of the redirect to a blob, on this server."""
    task_id = queue.running(TASK_ID)
    created = succeeded(queue.artifact(task_id, "public/a", "blob", **{**blob_of(content), **encoded}))
    (upload,) = created.get_json()["requests"]
    headers = {name.replace("-", "_"): text for name, text in upload["headers"].items() if "encod" in name}
    etag = succeeded(queue.upload(upload["url"], content, **headers)).headers["etag"]
    succeeded(complete(queue, task_id, [etag], "public/a"))
    answer = queue.call("getArtifact", taskId=task_id, runId=0, name="public/a", credentials=None)
    return str(answer.headers["location"].removeprefix(ROOT_URL))


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_a_blob_is_downloaded_with_the_metadata_of_the_originals_objects(queue: Queue, encoding: str) -> None:
    """taskcluster-lib-artifact-go refuses a download without it."""
    content = BLOB if encoding == "identity" else gzip.compress(BLOB)
    sent = {name.replace("content", "transfer"): value for name, value in blob_of(content).items()}
    encoded = {} if encoding == "identity" else {**blob_of(BLOB), **sent, "contentEncoding": encoding}
    target = location_of_blob(queue, content, **encoded)
    for method, body in (("GET", content), ("HEAD", b"")):
        answer = queue.send(method, target, credentials=None)
        assert (answer.status_code, answer.data) == (200, body)
        headers = answer.headers
        assert {name: value for name, value in headers.items() if name.startswith("x-amz-meta-")} == {
            "x-amz-meta-content-sha256": hashlib.sha256(BLOB).hexdigest(),
            "x-amz-meta-content-length": str(len(BLOB)),
            "x-amz-meta-transfer-sha256": hashlib.sha256(content).hexdigest(),
            "x-amz-meta-transfer-length": str(len(content)),
        }
        assert (headers["content-type"], headers["content-length"]) == ("text/plain", str(len(content)))
        assert headers.get("content-encoding", "identity") == encoding
        assert headers["content-disposition"] == "attachment"
        assert headers["content-security-policy"] == "sandbox"


def test_a_part_of_a_blob_is_downloaded(queue: Queue) -> None:
    target, end = location_of_blob(queue), len(BLOB)
    for wanted, status, body in (("4-8", 206, BLOB[4:9]), ("4-", 206, BLOB[4:]), (f"{end}-", 416, b"")):
        answer = queue.send("GET", target, credentials=None, headers={"Range": f"bytes={wanted}"})
        assert (answer.status_code, answer.data) == (status, body)
    assert answer.headers["content-range"] == f"bytes */{end}"
    etag = queue.send("GET", target, credentials=None).headers["etag"]
    again = queue.send("GET", target, credentials=None, headers={"If-None-Match": etag})
    assert (again.status_code, again.data) == (304, b"")


def test_a_download_url_uploads_nothing_and_ends(queue: Queue) -> None:
    target = location_of_blob(queue)
    refused(queue.upload(target, BLOB), 403, "AuthorizationFailed", "not signed for this upload")
    forged = target.replace("signature=", "signature=0")
    refused(queue.send("GET", forged, credentials=None), 403, "AuthorizationFailed", "for this download")
    queue.clock.advance(timedelta(minutes=45))
    refused(queue.send("GET", target, credentials=None), 403, "AuthorizationFailed", "the URL ended at")


@each_get
@pytest.mark.parametrize(
    "url",
    [
        "https://elsewhere.example.com/live.log",
        "http://h:1/a%2Fb//../c?x=[1]&y=%5B&z='|`#f?g",
        "https://elsewhere.example.com/?",
        "HTTPS://Elsewhere.example.com",
    ],
)
def test_a_reference_redirects_to_its_url_unchanged_and_uncached(
    queue: Queue, get: str, of_run: dict[str, Any], url: str
) -> None:
    task_id = queue.running()
    if url.startswith("HTTPS"):
        refused(queue.artifact(task_id, "a", "reference", url=url), 400, "InputValidationError", "body/url")
        return
    succeeded(queue.artifact(task_id, "a", "reference", url=url))
    answer = queue.call(get, taskId=task_id, name="a", **of_run)
    assert (answer.status_code, answer.headers["location"]) == (303, url)
    assert answer.headers[STORED_TYPE] == "reference"
    assert answer.headers["cache-control"] == "no-store"


@each_get
def test_an_error_artifact_is_a_424_with_its_reason_and_message(
    queue: Queue, get: str, of_run: dict[str, Any]
) -> None:
    task_id = queue.running()
    succeeded(queue.artifact(task_id, "public/a", "error"))
    answer = queue.call(get, taskId=task_id, name="public/a", credentials=None, **of_run)
    assert answer.status_code == 424
    assert answer.get_json() == {
        "reason": "file-missing-on-worker",
        "message": "there is no such file",
    }
    assert answer.headers[STORED_TYPE] == "error"


@each_get
@pytest.mark.parametrize("storage_type", ["s3", "azure"])
def test_a_redirect_to_a_signed_url_is_not_cached(
    queue: Queue, get: str, of_run: dict[str, Any], storage_type: str
) -> None:
    task_id = queue.running()
    succeeded(queue.artifact(task_id, "a", storage_type))
    answer = queue.call(get, taskId=task_id, name="a", **of_run)
    assert answer.status_code == 303
    assert "sig=" in answer.headers["location"]
    assert answer.headers[STORED_TYPE] == storage_type
    assert answer.headers["cache-control"] == "no-store"
    assert answer.get_json() == {"storageType": storage_type, "url": answer.headers["location"]}


@each_get
def test_only_names_that_begin_with_public_slash_need_no_scope(
    queue: Queue, get: str, of_run: dict[str, Any]
) -> None:
    task_id = queue.running()
    for name in ("public", "publicity/a", "Public/a", "/public/a", "./public/a", "x/../public/a"):
        succeeded(queue.artifact(task_id, name, "reference"))
        answer = queue.call(get, taskId=task_id, name=name, credentials=None, **of_run)
        refused(answer, 403, "InsufficientScopes", f"`queue:get-artifact:{name}`")


SHA256 = "0" * 64


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, '"storageType" is a required property'),
        (
            {"storageType": "gcs", "expires": "x"},
            "one of s3, azure, blob, object, reference, link, error is accepted",
        ),
        (artifact_body("s3", contentType=None), '"contentType" is a required property'),
        (artifact_body("s3", expires="tomorrow"), "body/expires"),
        (artifact_body("s3", contentType="text/plain\r\nx: y"), "body/contentType"),
        (artifact_body("s3", url="https://example.com"), "body/url"),
        (artifact_body("reference", url=None), '"url" is a required property'),
        (artifact_body("reference", url="javascript:alert(1)"), "body/url"),
        (artifact_body("error", contentType="text/plain"), "body/contentType"),
        (artifact_body("error", reason="because"), "file-missing-on-worker"),
        (artifact_body("blob", contentLength=-1), "body/contentLength"),
        (artifact_body("blob", contentEncoding="g zip"), "body/contentEncoding"),
        (artifact_body("blob", parts=[]), "body/parts"),
        (artifact_body("blob", parts=[{"sha256": SHA256, "size": 1}] * 10001), "body/parts"),
        (artifact_body("blob", putUrl="x"), "putUrl"),
        ([], "body"),
    ],
)
def test_a_body_that_does_not_match_the_schema_is_refused(queue: Queue, body: Any, said: str) -> None:
    task_id = queue.running()
    refused(create(queue, task_id, body), 400, "InputValidationError", said)
    assert queue.call("getArtifact", taskId=task_id, runId=0, name="a").status_code == 404
