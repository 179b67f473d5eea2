"""Bytes of artifacts. What the signed URLs allow is shown with plain requests and Azure's own client."""

import gzip
import itertools
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobBlock, BlobClient, ContentSettings

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.stores import Blobs, Storage
from tests.memory_server import kept

from .conftest import ON_EACH_STORAGE, Backend

MIB = 1024 * 1024
NAME = "task/0/digest"
TEXT = "text/plain; charset=utf-8"
HALF_HOUR = timedelta(minutes=30)
SECOND = timedelta(seconds=1)
# around what is sent in one piece
SIZES = [0, 1, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 9 * MIB]


@pytest.fixture
def blobs(storage: Storage) -> Blobs:
    return storage.blobs


@pytest.fixture
def upload_url(backend: Backend) -> str:
    return backend.storage.blobs.upload_url(NAME, backend.clock.now() + HALF_HOUR)


@pytest.fixture
def download_url(backend: Backend) -> str:
    return backend.storage.blobs.download_url(NAME, backend.clock.now() + HALF_HOUR)


def content(size: int, seed: bytes = b"") -> bytes:
    """Bytes in which no piece is like another."""
    return random.Random(seed).randbytes(size)


def chunked(data: bytes, size: int = 100_000) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def write(blobs: Blobs, data: bytes, name: str = NAME) -> None:
    blobs.write(name, chunked(data), TEXT, None)


def read(blobs: Blobs, name: str = NAME) -> bytes:
    return b"".join(blobs.read(name))


def breaking(data: bytes) -> Iterator[bytes]:
    yield from chunked(data)
    raise ConnectionResetError("the client went away")


def put(url: str, data: bytes = b"content", **headers: str) -> requests.Response:
    given = {
        "x-ms-blob-type": "BlockBlob",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    return requests.put(url, data, headers=given, timeout=30)


@pytest.mark.parametrize("size", SIZES)
def test_a_written_blob_is_read_unchanged(storage: Storage, other: Storage, size: int) -> None:
    data = content(size)
    write(storage.blobs, data)
    assert kept(other.blobs, NAME) == (size, TEXT, None)
    assert read(other.blobs) == data


def test_a_blob_that_was_never_written_is_not_there(blobs: Blobs) -> None:
    assert blobs.properties(NAME) is None
    with pytest.raises(KeyError):
        blobs.read(NAME)
    with pytest.raises(KeyError):
        blobs.join_parts(NAME, 1, TEXT, None)


@pytest.mark.parametrize("size", [0, 100_001, 9 * MIB])
def test_chunks_that_break_off_store_nothing(blobs: Blobs, size: int) -> None:
    with pytest.raises(ConnectionResetError):
        blobs.write(NAME, breaking(content(size)), TEXT, None)
    with pytest.raises(ConnectionResetError):
        blobs.write_part(NAME, 1, breaking(content(size)))
    assert blobs.properties(NAME) is None
    with pytest.raises(KeyError):
        blobs.join_parts(NAME, 1, TEXT, None)
    write(blobs, b"before")
    with pytest.raises(ConnectionResetError):
        blobs.write(NAME, breaking(content(size)), "other", "gzip")
    assert kept(blobs, NAME) == (6, TEXT, None)
    assert read(blobs) == b"before"


def test_a_write_replaces_the_earlier_blob(blobs: Blobs) -> None:
    for size in (9 * MIB, 5, 0, 9 * MIB + 1):
        write(blobs, content(size))
        assert len(read(blobs)) == size


@pytest.mark.parametrize("size", [100, 9 * MIB])
def test_writes_at_the_same_time_are_never_mixed(storage: Storage, other: Storage, size: int) -> None:
    data = [content(size, b"%d." % number) for number in range(6)]

    def write_one(blobs: Blobs, one: bytes) -> None:
        with suppress(ServiceUnavailable):
            write(blobs, one)

    with ThreadPoolExecutor(6) as threads:
        stores = itertools.cycle([storage.blobs, other.blobs])
        for written in [threads.submit(write_one, next(stores), one) for one in data]:
            written.result()
    assert read(storage.blobs) in data


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)], ids=str)
def test_parts_are_joined_in_the_order_of_their_numbers(
    storage: Storage, other: Storage, order: tuple[int, ...]
) -> None:
    parts = {number: content(5 * MIB + number, b"%d." % number) for number in order}
    for blobs, number in zip((storage.blobs, other.blobs, storage.blobs), order, strict=True):
        assert blobs.properties(NAME) is None
        blobs.write_part(NAME, number, chunked(parts[number]))
    for blobs in (storage.blobs, other.blobs):  # by a process that died, and again
        blobs.join_parts(NAME, 3, "application/gzip", "gzip")
        assert kept(blobs, NAME) == (15 * MIB + 6, "application/gzip", "gzip")
    assert read(storage.blobs) == b"".join(parts[number] for number in (1, 2, 3))


def test_joining_again_does_not_disturb_a_reader(storage: Storage, other: Storage) -> None:
    parts = [content(9 * MIB, b"%d." % number) for number in (1, 2)]
    for number, part in enumerate(parts, 1):
        storage.blobs.write_part(NAME, number, [part])
    storage.blobs.join_parts(NAME, 2, TEXT, None)
    chunks = storage.blobs.read(NAME)
    begun = next(chunks)
    other.blobs.join_parts(NAME, 2, TEXT, None)
    assert begun + b"".join(chunks) == b"".join(parts)


@pytest.mark.parametrize("meanwhile", ["written", "removed"])
def test_a_read_never_mixes_two_versions(storage: Storage, other: Storage, meanwhile: str) -> None:
    data = content(9 * MIB)
    write(storage.blobs, data)
    chunks = storage.blobs.read(NAME)
    begun = next(chunks)
    if meanwhile == "written":
        write(other.blobs, content(9 * MIB, b"other"))
    else:
        other.blobs.remove(NAME)
    with suppress(ServiceUnavailable):
        assert begun + b"".join(chunks) == data


def test_joining_with_a_missing_part_is_an_error(blobs: Blobs) -> None:
    for number in (1, 3):
        blobs.write_part(NAME, number, [b"part"])
    for count in (2, 3, 4):
        with pytest.raises(KeyError):
            blobs.join_parts(NAME, count, TEXT, None)
    assert blobs.properties(NAME) is None


@pytest.mark.parametrize("size", [10, 9 * MIB])
def test_a_part_that_is_written_again_replaces_the_first(
    backend: Backend, storage: Storage, other: Storage, size: int
) -> None:
    storage.blobs.write_part(NAME, 1, [content(9 * MIB, b"first")])
    backend.clock.advance(SECOND)
    other.blobs.write_part(NAME, 1, chunked(content(size, b"second")))
    with pytest.raises(ConnectionResetError):
        storage.blobs.write_part(NAME, 1, breaking(content(9 * MIB, b"third")))
    storage.blobs.join_parts(NAME, 1, TEXT, None)
    assert read(other.blobs) == content(size, b"second")


def test_hundreds_of_parts_are_joined_in_the_order_of_their_numbers(blobs: Blobs) -> None:
    for number in range(1, 301):
        blobs.write_part(NAME, number, [b"%d," % number])
    blobs.join_parts(NAME, 300, TEXT, None)
    assert read(blobs) == b"".join(b"%d," % number for number in range(1, 301))


def test_removing_a_blob_again_is_harmless(storage: Storage, other: Storage) -> None:
    write(storage.blobs, b"content")
    write(storage.blobs, b"other", f"{NAME}x")
    for blobs in (storage.blobs, other.blobs):
        blobs.remove(NAME)
        assert blobs.properties(NAME) is None
    assert read(storage.blobs, f"{NAME}x") == b"other"


def test_encoded_content_is_read_as_it_is_stored(blobs: Blobs, download_url: str) -> None:
    text = content(6 * MIB).hex().encode()
    encoded = gzip.compress(text)
    blobs.write(NAME, chunked(encoded), TEXT, "gzip")
    assert read(blobs) == encoded
    answer = requests.get(download_url, timeout=30)
    assert (answer.headers["content-encoding"], answer.headers["content-type"]) == ("gzip", TEXT)
    assert answer.headers["content-length"] == str(len(encoded))
    assert answer.content == text


@ON_EACH_STORAGE
def test_the_upload_url_takes_one_plain_put(blobs: Blobs, upload_url: str) -> None:
    for data in (content(MIB + 1), b""):
        answer = put(upload_url, data, x_ms_blob_content_type=TEXT, x_ms_blob_content_encoding="gzip")
        assert answer.status_code == 201
        assert answer.headers["etag"]
        assert kept(blobs, NAME) == (len(data), TEXT, "gzip")
        assert read(blobs) == data


@ON_EACH_STORAGE
def test_the_content_type_of_the_put_is_that_of_the_blob(blobs: Blobs, upload_url: str) -> None:
    assert put(upload_url, content_type="image/png").status_code == 201
    assert kept(blobs, NAME) == (7, "image/png", None)


@ON_EACH_STORAGE
@pytest.mark.parametrize("sent", ["whole", "in blocks"])
def test_the_azure_client_uploads(blobs: Blobs, upload_url: str, sent: str) -> None:
    sizes = {"max_single_put_size": MIB, "max_block_size": MIB} if sent == "in blocks" else {}
    options = {"api_version": "2021-12-02", **sizes}
    data = content(3 * MIB + 1)
    settings = ContentSettings(content_type=TEXT, content_encoding="gzip")
    with BlobClient.from_blob_url(upload_url, **options) as client:  # type: ignore[arg-type]
        client.upload_blob(data, content_settings=settings)
        assert kept(blobs, NAME) == (len(data), TEXT, "gzip")
        assert read(blobs) == data
        with pytest.raises(HttpResponseError) as refused:
            client.upload_blob(data)
        assert code(refused.value) == (409, "BlobAlreadyExists")
        client.upload_blob(b"other", overwrite=True)
    assert read(blobs) == b"other"


@ON_EACH_STORAGE
def test_blocks_are_a_blob_only_once_a_list_names_them(blobs: Blobs, upload_url: str) -> None:
    with BlobClient.from_blob_url(upload_url, api_version="2021-12-02") as client:
        for block_id, data in (("b", b"two"), ("a", b"one"), ("c", b"three"), ("a", b"One")):
            client.stage_block(block_id, data)
        assert blobs.properties(NAME) is None
        with pytest.raises(HttpResponseError) as refused:
            client.commit_block_list([BlobBlock("a"), BlobBlock("d")])
        assert code(refused.value) == (400, "InvalidBlockList")
        client.commit_block_list([BlobBlock("a"), BlobBlock("b")])
        assert read(blobs) == b"Onetwo"
        with pytest.raises(HttpResponseError) as refused:  # the list took the place of the others
            client.commit_block_list([BlobBlock("c")])
        assert code(refused.value) == (400, "InvalidBlockList")
        client.commit_block_list([BlobBlock("b"), BlobBlock("a"), BlobBlock("b")])
    assert read(blobs) == b"twoOnetwo"


def code(error: HttpResponseError) -> tuple[int | None, Any]:
    return error.status_code, error.error_code  # type: ignore[attr-defined]


@ON_EACH_STORAGE
def test_the_azure_client_downloads(blobs: Blobs, download_url: str) -> None:
    data = content(3 * MIB + 1)
    for one in (data, b""):
        blobs.write(NAME, chunked(one), TEXT, "gzip")
        with BlobClient.from_blob_url(
            download_url, api_version="2021-12-02", max_single_get_size=MIB, max_chunk_get_size=MIB
        ) as client:
            properties = client.get_blob_properties()
            assert (properties.size, properties.content_settings.content_type) == (len(one), TEXT)
            assert properties.content_settings.content_encoding == "gzip"
            assert client.download_blob(decompress=False).readall() == one
    write(blobs, data)
    with BlobClient.from_blob_url(download_url, api_version="2021-12-02") as client:
        assert client.download_blob(offset=MIB, length=10).readall() == data[MIB : MIB + 10]


@ON_EACH_STORAGE
@pytest.mark.parametrize(
    ("wanted", "start", "end"),
    [("bytes=0-0", 0, 1), ("bytes=5-", 5, 100), ("bytes=10-19", 10, 20), ("bytes=90-1000", 90, 100)],
)
def test_ranges_are_served(blobs: Blobs, download_url: str, wanted: str, start: int, end: int) -> None:
    data = content(100)
    write(blobs, data)
    answer = requests.get(download_url, headers={"range": wanted}, timeout=30)
    assert (answer.status_code, answer.content) == (206, data[start:end])
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/100"
    assert answer.headers["content-length"] == str(end - start)


@ON_EACH_STORAGE
def test_every_download_is_an_attachment(upload_url: str, download_url: str) -> None:
    """Whatever its type: it may come from the origin of this server, or through a proxy there."""
    put(upload_url, x_ms_blob_content_type="text/html", x_ms_blob_content_disposition="inline")
    for headers in ({}, {"range": "bytes=0-2"}):
        answer = requests.get(download_url, headers=headers, timeout=30)
        assert answer.headers["content-disposition"] == "attachment"
        assert answer.headers["content-type"] == "text/html"
    inline = download_url.replace("rscd=attachment", "rscd=inline")
    assert inline != download_url
    for url in (inline, download_url.replace("rscd=attachment", ""), f"{download_url}&rscd=inline"):
        assert requests.get(url, timeout=30).status_code == 403


@ON_EACH_STORAGE
def test_head_has_the_headers_of_get(blobs: Blobs, download_url: str) -> None:
    write(blobs, b"content")
    head, get = requests.head(download_url, timeout=30), requests.get(download_url, timeout=30)
    names = ("content-length", "content-type", "etag", "last-modified", "accept-ranges", "x-ms-blob-type")
    assert [head.headers[name] for name in names] == [get.headers[name] for name in names]
    assert (head.status_code, head.content, get.content) == (200, b"", b"content")
    assert [get.headers[name] for name in names[:2]] == ["7", TEXT]


@ON_EACH_STORAGE
def test_a_blob_that_is_not_there_is_not_found(download_url: str) -> None:
    for method in ("GET", "HEAD"):
        answer = requests.request(method, download_url, timeout=30)
        assert (answer.status_code, answer.headers["x-ms-error-code"]) == (404, "BlobNotFound")


@ON_EACH_STORAGE
def test_a_url_is_for_one_blob_and_one_purpose(blobs: Blobs, upload_url: str, download_url: str) -> None:
    write(blobs, b"content")
    write(blobs, b"content", f"{NAME}x")
    refused = [
        requests.get(upload_url, timeout=30),
        put(download_url),
        put(f"{download_url}&comp=block&blockid=YQ%3D%3D"),
        requests.put(f"{download_url}&comp=blocklist", "<BlockList/>", timeout=30),
        requests.delete(download_url, timeout=30),
        requests.delete(upload_url, timeout=30),
        put(upload_url.replace(f"{NAME}?", f"{NAME}x?")),
        requests.get(download_url.replace(f"{NAME}?", f"{NAME}x?"), timeout=30),
        requests.get(f"{download_url.partition('?')[0]}", timeout=30),
    ]
    assert {answer.status_code for answer in refused} <= {401, 403, 404}
    assert read(blobs) == read(blobs, f"{NAME}x") == b"content"


@ON_EACH_STORAGE
def test_urls_are_signed_for_minimal_permissions(upload_url: str, download_url: str) -> None:
    for url, permission in ((upload_url, "cw"), (download_url, "r")):
        fields = parse_qs(urlsplit(url).query)
        assert [fields[name] for name in ("sp", "sr", "spr")] == [[permission], ["b"], ["https,http"]]


@ON_EACH_STORAGE
def test_a_url_is_valid_until_its_expiry_and_where_the_storage_clock_is_late(backend: Backend) -> None:
    blobs, now = backend.storage.blobs, backend.clock.now()
    write(blobs, b"content")
    expired = blobs.download_url(NAME, now - SECOND)
    assert requests.get(expired, timeout=30).status_code == 403
    backend.clock.advance(timedelta(minutes=14))  # this process is ahead of the storage
    early = blobs.download_url(NAME, backend.clock.now() + HALF_HOUR)
    backend.clock.advance(-timedelta(minutes=14))
    assert requests.get(early, timeout=30).content == b"content"


@ON_EACH_STORAGE
def test_invalid_uploads_are_refused(blobs: Blobs, upload_url: str) -> None:
    refused = [
        requests.put(upload_url, b"content", timeout=30),  # without x-ms-blob-type
        put(upload_url, content_md5="AAAAAAAAAAAAAAAAAAAAAA=="),
        requests.put(f"{upload_url}&comp=blocklist", b"<BlockList><Latest>", timeout=30),
        requests.put(
            upload_url, iter([b"con", b"tent"]), headers={"x-ms-blob-type": "BlockBlob"}, timeout=30
        ),
    ]
    assert [answer.status_code // 100 for answer in refused] == [4] * 4, refused
    assert blobs.properties(NAME) is None
