"""Blob URLs of the memory storage: where Azurite differs from Azure, and what only our own server needs.

tests/stores/test_blobs.py shows what both storages must do, and test_shared_access.py who can use a URL.
"""

import socket
from urllib.parse import urlsplit

import pytest
import requests

from legacy_queue.services.artifacts.upload_slots import UploadSlots
from legacy_queue.stores import Storage
from tests.memory_server import FakeClock, memory_server

from .conftest import BLOB, HALF_HOUR, NOW, outcome

RUN = BLOB.partition("/")[0], 0
BLOCK_BLOB = {"x-ms-blob-type": "BlockBlob"}
Answer = tuple[int, str | None]


@pytest.fixture
def upload_url(storage: Storage) -> str:
    return storage.blobs.upload_url(BLOB, NOW + HALF_HOUR)


@pytest.fixture
def download_url(storage: Storage) -> str:
    storage.blobs.write(BLOB, [b"con", b"", b"tent"], "text/html", None)
    return storage.blobs.download_url(BLOB, NOW + HALF_HOUR)


def put(url: str, data: bytes = b"content", **headers: str) -> Answer:
    given = {**BLOCK_BLOB, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return outcome(requests.put(url, data, headers=given, timeout=30))


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


def test_a_range_request_gets_exactly_its_bytes_and_one_beyond_the_end_is_refused(
    storage: Storage, download_url: str
) -> None:
    def ranged(wanted: str) -> tuple[Answer, str]:
        answer = requests.get(download_url, headers={"range": wanted}, timeout=30)
        return outcome(answer), answer.headers["content-range"]

    for wanted, part in (("bytes=-3", "4-6"), ("bytes=0-0", "0-0")):
        assert ranged(wanted) == ((206, None), f"bytes {part}/7")
    for length, wanted in ((7, "bytes=7-"), (7, "bytes=9-10"), (7, f"bytes={10**30}-"), (0, "bytes=0-")):
        storage.blobs.write(BLOB, [b"content"[:length]], "text/plain", None)
        assert ranged(wanted) == ((416, "InvalidRange"), f"bytes */{length}")


def test_an_operation_that_this_storage_does_not_have_is_refused(upload_url: str) -> None:
    assert put(f"{upload_url}&comp=lease") == (403, "AuthorizationPermissionMismatch")


NO_BLOCK_LISTS = [
    (b"", (400, "InvalidXmlDocument")),
    (b"<BlockList><Latest>YQ==</Latest>", (400, "InvalidXmlDocument")),
    (b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/hostname">]><BlockList/>', (400, "InvalidXmlDocument")),
    (b"<BlockList><Latest>&b;</Latest></BlockList>", (400, "InvalidXmlDocument")),
    (b"<BlockList>" + b"<Latest>" * 1_000_000, (400, "InvalidXmlDocument")),
    (b"<BlockList>" + b"<Latest>YQ==</Latest>" * 50_001 + b"</BlockList>", (400, "InvalidBlockList")),
    (b"<BlockList><Latest>" + b"A" * 20_000_000, (413, "RequestBodyTooLarge")),
]


def test_an_invalid_block_list_creates_no_blob(storage: Storage, upload_url: str) -> None:
    assert put(f"{upload_url}&comp=block&blockid=YQ%3D%3D") == (201, None)
    for document, refusal in NO_BLOCK_LISTS:
        assert put(f"{upload_url}&comp=blocklist", document) == refusal, document[:80]
    assert storage.blobs.properties(BLOB) is None
    accepted = b"<BlockList><!-- a --><Uncommitted> YQ== </Uncommitted></BlockList>"
    assert put(f"{upload_url}&comp=blocklist", accepted) == (201, None)
    assert storage.blobs.properties(BLOB)


def test_a_blob_can_have_at_most_2000_blocks_that_are_not_in_a_list(
    upload_url: str, storage: Storage
) -> None:
    container = storage.account.container
    for number in range(1999):
        container.put_block(BLOB, f"MTk5{number:04}", b"block")
    block = f"{upload_url}&comp=block&blockid="
    assert put(f"{block}MTk5OQ==") == (201, None)  # the 2,000th block
    assert put(f"{block}MTk5OQ==") == (201, None)  # replaces the same block
    refused = (409, "BlockCountExceedsLimit")
    assert put(f"{block}MjAwMA==") == refused
    assert put(upload_url, b"x" * 5 * 1024**2) == refused
    assert storage.blobs.properties(BLOB) is None


def test_a_body_or_a_block_that_is_too_large_for_azure_is_refused(upload_url: str) -> None:
    assert raw_put(upload_url, 5000 * 1024 * 1024 + 1, b"").startswith(b"HTTP/1.1 413 ")
    block_url = f"{upload_url}&comp=block&blockid=YQ=="
    assert raw_put(block_url, 16 * 1024 * 1024 + 1, b"").startswith(b"HTTP/1.1 413 ")


def raw_put(url: str, length: int, body: bytes) -> bytes:
    """The answer to a request that announces a longer body than it sends, then ends."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        head = f"PUT {parts.path}?{parts.query} HTTP/1.1\r\nhost: {parts.netloc}\r\nconnection: close\r\n"
        head += f"x-ms-blob-type: BlockBlob\r\ncontent-length: {length}\r\n\r\n"
        connection.sendall(head.encode() + body)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(4096), b""))


def test_if_all_upload_slots_are_taken_an_upload_gets_server_busy_but_a_download_needs_no_slot(
    clock: FakeClock,
) -> None:
    slots = UploadSlots(2)
    with memory_server(clock, slots=slots) as storage, slots.acquire(RUN):
        url = storage.blobs.upload_url(BLOB, NOW + HALF_HOUR)
        for query in ("", "&comp=block&blockid=YQ==", "&comp=blocklist"):
            refusal = requests.put(url + query, b"content", headers=BLOCK_BLOB, timeout=30)
            assert (outcome(refusal), refusal.headers["retry-after"]) == ((503, "ServerBusy"), "5")
        same, other = (storage.blobs.upload_url(f"{RUN[0]}/{run}/a/b", NOW + HALF_HOUR) for run in (0, 1))
        assert put(same) == (503, "ServerBusy"), "the slots are counted for the run, not for a URL"
        assert put(other) == (201, None)
        storage.blobs.write(BLOB, [b"content"], "text/html", None)
        download_url = storage.blobs.download_url(BLOB, NOW + HALF_HOUR)
        assert requests.get(download_url, timeout=30).status_code == 200
    with slots.acquire(RUN):
        pass  # the slot is free again


def test_a_large_blob_is_stored_block_by_block_as_it_arrives_and_only_if_it_is_complete(
    storage: Storage, upload_url: str
) -> None:
    content = bytes(range(256)) * 50_000
    download_url = storage.blobs.download_url(BLOB, NOW + HALF_HOUR)
    assert raw_put(upload_url, len(content) + 1, content).startswith(b"HTTP/1.1 400 ")
    assert requests.get(download_url, timeout=30).status_code == 404
    assert put(upload_url, content) == (201, None)
    assert requests.get(download_url, timeout=30).content == content
    blocks = storage.account.container.block_list(BLOB)
    assert blocks
    assert len(blocks.committed) == 4
    assert put(upload_url, content, if_none_match="*") == (409, "BlobAlreadyExists")
