"""Blob URLs of the memory storage, where Azurite differs from Azure or only our own origin is concerned.

What both storages have to show is in tests/stores/test_blobs.py. Every SAS is made by azure-storage-blob.
"""

import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
import requests
from azure.storage.blob import (
    BlobSasPermissions,
    generate_blob_sas,
)

from legacy_queue.services.artifacts.upload_slots import UploadSlots
from legacy_queue.stores import Storage
from tests.memory_server import FakeClock, memory_server

from .conftest import HALF_HOUR, KEY_BASE64, NOW

NAME = "V8mUuZ0mQ3iCPXVpQPHkqg/0/0cc175b9c0f1b6a831c399e269772661"
RUN = NAME.partition("/")[0], 0
CONTAINER = "q-artifacts"
BLOCK_BLOB = {"x-ms-blob-type": "BlockBlob"}

Answer = tuple[int, str | None]
Get = Callable[[str], Answer]
GRANTED: Answer = (200, None)
UNAUTHENTICATED: Answer = (403, "AuthenticationFailed")
DENIED: Answer = (403, "AuthorizationPermissionMismatch")


@pytest.fixture
def upload_url(storage: Storage) -> str:
    return storage.blobs.upload_url(NAME, NOW + HALF_HOUR)


@pytest.fixture
def download_url(storage: Storage) -> str:
    storage.blobs.write(NAME, [b"con", b"", b"tent"], "text/html", None)
    return storage.blobs.download_url(NAME, NOW + HALF_HOUR)


@pytest.fixture
def fields(download_url: str) -> dict[str, str]:
    """The decoded SAS of the download URL."""
    return dict(parse_qsl(urlsplit(download_url).query))


@pytest.fixture
def get(download_url: str) -> Get:
    """GET the blob with that query."""
    address = download_url.partition("?")[0]
    return lambda query: outcome(requests.get(f"{address}?{query}", timeout=30))


def outcome(answer: requests.Response) -> Answer:
    return answer.status_code, answer.headers.get("x-ms-error-code")


def put(url: str, data: bytes = b"content", **headers: str) -> Answer:
    given = {**BLOCK_BLOB, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return outcome(requests.put(url, data, headers=given, timeout=30))


def sas(storage: Storage, **changes: Any) -> str:
    """A blob SAS that is granted, but for what is changed."""
    arguments = {
        "account_name": storage.account.public_queues.account,
        "container_name": CONTAINER,
        "blob_name": NAME,
        "account_key": KEY_BASE64,
        "permission": BlobSasPermissions(read=True),
        "start": NOW - HALF_HOUR,
        "expiry": NOW + HALF_HOUR,
        "protocol": "https,http",
    }
    return generate_blob_sas(**{**arguments, **changes})


def test_a_download_url_allows_to_read_and_nothing_else(fields: dict[str, str], get: Get) -> None:
    assert fields["sp"] == "r"
    assert get(urlencode(fields)) == GRANTED


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sp", "rcw"),
        ("sr", "c"),
        *((name, "x") for name in ("si", "sip", "ses", "snapshot", "rscc", "rscd", "rsce", "rscl", "rsct")),
        ("sr", ""),
        ("rscd", ""),
    ],
)
def test_a_tampered_field_of_a_blob_sas_is_refused(
    fields: dict[str, str], get: Get, name: str, value: str
) -> None:
    assert get(urlencode({**fields, name: value})) == UNAUTHENTICATED


@pytest.mark.parametrize(
    "change",
    [
        {"container_name": f"{CONTAINER}x"},
        {"blob_name": f"{NAME}x"},
        {"content_disposition": "inline"},
        {"content_type": "text/html"},
        {"snapshot": "2006-01-02T15:04:05.0000000Z"},
        {"encryption_scope": "scope"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_blob_sas_with_another_resource_key_or_time_is_refused(
    storage: Storage, get: Get, change: dict[str, Any]
) -> None:
    assert get(sas(storage)) == GRANTED
    assert get(sas(storage, **change)) == UNAUTHENTICATED


def test_html_is_served_as_a_sandboxed_attachment(upload_url: str, download_url: str) -> None:
    page = b"<script>alert(1)</script>"
    put(upload_url, page, x_ms_blob_content_type="text/html", x_ms_blob_content_disposition="inline")
    for headers in ({}, {"range": "bytes=0-5"}):
        answer = requests.get(download_url, headers=headers, timeout=30)
        assert answer.content in (page, page[:6])
        assert answer.headers["content-disposition"] == "attachment"
        assert answer.headers["content-security-policy"] == "sandbox"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(("wanted", "answered"), [("bytes=-3", b"ent"), ("bytes=0-0", b"c")])
def test_a_range_is_answered_exactly(download_url: str, wanted: str, answered: bytes) -> None:
    answer = requests.get(download_url, headers={"range": wanted}, timeout=30)
    start = b"content".index(answered)
    assert (answer.status_code, answer.content) == (206, answered)
    assert answer.headers["content-range"] == f"bytes {start}-{start + len(answered) - 1}/7"


def test_a_range_beyond_the_end_is_refused(storage: Storage, download_url: str) -> None:
    for length, wanted in ((7, "bytes=7-"), (7, "bytes=9-10"), (7, f"bytes={10**30}-"), (0, "bytes=0-")):
        storage.blobs.write(NAME, [b"content"[:length]], "text/plain", None)
        answer = requests.get(download_url, headers={"range": wanted}, timeout=30)
        assert outcome(answer) == (416, "InvalidRange")
        assert answer.headers["content-range"] == f"bytes */{length}"


def test_an_operation_that_this_storage_lacks_is_refused(upload_url: str) -> None:
    assert put(f"{upload_url}&comp=lease") == DENIED


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (b"<BlockList><Latest>b3RoZXI=</Latest></BlockList>", (400, "InvalidBlockList")),
        (b"<BlockList><Committed>YQ==</Committed></BlockList>", (400, "InvalidBlockList")),
        (b"<BlockList><Newest>YQ==</Newest></BlockList>", (400, "InvalidXmlDocument")),
        (b"<Blocks><Latest>YQ==</Latest></Blocks>", (400, "InvalidXmlDocument")),
        (b"<BlockList><Latest>YQ==</Latest>", (400, "InvalidXmlDocument")),
        (b"", (400, "InvalidXmlDocument")),
        (b"<BlockList>" + b"<Latest>YQ==</Latest>" * 50_001 + b"</BlockList>", (400, "InvalidBlockList")),
        (
            b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/hostname">]><BlockList><Latest>&b;</Latest></BlockList>',
            (400, "InvalidXmlDocument"),
        ),
        (
            b"<!DOCTYPE BlockList><BlockList><Latest>YQ==</Latest></BlockList>",
            (400, "InvalidXmlDocument"),
        ),
        (
            b'<!DOCTYPE a [<!ENTITY b "YQ==">]><BlockList><Latest>&b;</Latest></BlockList>',
            (400, "InvalidXmlDocument"),
        ),
        ("<!DOCTYPE a><BlockList/>".encode("utf-16"), (400, "InvalidXmlDocument")),
        (b"<BlockList><Latest>&b;</Latest></BlockList>", (400, "InvalidXmlDocument")),
        (b"<BlockList><Latest><Latest>YQ==</Latest></Latest></BlockList>", (400, "InvalidXmlDocument")),
        (b"<BlockList>" + b"<Latest>" * 1_000_000, (400, "InvalidXmlDocument")),
        (b"<BlockList>" + b"<Latest></Latest>" * 400_000 + b"</BlockList>", (400, "InvalidBlockList")),
        (b"<BlockList><Latest>" + b"A" * 20_000_000 + b"</Latest></BlockList>", (413, "RequestBodyTooLarge")),
        (b"<BlockList><!-- a --><Uncommitted> YQ== </Uncommitted></BlockList>", (201, None)),
        (b"<BlockList/>", (201, None)),
    ],
    ids=[
        *("unknown block", "uncommitted block as committed", "unknown kind", "unknown root", "unclosed root"),
        *("empty", "too many blocks", "external entity", "document type", "internal entity", "UTF-16"),
        *("undeclared entity", "nested block", "deeply nested", "many empty blocks", "long id"),
        *("comment and spaces", "no blocks"),
    ],
)
def test_a_block_list_is_checked_before_it_makes_a_blob(
    storage: Storage, upload_url: str, document: bytes, expected: Answer
) -> None:
    assert put(f"{upload_url}&comp=block&blockid=YQ%3D%3D") == (201, None)
    assert put(f"{upload_url}&comp=blocklist", document) == expected
    assert (storage.blobs.properties(NAME) is not None) is (expected[0] == 201)


def test_a_blob_has_at_most_2000_blocks_that_no_list_names(upload_url: str, storage: Storage) -> None:
    container = storage.account.container
    for number in range(1999):
        container.put_block(NAME, f"MTk5{number:04}", b"block")
    block = f"{upload_url}&comp=block&blockid="
    assert put(f"{block}MTk5OQ==") == (201, None)  # 1999
    assert put(f"{block}MTk5OQ==") == (201, None)  # in place of the same
    refused = (409, "BlockCountExceedsLimit")
    assert put(f"{block}MjAwMA==") == refused
    assert put(upload_url, b"x" * 5 * 1024**2) == refused
    assert storage.blobs.properties(NAME) is None


def test_a_body_or_a_block_larger_than_azure_takes_is_refused(upload_url: str) -> None:
    assert raw_put(upload_url, 5000 * 1024 * 1024 + 1, b"").startswith(b"HTTP/1.1 413 ")
    block_url = f"{upload_url}&comp=block&blockid=YQ=="
    assert raw_put(block_url, 16 * 1024 * 1024 + 1, b"").startswith(b"HTTP/1.1 413 ")


def raw_put(url: str, length: int, body: bytes) -> bytes:
    """What is answered to a request that announces more than it sends, and ends there."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        head = f"PUT {parts.path}?{parts.query} HTTP/1.1\r\nhost: {parts.netloc}\r\nconnection: close\r\n"
        head += f"x-ms-blob-type: BlockBlob\r\ncontent-length: {length}\r\n\r\n"
        connection.sendall(head.encode() + body)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(4096), b""))


def test_an_upload_without_a_slot_gets_server_busy_and_a_download_needs_no_slot(clock: FakeClock) -> None:
    slots = UploadSlots(2)
    with memory_server(clock, slots=slots) as storage, slots.acquire(RUN):
        url = storage.blobs.upload_url(NAME, NOW + HALF_HOUR)
        for query in ("", "&comp=block&blockid=YQ==", "&comp=blocklist"):
            refusal = requests.put(url + query, b"content", headers=BLOCK_BLOB, timeout=30)
            assert (outcome(refusal), refusal.headers["retry-after"]) == ((503, "ServerBusy"), "5")
        assert put(storage.blobs.upload_url("another", NOW + HALF_HOUR)) == (201, None)
        storage.blobs.write(NAME, [b"content"], "text/html", None)
        download_url = storage.blobs.download_url(NAME, NOW + HALF_HOUR)
        assert requests.get(download_url, timeout=30).status_code == 200
    with slots.acquire(RUN):
        pass  # the slot is free again


def test_uploads_of_one_run_share_its_slots_whatever_their_urls(clock: FakeClock) -> None:
    slots = UploadSlots(2)
    with memory_server(clock, slots=slots) as storage, slots.acquire(RUN):
        same, other = (
            storage.blobs.upload_url(f"{RUN[0]}/{run_id}/a/b", NOW + HALF_HOUR) for run_id in (0, 1)
        )
        assert put(same) == (503, "ServerBusy")
        assert put(other) == (201, None)


def test_a_large_blob_is_stored_in_blocks_as_it_arrives_and_not_at_all_if_it_is_incomplete(
    storage: Storage,
) -> None:
    content = bytes(range(256)) * 50_000
    upload_url, download_url = (
        make("large", NOW + HALF_HOUR) for make in (storage.blobs.upload_url, storage.blobs.download_url)
    )
    assert raw_put(upload_url, len(content) + 1, content).startswith(b"HTTP/1.1 400 ")
    assert requests.get(download_url, timeout=30).status_code == 404
    answer = requests.put(upload_url, content, headers=BLOCK_BLOB, timeout=30)
    assert outcome(answer) == (201, None)
    assert requests.get(download_url, timeout=30).content == content
    blocks = storage.account.container.block_list("large")
    assert blocks
    assert len(blocks.committed) == 4
    again = requests.put(upload_url, content, headers={**BLOCK_BLOB, "if-none-match": "*"}, timeout=30)
    assert outcome(again) == (409, "BlobAlreadyExists")
