"""What a container of blobs promises. Source: legacy_queue/ports/blob.py."""

import base64
import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.blob import (
    BlobAlreadyExists,
    BlobContainer,
    BlobProperties,
    Block,
    BlockList,
    ConditionNotMet,
    InvalidBlobOrBlock,
    InvalidBlockList,
    WriteOptions,
)

MIB = 1024 * 1024
IDS = ["block-a", "block-b", "block-c"]


def content(container: BlobContainer, name: str = "name") -> bytes:
    found = container.read(name)
    assert found
    return b"".join(found[1])


def latest(*ids: str) -> list[Block]:
    return [("Latest", block_id) for block_id in ids]


def md5(body: bytes) -> str:
    return base64.b64encode(hashlib.md5(body).digest()).decode()


def put_blocks(container: BlobContainer, *ids: str, version: str = "") -> None:
    for block_id in ids:
        container.put_block("name", block_id, f"<{block_id}{version}>".encode())


@pytest.mark.parametrize("body", [b"", b".", bytes(range(256)) * 4], ids=["empty", "small", "all bytes"])
def test_a_blob_has_the_content_and_properties_with_which_it_was_put(
    container: BlobContainer, body: bytes
) -> None:
    described: dict[str, Any] = {"md5": md5(body), "metadata": {"name": "text"}}
    options = WriteOptions(**described)
    written = container.put("name", body, "text/plain; charset=utf-8", "gzip", options)
    expected = BlobProperties(
        len(body), "text/plain; charset=utf-8", "gzip", written.modified, written.etag, **described
    )
    assert container.properties("name") == expected
    found = container.read("name")
    assert found
    assert replace(found[0], md5=md5(body)) == expected  # a blob that Azure's SDK reads in ranges has no md5
    assert b"".join(found[1]) == body
    assert abs(written.modified - datetime.now(UTC)) < timedelta(hours=1)


def test_put_and_describe_replace_only_the_version_that_they_name(
    container: BlobContainer,
) -> None:
    first = container.put("name", b"first", "text/plain", None)
    second = container.put("name", b"second", "text/plain", None, WriteOptions(replaces=first.etag))
    properties = container.properties("name")
    assert properties
    stale = WriteOptions(replaces=first.etag)
    put_blocks(container, *IDS)
    writes: list[Callable[[], object]] = [
        lambda: container.put("name", b"third", "text/plain", None, stale),
        lambda: container.put_block_list("name", latest(*IDS), "text/plain", None, stale),
        lambda: container.describe("name", replace(properties, etag=first.etag)),
        lambda: container.put("missing", b"third", "text/plain", None, stale),
        lambda: container.describe("missing", properties),
    ]
    for write in writes:
        with pytest.raises(ConditionNotMet):
            write()
    written = container.describe("name", replace(properties, metadata={"key": "text"}))
    with_type = replace(properties, metadata={"key": "text"}, etag=written.etag, content_type="text/html")
    written = container.describe("name", replace(with_type, content_encoding="gzip", md5=md5(b"another")))
    found = container.properties("name")
    assert found
    assert written.etag != second.etag
    assert (found.content_type, found.content_encoding, found.md5) == ("text/html", "gzip", md5(b"another"))
    assert (found.metadata, found.etag) == ({"key": "text"}, written.etag)
    container.put("name", b"third", "text/plain", None)
    found = container.properties("name")
    assert found
    assert not found.metadata


def test_the_ids_of_a_blobs_uncommitted_blocks_must_have_the_same_length(container: BlobContainer) -> None:
    put_blocks(container, *IDS)
    with pytest.raises(InvalidBlobOrBlock):
        container.put_block("name", "block-11", b"content")
    container.put_block("another", "block-11", b"content")


@pytest.mark.parametrize("name", ["a/b/c", "a b", "ä\U0001f600", "a~b.c-d_e", "100%25", "x" * 1000])
def test_a_blob_can_have_an_unusual_name_and_deleting_it_can_be_repeated(
    container: BlobContainer, name: str
) -> None:
    container.put(name, b"put", "text/plain", None)
    assert content(container, name) == b"put"
    container.put_block(name, "block", b"block")
    container.put_block_list(name, latest("block"), "text/plain", None)
    assert content(container, name) == b"block"
    for _ in range(2):
        container.delete(name)
        assert container.properties(name) is None
        assert container.read(name) is None
        assert container.block_list(name) is None


def test_a_put_for_a_new_blob_does_not_replace_an_existing_blob(container: BlobContainer) -> None:
    container.put("name", b"first", "text/plain", None, WriteOptions(is_new=True))
    with pytest.raises(BlobAlreadyExists):
        container.put("name", b"second", "text/plain", None, WriteOptions(is_new=True))
    put_blocks(container, *IDS)
    with pytest.raises(BlobAlreadyExists):
        container.put_block_list("name", latest(*IDS), "text/plain", None, WriteOptions(is_new=True))
    assert content(container) == b"first"


def test_only_one_of_many_concurrent_puts_for_a_new_blob_succeeds(
    container: BlobContainer, other: StorageAccount
) -> None:
    def put(number: int) -> bool:
        try:
            (other.container if number % 2 else container).put(
                "raced", str(number).encode(), "text/plain", None, WriteOptions(is_new=True)
            )
        except BlobAlreadyExists:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        put_it = list(threads.map(put, range(8)))
    assert put_it.count(True) == 1
    assert content(container, "raced") == str(put_it.index(True)).encode()


def test_blocks_become_a_blob_when_a_block_list_names_them(container: BlobContainer) -> None:
    put_blocks(container, *IDS)
    assert container.properties("name") is None
    assert container.read("name") is None
    assert container.block_list("name") == BlockList([], IDS)
    written = container.put_block_list("name", latest(*IDS), "text/plain", "gzip", WriteOptions(is_new=True))
    assert content(container) == b"<block-a><block-b><block-c>"
    assert container.properties("name") == BlobProperties(
        27, "text/plain", "gzip", written.modified, written.etag
    )
    assert container.block_list("name") == BlockList(IDS, [])


def test_a_block_list_can_name_committed_and_uncommitted_blocks(container: BlobContainer) -> None:
    put_blocks(container, *IDS, version=" old")
    container.put_block_list("name", latest(*IDS), "text/plain", None)
    for version in (" newer", " new"):  # a block replaces the uncommitted block with the same id
        put_blocks(container, "block-a", "block-b", version=version)
    chosen: list[Block] = [("Latest", "block-c"), ("Committed", "block-b"), ("Latest", "block-a")]
    container.put_block_list("name", [*chosen, ("Uncommitted", "block-b")], "text/plain", None)
    assert content(container) == b"<block-c old><block-b old><block-a new><block-b new>"


@pytest.mark.parametrize(
    "blocks",
    [
        [("Latest", "block-x")],
        [("Latest", "block-a"), ("Uncommitted", "block-c")],
        [("Committed", "block-b"), ("Latest", "block-c")],
    ],
)
def test_a_block_list_with_a_missing_block_changes_nothing(
    container: BlobContainer, blocks: list[Block]
) -> None:
    put_blocks(container, "block-c")
    container.put_block_list("name", latest("block-c"), "text/plain", None)
    put_blocks(container, "block-a", "block-b")
    with pytest.raises(InvalidBlockList):
        container.put_block_list("name", blocks, "text/plain", None)
    assert content(container) == b"<block-c>"
    assert container.block_list("name") == BlockList(["block-c"], ["block-a", "block-b"])


def test_a_block_of_4_mib_with_a_long_id_is_stored(container: BlobContainer) -> None:
    ids, body = ["a" * 48, "b" * 48], bytes(range(256)) * (4 * MIB // 256)
    for block_id in ids:
        container.put_block("name", block_id, body)
    container.put_block_list("name", latest(*ids), "text/plain", None)
    assert content(container) == body * 2


@pytest.mark.parametrize("change", ["put", "delete"])
def test_reading_a_blob_that_changes_meanwhile_never_mixes_two_versions(
    container: BlobContainer, change: str
) -> None:
    old, new = b"o" * 9 * MIB, b"n" * 9 * MIB
    container.put("name", old, "text/plain", None)
    found = container.read("name")
    assert found
    got = [next(found[1])]
    if change == "put":
        container.put("name", new, "text/plain", None)
    else:
        container.delete("name")
    try:
        got += found[1]
        assert b"".join(got) == old
    except ServiceUnavailable:
        assert set(b"".join(got)) == {ord("o")}
