"""Artifacts of the storage type s3 at a server with an object store."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
import requests

from tests.s3_server import REGION, S3Server

from .http_queue import Queue, definition
from .processes import LONG, Server, serve
from .uploads import body

CONTENT = bytes(range(256)) * 4096
BUCKET = "system-artifacts"


@pytest.fixture
def with_s3(tmp_path: Path, s3_server: S3Server) -> Iterator[Server]:
    """A server that has the S3 server for its object store."""
    key = {
        "aws_access_key_id": s3_server.access_key_id,
        "aws_secret_access_key": s3_server.secret_access_key,
    }
    client: Any = boto3.client("s3", endpoint_url=s3_server.endpoint, region_name=REGION, **key)
    client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    client.close()
    options = ("--storage", "memory", "--s3-endpoint", s3_server.endpoint, "--s3-bucket", BUCKET)
    access = ("--s3-region", REGION, "--s3-access-key-id", s3_server.access_key_id)
    env = {"LEGACY_QUEUE_S3_SECRET_ACCESS_KEY": s3_server.secret_access_key}
    with serve(tmp_path, *options, *access, env=env) as server:
        server.secrets.add(s3_server.secret_access_key)
        yield server


def test_an_s3_artifact_is_uploaded_to_and_downloaded_from_the_object_store(
    with_s3: Server, s3_server: S3Server, worker_type: str
) -> None:
    queue = Queue(with_s3)
    task_id = queue.create(definition(worker_type))
    assert queue.claim_by_name(task_id, 0).status_code == 200
    path = f"/task/{task_id}/runs/0/artifacts/public/build/target.bin"
    put_url = str(queue.ask("POST", path, body("s3", contentType="text/plain"))["putUrl"])
    assert put_url.startswith(f"{s3_server.endpoint}/{BUCKET}/{task_id}/0/")
    for content_type, status in (("text/html", 403), ("text/plain", 200)):
        headers = {"content-type": content_type}
        assert requests.put(put_url, CONTENT, headers=headers, timeout=LONG).status_code == status
    answer = requests.get(with_s3.base_url + path, timeout=LONG)
    assert [redirect.status_code for redirect in answer.history] == [303]
    assert (answer.content, answer.headers["content-type"]) == (CONTENT, "text/plain")
    assert answer.url.startswith(s3_server.endpoint)
    for url in (put_url, answer.url):
        with_s3.secrets.update(parse_qs(urlsplit(url).query)["X-Amz-Signature"])
