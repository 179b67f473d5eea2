"""Artifacts of each storage type with real clients: created, uploaded, downloaded and listed."""

import gzip
import random
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import requests

from .conftest import EACH_CLIENT
from .http_queue import Queue, in_time
from .processes import LONG
from .real_clients import RealClient
from .uploads import TEXT, Run, claimed, of_blob, of_parts, send

pytestmark = pytest.mark.processes

CONTENT = b'{"all": "that the task said, \xc3\xa4"}'
MIB = 1024**2
LARGE = random.Random(1).randbytes(11 * MIB)
PART = 5 * MIB  # bytes: the least that S3 took


@pytest.fixture
def run(queue: Queue, client: RealClient, worker_type: str) -> Run:
    return claimed(queue, client, worker_type)


@EACH_CLIENT
def test_a_client_downloads_an_s3_artifact(run: Run) -> None:
    run.put("public/a.json", CONTENT, contentType="application/json")
    url = run.client.url("getArtifact", run.task_id, "0", "public/a.json")
    redirect = requests.get(url, allow_redirects=False, timeout=LONG)
    assert redirect.status_code == 303
    assert redirect.headers["x-taskcluster-artifact-storage-type"] == "s3"
    downloaded = requests.get(url, timeout=LONG)
    assert (downloaded.status_code, downloaded.content) == (200, CONTENT)
    assert downloaded.headers["content-type"] == "application/json"
    # the clients follow the redirect and parse the artifact as the answer
    assert run.call("getArtifact", "public/a.json") == downloaded.json()


@EACH_CLIENT
@pytest.mark.parametrize("parts", [(CONTENT,), (LARGE[:PART], LARGE[PART:])], ids=["single", "multipart"])
def test_a_blob_is_available_after_it_is_completed(run: Run, parts: tuple[bytes, ...]) -> None:
    content = b"".join(parts)
    artifact = of_blob(*parts) if len(parts) == 1 else of_parts(parts)
    created = run.call("createArtifact", "public/blob", artifact)
    assert run.redirect("public/blob").status_code == 404
    assert run.refusal("completeArtifact", "public/blob", {"etags": ["x"] * len(parts)})[0] == 400
    assert run.refusal("reportCompleted") == (409, "RequestConflict")
    forged = send(created["requests"][-1], bytes(len(parts[-1])))
    assert forged.status_code == 400  # another SHA-256

    etags = [send(*upload).headers["etag"] for upload in zip(created["requests"], parts, strict=True)]
    for _ in range(2):
        assert run.call("completeArtifact", "public/blob", {"etags": etags}) is None
    redirect = run.redirect("public/blob")
    assert (redirect.status_code, redirect.headers["x-taskcluster-location-content-length"]) == (
        303,
        str(len(content)),
    )
    downloaded = run.get("public/blob")
    assert downloaded.content == content
    assert downloaded.headers["x-amz-meta-content-length"] == str(len(content))
    assert downloaded.headers["x-amz-meta-content-sha256"] == sha256(content).hexdigest()
    assert run.call("reportCompleted")["status"]["state"] == "completed"


# only the JavaScript clients have it
@pytest.mark.parametrize(
    ("server", "client"), [("embedded", "npm-4.1.0"), ("azurite", "npm-11.0.0")], indirect=True
)
@pytest.mark.parametrize(
    "file", [{}, {"compression": "gzip"}, {"partSize": PART}], ids=["whole", "gzip", "multipart"]
)
def test_the_upload_client_of_that_time_uploads_a_blob(
    queue: Queue, client: RealClient, worker_type: str, tmp_path: Path, file: dict[str, Any]
) -> None:
    run, content = claimed(queue, client, worker_type), LARGE if "partSize" in file else CONTENT * 1000
    (tmp_path / "file").write_bytes(content)
    settings = {"contentType": TEXT, "expires": in_time(hours=1)}
    named = {"name": str(tmp_path / "file"), **file}
    etags = client.upload(run.task_id, "0", "public/file", settings, named)
    assert len(etags) == (3 if "partSize" in file else 1)

    url = client.url("getLatestArtifact", run.task_id, "public/file")
    downloaded = requests.get(url, headers={"Accept-Encoding": "identity"}, stream=True, timeout=LONG)
    assert downloaded.headers.get("content-encoding") == file.get("compression")
    raw = downloaded.raw.read()
    assert (gzip.decompress(raw) if "compression" in file else raw) == content
    headers = downloaded.history[0].headers
    assert headers["x-taskcluster-location-content-length"] == str(len(content))
    assert headers["x-taskcluster-location-transfer-length"] == str(len(raw))
    assert headers["x-taskcluster-location-content-encoding"] == file.get("compression", "identity")
