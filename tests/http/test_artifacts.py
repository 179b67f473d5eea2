"""Artifacts over HTTP: their names, redirects, downloads, and refused bodies.

tests/domain and tests/services show which artifacts there are and how they can change.
"""

import gzip
import hashlib
from datetime import timedelta
from itertools import pairwise, product
from typing import Any
from urllib.parse import quote

import pytest

from tests.http.calls import (
    BLOB,
    ROOT,
    ROOT_URL,
    TASK_ID,
    Queue,
    artifact_body,
    blob_of,
    claimed,
    refused,
    succeeded,
    temporary,
)

GETS: dict[str, dict[str, Any]] = {"getArtifact": {"runId": 0}, "getLatestArtifact": {}}
STORED_TYPE = "x-taskcluster-artifact-storage-type"


def location_of_blob(queue: Queue, content: bytes = BLOB, **encoded: Any) -> str:
    """The target of the redirect to a blob, on this server."""
    task_id = queue.running(TASK_ID)
    created = succeeded(queue.artifact(task_id, "public/a", "blob", **{**blob_of(content), **encoded}))
    (upload,) = created.get_json()["requests"]
    headers = {name.replace("-", "_"): text for name, text in upload["headers"].items() if "encod" in name}
    etag = succeeded(queue.upload(upload["url"], content, **headers)).headers["etag"]
    completed = {"etags": [etag]}
    succeeded(queue.call("completeArtifact", completed, taskId=task_id, runId=0, name="public/a"))
    answer = queue.call("getArtifact", taskId=task_id, runId=0, name="public/a", credentials=None)
    return str(answer.headers["location"].removeprefix(ROOT_URL))


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_a_downloaded_blob_has_the_metadata_headers_that_the_original_queue_gave_its_objects(
    queue: Queue, encoding: str
) -> None:
    """taskcluster-lib-artifact-go refuses a download without these headers."""
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


def test_a_download_url_expires_and_cannot_be_used_to_upload(queue: Queue) -> None:
    target = location_of_blob(queue)
    refused(queue.upload(target, BLOB), 403, "AuthorizationFailed", "not signed for this upload")
    forged = target.replace("signature=", "signature=0")
    refused(queue.send("GET", forged, credentials=None), 403, "AuthorizationFailed", "for this download")
    queue.clock.advance(timedelta(minutes=45))
    refused(queue.send("GET", target, credentials=None), 403, "AuthorizationFailed", "the URL expired at")


def test_the_redirect_to_an_artifact_has_its_url_and_is_not_cached(queue: Queue) -> None:
    """The URL of a reference is exactly the one that was sent."""
    task_id = queue.running()
    for number, (kind, url) in enumerate(
        [
            ("reference", "https://elsewhere.example.com/live.log"),
            ("reference", "http://h:1/a%2Fb//../c?x=[1]&y=%5B&z='|`#f?g"),
            ("reference", "https://elsewhere.example.com/?"),
            ("s3", None),
            ("azure", None),
        ]
    ):
        changes: dict[str, Any] = {"url": url} if url else {}
        succeeded(queue.artifact(task_id, f"public/{number}", kind, **changes))
        for get, of_run in GETS.items():
            answer = queue.call(get, taskId=task_id, name=f"public/{number}", **of_run)
            location = answer.headers["location"]
            assert answer.status_code == 303
            assert location == url if url else "sig=" in location
            assert answer.headers[STORED_TYPE] == kind
            assert answer.headers["cache-control"] == "no-store"
            assert answer.get_json() == {"storageType": kind, "url": location}


def test_an_error_artifact_is_a_424_with_its_reason_and_message(queue: Queue) -> None:
    task_id = queue.running()
    succeeded(queue.artifact(task_id, "public/a", "error"))
    for get, of_run in GETS.items():
        answer = queue.call(get, taskId=task_id, name="public/a", credentials=None, **of_run)
        assert (answer.status_code, answer.headers[STORED_TYPE]) == (424, "error")
        said = {name: artifact_body("error")[name] for name in ("reason", "message")}
        assert answer.get_json() == said


def links(queue: Queue, task_id: str, *names: str) -> None:
    """Each name but the last is a link to the next name."""
    for name, target in pairwise(names):
        succeeded(queue.artifact(task_id, name, "link", artifact=target))


def test_a_chain_of_more_than_30_links_and_a_circle_of_links_are_refused(queue: Queue) -> None:
    task_id = queue.running()
    names = [f"public/{number}" for number in range(32)]
    links(queue, task_id, *names)
    succeeded(queue.artifact(task_id, names[-1], "reference"))
    links(queue, task_id, "a", "b", "a")
    succeeded(queue.call("artifact", taskId=task_id, runId=0, name="public/1"))
    for name in ("public/0", "a"):
        answer = queue.call("artifact", taskId=task_id, runId=0, name=name)
        refused(answer, 400, "InputError", f"{name!r} leads through more than 30 links, or in a circle")


@pytest.mark.parametrize("call", ["getArtifact", "artifact"])
def test_a_public_link_does_not_open_a_private_target(queue: Queue, call: str) -> None:
    task_id = queue.running()
    links(queue, task_id, "public/a", "private/b", "private/c")
    succeeded(queue.artifact(task_id, "private/c", "reference"))
    asked: dict[str, Any] = {"taskId": task_id, "name": "public/a", "runId": 0}
    refused(queue.call(call, credentials=None, **asked), 403, "InsufficientScopes", "private/b")
    some = temporary(ROOT, ["queue:get-artifact:private/b"])
    refused(queue.call(call, credentials=some, **asked), 403, "InsufficientScopes", "private/c")
    succeeded(queue.call(call, credentials=temporary(ROOT, ["queue:get-artifact:private/*"]), **asked))


REFUSED: list[tuple[Any, str]] = [
    ([], "body"),
    ({"storageType": "gcs"}, "expected one of s3, azure, blob, object, reference, link, error"),
    (artifact_body("s3", contentType=None), "the property contentType is missing"),
    (artifact_body("s3", expires="tomorrow"), "body/expires"),
    (artifact_body("s3", contentType="text/plain\r\nx: y"), "body/contentType"),
    (artifact_body("reference", url="javascript:alert(1)"), "body/url"),
    (artifact_body("reference", url="HTTPS://Elsewhere.example.com"), "body/url"),
    (artifact_body("error", reason="because"), "file-missing-on-worker"),
    (artifact_body("blob", contentLength=-1), "body/contentLength"),
    (artifact_body("blob", contentEncoding="g zip"), "body/contentEncoding"),
    (artifact_body("blob", parts=[{"sha256": "0" * 64, "size": 1}] * 10001), "body/parts"),
]


def test_a_body_that_does_not_match_the_schema_is_refused(queue: Queue) -> None:
    where: dict[str, Any] = {"taskId": queue.running(), "runId": 0, "name": "a"}
    for body, said in REFUSED:
        refused(queue.call("createArtifact", body, **where), 400, "InputValidationError", said)
    assert queue.call("getArtifact", **where).status_code == 404


# --- the object service, called with credentials that the queue issues. tests/services/test_objects.py has
# its rules


def test_object_credentials_are_valid_for_one_object_and_only_for_upload_or_download(queue: Queue) -> None:
    where: dict[str, Any] = {"taskId": queue.running(), "runId": 0, "name": "private/a b"}
    uploading = claimed(queue.artifact(where["taskId"], "private/a b", "object"))
    created = queue.uploaded_object(where["taskId"], "private/a b")
    name, other = created["name"], created["name"] + "x"
    finish = {key: created[key] for key in ("projectId", "uploadId")}
    succeeded(queue.object("POST", "finish-upload", name, finish, uploading))
    succeeded(queue.call("finishArtifact", {"uploadId": finish["uploadId"]}, **where))
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
    for call, status in (("metadata", 200), ("download", 303)):
        assert queue.object("GET", call, name, None, downloading).status_code == status


# --- any name is allowed and none has a meaning: docs/explanation/legacy-clients.md#requests

NAMES = [
    "public/logs/live.log", ".", "..", "../../../etc/passwd", "public/../private", "/", "//", "/a", "a/",
    "a//b", "a/b", "a b", " ", "a+b", "<b>'\"&|\\^`{}[]~!$*(),;:@=", "runs/0/artifacts/x", "x/claim",
    "a" * 1024, "b" * 1023 + "/", "/" * 1024,
]  # fmt: skip
INVALID = ["", "\x00", "a\nb", "a\x7f", "\u00e4", "\u2028", "a" * 1025]


def test_a_slash_in_an_artifact_name_can_be_encoded_or_not(queue: Queue) -> None:
    task_id = queue.running()
    for number, name in enumerate(NAMES):
        url = f"https://elsewhere.example.com/{number}"
        succeeded(queue.artifact(task_id, name, "reference", url=url))
    for number, name in enumerate(NAMES):
        for written in (quote(name, safe="/"), quote(name, safe=""), quote(name, safe="/~!$&'()*+,=:@")):
            for of in ("/runs/0", ""):
                answer = queue.send("GET", f"/v1/task/{task_id}{of}/artifacts/{written}")
                assert answer.status_code == 303, written
                assert answer.headers["location"].endswith(f"/{number}"), (
                    "the redirect leads to another artifact"
                )


def test_an_invalid_artifact_name_is_refused(queue: Queue) -> None:
    task_id = queue.running()
    for name, (get, of_run) in product(INVALID, GETS.items()):
        answer = queue.call(get, taskId=task_id, name=name, **of_run)
        refused(answer, 400, "InvalidRequestArguments", "name is")
        refused(queue.artifact(task_id, name), 400, "InvalidRequestArguments", "name is")


def test_a_hawk_header_is_valid_for_only_one_encoding_of_an_artifact_name(queue: Queue) -> None:
    task_id = queue.running()
    for name in ("a/b", "a%2Fb"):
        succeeded(queue.artifact(task_id, name, "reference"))
    of_run = f"/v1/task/{task_id}/runs/0/artifacts/"
    signed = f"{ROOT_URL}{of_run}a%2Fb"
    assert queue.send("GET", f"{of_run}a%2Fb", signed_url=signed).status_code == 303
    for other in ("a/b", "a%2fb", "a%252Fb", "%61%2Fb"):
        refused(queue.send("GET", of_run + other, signed_url=signed), 401, "AuthenticationFailed")
