"""The signed URLs of artifacts at real servers, used by curl, requests and azure-storage-blob."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
import requests
from azure.storage.blob import BlobClient, ContentSettings

from tests.s3_server import REGION, S3Server

from .http_queue import Json, Queue, definition, in_time
from .processes import LONG, Server, serve

MIB = 1024 * 1024
CONTENT = bytes(range(256)) * (3 * MIB // 256)  # more than the server takes as a body of its own endpoints
NAME = "public/build/target.bin"


def running_task(queue: Queue, worker_type: str) -> str:
    task_id = queue.create(definition(worker_type))
    assert queue.claim_by_name(task_id, 0).status_code == 200
    return task_id


def create(queue: Queue, task_id: str, storage_type: str, content_type: str) -> str:
    """The putUrl of a new artifact."""
    body = {"storageType": storage_type, "contentType": content_type, "expires": in_time(minutes=50)}
    answer = queue.ask("POST", f"/task/{task_id}/runs/0/artifacts/{NAME}", body)
    _keep_secret(queue.server, answer["putUrl"])
    return str(answer["putUrl"])


def location(queue: Queue, task_id: str) -> str:
    """Where getArtifact sends a client."""
    path = f"/task/{task_id}/runs/0/artifacts/{NAME}"
    answer = requests.get(queue.server.base_url + path, allow_redirects=False, timeout=LONG)
    assert answer.status_code == 303
    _keep_secret(queue.server, answer.headers["location"])
    return answer.headers["location"]


def _keep_secret(server: Server, url: str) -> None:
    query: Json = parse_qs(urlsplit(url).query)
    for name in ("sig", "signature", "X-Amz-Signature"):
        server.secrets.update(query.get(name, ()))


def curl(*arguments: Any) -> bytes:
    command = ["curl", "--silent", "--show-error", "--fail", "--max-time", "60", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, timeout=LONG + 60).stdout


def test_azures_own_client_uploads_and_downloads(queue: Queue, worker_type: str) -> None:
    task_id = running_task(queue, worker_type)
    put_url = create(queue, task_id, "azure", "text/html")
    for sizes in ({}, {"max_single_put_size": MIB, "max_block_size": 2 * MIB}):
        with BlobClient.from_blob_url(put_url, **sizes) as client:  # type: ignore[arg-type]
            client.upload_blob(
                CONTENT, overwrite=True, content_settings=ContentSettings(content_type="text/html")
            )
        with BlobClient.from_blob_url(location(queue, task_id), max_single_get_size=MIB) as client:
            assert client.download_blob().readall() == CONTENT


def test_curl_uploads_and_downloads(queue: Queue, worker_type: str, tmp_path: Path) -> None:
    task_id = running_task(queue, worker_type)
    file = tmp_path / "file"
    file.write_bytes(CONTENT)
    put_url = create(queue, task_id, "azure", "application/octet-stream")
    curl("--upload-file", file, "--header", "x-ms-blob-type: BlockBlob", put_url)
    artifact = f"{queue.server.base_url}/task/{task_id}/runs/0/artifacts/{NAME}"
    assert curl("--location", artifact) == CONTENT
    assert curl("--location", "--range", "1000000-1000009", artifact) == CONTENT[1000000:1000010]
    location(queue, task_id)


def test_an_upload_with_a_bad_signature_is_refused_before_its_body_is_read(
    queue: Queue, worker_type: str
) -> None:
    task_id = running_task(queue, worker_type)
    put_url = create(queue, task_id, "azure", "application/octet-stream")
    headers = {"x-ms-blob-type": "BlockBlob"}
    answer = requests.put(put_url.replace("sp=cw", "sp=r"), b"small", headers=headers, timeout=LONG)
    assert answer.status_code == 403
    with pytest.raises(requests.HTTPError):
        requests.get(location(queue, task_id), timeout=LONG).raise_for_status()


@pytest.fixture
def with_s3(tmp_path: Path, s3_server: S3Server) -> Iterator[Server]:
    """A server that has the S3 server for its object store."""
    bucket = "system-artifacts"
    key = {
        "aws_access_key_id": s3_server.access_key_id,
        "aws_secret_access_key": s3_server.secret_access_key,
    }
    client = boto3.client("s3", endpoint_url=s3_server.endpoint, region_name=REGION, **key)
    client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    client.close()
    options = ("--storage", "memory", "--s3-endpoint", s3_server.endpoint, "--s3-bucket", bucket)
    more = ("--s3-region", REGION, "--s3-access-key-id", s3_server.access_key_id)
    secret = {"LEGACY_QUEUE_S3_SECRET_ACCESS_KEY": s3_server.secret_access_key}
    with serve(tmp_path, *options, *more, **secret) as server:
        server.secrets.add(s3_server.secret_access_key)
        yield server


def test_s3_artifacts_go_to_the_object_store_where_there_is_one(
    with_s3: Server, s3_server: S3Server, worker_type: str
) -> None:
    queue = Queue(with_s3)
    task_id = running_task(queue, worker_type)
    put_url = create(queue, task_id, "s3", "text/plain")
    assert put_url.startswith(f"{s3_server.endpoint}/system-artifacts/{task_id}/0/")
    for content_type, status in (("text/html", 403), ("text/plain", 200)):
        headers = {"content-type": content_type}
        assert requests.put(put_url, CONTENT, headers=headers, timeout=LONG).status_code == status
    answer = requests.get(location(queue, task_id), timeout=LONG)
    assert (answer.content, answer.headers["content-type"]) == (CONTENT, "text/plain")
    assert answer.url.startswith(s3_server.endpoint)
