"""Presigned URLs, against a server that checks signatures."""

from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
import requests
from structlog.testing import capture_logs

from legacy_queue.adapters.clock import SystemClock
from legacy_queue.adapters.s3 import S3
from legacy_queue.domain.errors import ServiceUnavailable
from tests.s3_server import REGION, S3Server

NAME = "V8mUuZ0mQ3iCPXVpQPHkqg/0/0cc175b9c0f1b6a831c399e269772661"
TEXT = "text/plain; charset=utf-8"
BUCKET = "artifacts"
MINUTES = timedelta(minutes=30)
CLOCK = SystemClock()


@pytest.fixture(scope="module")
def server(s3_server: S3Server) -> S3Server:
    client = boto3.client(
        "s3",
        endpoint_url=s3_server.endpoint,
        region_name=REGION,
        aws_access_key_id=s3_server.access_key_id,
        aws_secret_access_key=s3_server.secret_access_key,
    )
    client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    client.close()
    return s3_server


@pytest.fixture
def s3(server: S3Server) -> Iterator[S3]:
    ready = S3(server.endpoint, BUCKET, REGION, server.access_key_id, server.secret_access_key, CLOCK)
    yield ready
    ready.remove(NAME)


def upload_url(s3: S3) -> str:
    return s3.upload_url(NAME, TEXT, CLOCK.now() + MINUTES)


def download_url(s3: S3) -> str:
    return s3.download_url(NAME, CLOCK.now() + MINUTES)


def put(url: str, content_type: str | None = TEXT, **headers: str) -> int:
    given = {**({"content-type": content_type} if content_type else {}), **headers}
    return requests.put(url, b"content", headers=given, timeout=30).status_code


def is_there(s3: S3) -> bool:
    status = requests.get(download_url(s3), timeout=30).status_code
    assert status in (200, 404)
    return status == 200


def test_an_object_put_at_the_upload_url_is_read_at_the_download_url(s3: S3) -> None:
    assert put(upload_url(s3)) == 200
    answer = requests.get(download_url(s3), timeout=30)
    assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, b"content", TEXT)
    part = requests.get(download_url(s3), headers={"range": "bytes=2-4"}, timeout=30)
    assert (part.status_code, part.content) == (206, b"nte")


def test_every_download_is_an_attachment(s3: S3) -> None:
    put(upload_url(s3), **{"content-disposition": "inline"})
    assert requests.get(download_url(s3), timeout=30).headers["content-disposition"] == "attachment"
    inline = download_url(s3).replace("=attachment", "=inline")
    assert requests.get(inline, timeout=30).status_code == 403


@pytest.mark.parametrize("content_type", [None, "text/html", "text/plain"])
def test_an_upload_with_an_undeclared_content_type_is_refused(s3: S3, content_type: str | None) -> None:
    assert put(upload_url(s3), content_type) == 403
    assert not is_there(s3)


def test_a_url_ends_at_its_expiry_and_nothing_but_content_type_and_host_is_signed(s3: S3) -> None:
    """Otherwise the client would have to send headers that it does not know."""
    for url, signed, more in (
        (upload_url(s3), "content-type;host", set()),
        (download_url(s3), "host", {"response-content-disposition"}),
    ):
        query = parse_qs(urlsplit(url).query)
        assert query["X-Amz-SignedHeaders"] == [signed]
        assert MINUTES.total_seconds() - 60 < int(query["X-Amz-Expires"][0]) <= MINUTES.total_seconds()
        assert query.keys() == {
            *("X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders"),
            "X-Amz-Signature",
            *more,
        }


def test_an_unknown_key_or_bucket_or_an_unreachable_store_is_unavailable(server: S3Server) -> None:
    key = (server.access_key_id, server.secret_access_key)
    broken = {
        "unknown key": S3(server.endpoint, BUCKET, REGION, "AKIAOTHER", server.secret_access_key, CLOCK),
        "unknown bucket": S3(server.endpoint, "no-bucket", REGION, *key, CLOCK),
        "away": S3("http://127.0.0.1:1", BUCKET, REGION, *key, CLOCK),
    }
    with capture_logs() as logs:
        for one in broken.values():
            with pytest.raises(ServiceUnavailable) as refused:
                one.remove(NAME)
            assert "S3CRET" not in str(refused.value)
    assert "S3CRET" not in str(logs)
    refusals = ["object-store-refused", "object-store-refused", "object-store-unreachable"]
    assert [entry["event"] for entry in logs] == refusals
