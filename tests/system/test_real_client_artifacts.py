"""Artifacts of each storage type with real clients: created, uploaded, downloaded and listed."""

import gzip
import random
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import requests
from azure.storage.blob import BlobClient

from .conftest import EACH_CLIENT
from .http_queue import Queue, in_time
from .processes import LONG
from .real_clients import CLIENTS, Npm, RealClient, Refused, refusal
from .uploads import TEXT, Run, body, claimed, curl, curl_upload, of_blob, of_parts, send

CONTENT = b'{"all": "that the task said, \xc3\xa4"}'
MIB = 1024**2
LARGE = random.Random(1).randbytes(11 * MIB)
PART = 5 * MIB  # bytes: the least that S3 took
in_memory = pytest.mark.parametrize("server", ["memory"], indirect=True)  # does not depend on the storage
one_client = pytest.mark.parametrize("client", CLIENTS[:1], indirect=True)  # does not depend on the client
NAMES = [
    "private/a b+c",
    "private/a%2Fb",
    "private/a/b",
    "private/a//b",
    "private/../a",
    "private/100%",
    "private/?q=1&r=2#s",
    "private/" + "n" * 1000,
]


@pytest.fixture
def run(queue: Queue, client: RealClient, worker_type: str) -> Run:
    return claimed(queue, client, worker_type)


@EACH_CLIENT
def test_curl_uploads_an_s3_artifact_and_the_client_downloads_it(run: Run, tmp_path: Path) -> None:
    artifact = body("s3", contentType="application/json")
    created = run.call("createArtifact", "public/a.json", artifact)
    (tmp_path / "a.json").write_bytes(CONTENT)
    upload = tmp_path / "a.json", created["putUrl"]
    assert curl_upload(*upload, "Content-Type: text/html")[0] == 403
    assert curl_upload(*upload, "Content-Type: application/json") == (200, b"")

    url = run.client.url("getArtifact", run.task_id, "0", "public/a.json")
    redirect = requests.get(url, allow_redirects=False, timeout=LONG)
    assert redirect.status_code == 303
    assert redirect.headers["x-taskcluster-artifact-storage-type"] == "s3"
    downloaded = requests.get(url, timeout=LONG)
    assert (downloaded.status_code, downloaded.content) == (200, CONTENT)
    assert downloaded.headers["content-type"] == "application/json"
    assert curl("-L", "-r", "2-4", url) == (206, CONTENT[2:5])
    # the clients follow the redirect and parse the artifact as the answer
    assert run.call("getArtifact", "public/a.json") == downloaded.json()


def by_curl(url: str, file: Path) -> None:
    assert curl_upload(file, url, "x-ms-blob-type: BlockBlob", f"Content-Type: {TEXT}")[0] == 201


def by_azure(url: str, file: Path) -> None:
    with BlobClient.from_blob_url(url, api_version="2021-12-02") as blob:
        blob.upload_blob(file.read_bytes())


def by_azure_in_blocks(url: str, file: Path) -> None:
    with BlobClient.from_blob_url(
        url, api_version="2021-12-02", max_single_put_size=4, max_block_size=4
    ) as blob:
        blob.upload_blob(file.read_bytes(), overwrite=True)


@one_client
def test_an_azure_artifact_is_uploaded_to_its_signed_url(run: Run, tmp_path: Path) -> None:
    for upload in (by_curl, by_azure, by_azure_in_blocks):
        name = f"public/{upload.__name__}"
        created = run.call("createArtifact", name, body("azure"))
        (tmp_path / "log").write_bytes(CONTENT)
        upload(created["putUrl"], tmp_path / "log")
        redirect = run.redirect(name)
        assert redirect.status_code == 303
        assert redirect.headers["x-taskcluster-artifact-storage-type"] == "azure"
        with BlobClient.from_blob_url(redirect.headers["location"], api_version="2021-12-02") as blob:
            assert blob.download_blob().readall() == CONTENT
            assert blob.download_blob(2, 3).readall() == CONTENT[2:5]


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
    assert curl("-L", "-r", "10-13", run.signed_url("public/blob")) == (206, content[10:14])
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
    assert isinstance(client, Npm)
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


@in_memory
def test_an_error_artifact_is_answered_424_with_its_reason(run: Run) -> None:
    run.call("createArtifact", "public/no", body("error"))
    with pytest.raises(Refused) as refused:
        run.call("getArtifact", "public/no")
    assert refused.value.status == 424
    assert refused.value.body == {
        "reason": "file-missing-on-worker",
        "message": "there is no such file",
    }
    assert run.redirect("public/no").headers["x-taskcluster-artifact-storage-type"] == "error"


@in_memory
def test_a_private_artifact_needs_a_scope_or_a_bewit(
    queue: Queue, client: RealClient, worker_type: str
) -> None:
    run = claimed(queue, client, worker_type, scopes=["queue:get-artifact:private/mine/*"])
    for name in ("private/mine/log", "private/other"):
        run.put(name, CONTENT, contentType="application/json")
    one, other = ((run.task_id, "0", name) for name in ("private/mine/log", "private/other"))
    narrow = client.temporary(["queue:get-artifact:private/mine/log"])
    queue.with_credentials(narrow)

    def status(url: str) -> int:
        return requests.get(url, timeout=LONG).status_code

    assert client.call("getArtifact", *one, credentials=narrow) == {"all": "that the task said, ä"}
    assert refusal(client.call, "getArtifact", *other, credentials=narrow)[0] == 403
    assert status(client.url("getArtifact", *one)) == 403
    for credentials in (None, narrow, run.credentials):
        assert status(client.signed_url("getArtifact", *one, credentials=credentials)) == 200
        latest = client.signed_url("getLatestArtifact", one[0], one[2], credentials=credentials)
        assert status(latest) == 200
    for credentials in (narrow, run.credentials):
        assert status(client.signed_url("getArtifact", *other, credentials=credentials)) == 403
    assert status(client.signed_url("getArtifact", *one, life=-1)) == 401
    moved = client.signed_url("getArtifact", *other).replace("other", "mine%2Flog")
    assert status(moved) == 401  # a bewit is for a single URL


@EACH_CLIENT
def test_similar_names_are_different_artifacts_and_are_listed_in_pages(run: Run) -> None:
    for number, name in enumerate(NAMES):
        run.put(name, b"%d" % number)
    assert [run.get(name).content for name in NAMES] == [b"%d" % number for number in range(len(NAMES))]
    [whole] = run.client.pages("listArtifacts", run.task_id, "0")
    assert sorted(artifact["name"] for artifact in whole["artifacts"]) == sorted(NAMES)
    for pages in (
        run.client.pages("listArtifacts", run.task_id, "0", limit=3),
        run.client.pages("listLatestArtifacts", run.task_id, limit=3),
    ):
        assert [artifact for page in pages for artifact in page["artifacts"]] == whole["artifacts"]
        assert [len(page["artifacts"]) for page in pages] == [3, 3, 2]
