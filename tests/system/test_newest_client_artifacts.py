"""Artifacts with the newest clients: their upload of objects, and their download of each storage type."""

import random
from collections.abc import Callable

import pytest
import requests

from .conftest import EACH_NEWEST_CLIENT
from .http_queue import Queue
from .processes import LONG, Server
from .real_clients import RealClient
from .uploads import TEXT, Run, body, claimed, of_blob, send

pytestmark = pytest.mark.processes

CONTENT = b"all that the task said\n"
LARGE = random.Random(2).randbytes(5 * 1024**2)  # larger than an inline upload, and than a block


@pytest.fixture
def run(queue: Queue, clients: Callable[[str, Server], RealClient], server: Server, worker_type: str) -> Run:
    """A run that an older client has claimed."""
    return claimed(queue, clients("pypi-3.0.2", server), worker_type)


@EACH_NEWEST_CLIENT
@pytest.mark.parametrize("data", [b"", CONTENT, LARGE], ids=["empty", "inline", "put"])
def test_the_clients_own_helpers_upload_and_download_an_object(
    run: Run, client: RealClient, data: bytes
) -> None:
    artifact = body("object", contentType="application/octet-stream")
    client.put_object(run.task_id, "0", "public/an object", artifact, data)
    for run_id in ("0", None):
        assert client.download(run.task_id, run_id, "public/an object") == (data, "application/octet-stream")
    assert run.get("public/an object").content == data
    assert run.call("reportCompleted")["status"]["state"] == "completed"


@EACH_NEWEST_CLIENT
def test_the_newest_clients_download_the_artifacts_of_a_legacy_worker_unchanged(
    run: Run, client: RealClient
) -> None:
    run.put("public/s3", CONTENT)
    put_url = run.call("createArtifact", "public/azure", body("azure"))["putUrl"]
    headers = {"Content-Type": TEXT, "x-ms-blob-type": "BlockBlob"}
    assert requests.put(put_url, CONTENT, headers=headers, timeout=LONG).status_code == 201
    created = run.call("createArtifact", "public/blob", of_blob(CONTENT))
    etag = send(created["requests"][0], CONTENT).headers["etag"]
    run.call("completeArtifact", "public/blob", {"etags": [etag]})
    s3_url = run.client.url("getArtifact", run.task_id, "0", "public/s3")
    run.call("createArtifact", "public/reference", body("reference", url=s3_url))
    run.call("createArtifact", "public/link", body("link", artifact="public/blob"))
    run.call("createArtifact", "public/error", body("error"))
    downloaded = {
        name: client.download(run.task_id, "0", f"public/{name}")
        for name in ("s3", "azure", "blob", "reference", "link")
    }
    assert {name: content for name, (content, _) in downloaded.items()} == dict.fromkeys(downloaded, CONTENT)
    assert all(TEXT.startswith(content_type.partition(";")[0]) for _, content_type in downloaded.values())
    assert client.download_error(run.task_id, "0", "public/error") == "file-missing-on-worker"
