"""How the bytes of artifacts are stored. Azure's own client shows that the signed URLs work."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from azure.core.exceptions import ResourceExistsError
from azure.storage.blob import BlobClient, ContentSettings

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.stores import Blobs, Storage
from tests.domain.sample_tasks import HOUR, SECOND
from tests.memory_server import blob_summary
from tests.services.fake_ports import intercept_port

from .conftest import Backend

MIB = 1024 * 1024
NAME = "task/0/digest"
TEXT = "text/plain; charset=utf-8"


def breaking(data: bytes) -> Iterator[bytes]:
    yield from chunked(data)
    raise ConnectionResetError("the client went away")


def content(size: int, seed: bytes = b"") -> bytes:
    """Bytes of which no two parts are alike, so that a wrong order shows."""
    return random.Random(seed).randbytes(size)


def chunked(data: bytes, size: int = 100_000) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def read(blobs: Blobs) -> bytes:
    return b"".join(blobs.read(NAME))


@pytest.fixture
def counted(storage: Storage, backend: Backend) -> tuple[Blobs, list[str]]:
    """The blobs, and a list of the operations that they called on their container."""
    names: list[str] = []

    def note(name: str, call: Callable[[], Any]) -> Any:
        names.append(name)
        return call()

    container = intercept_port(storage.account.container, note)
    return Blobs(container, backend.clock), names


# sizes around the largest blob that is sent in one piece
@pytest.mark.parametrize(
    ("size", "operations"),
    [(0, ["put"]), (4 * MIB, ["put"]), (4 * MIB + 1, ["put_block", "put_block", "put_block_list"])],
)
def test_a_written_blob_is_read_unchanged(
    counted: tuple[Blobs, list[str]], other: Storage, size: int, operations: list[str]
) -> None:
    blobs, names = counted
    data = content(size)
    blobs.write(NAME, chunked(data), TEXT, None)
    assert names == operations
    assert blob_summary(other.blobs, NAME) == (size, TEXT, None)
    assert read(other.blobs) == data


def test_a_blob_that_was_never_written_is_not_found(storage: Storage) -> None:
    blobs = storage.blobs
    assert blobs.properties(NAME) is None
    with pytest.raises(KeyError):
        blobs.read(NAME)
    with pytest.raises(KeyError):
        blobs.join_parts(NAME, 1, TEXT, None)


def test_parts_are_joined_in_the_order_of_their_numbers_and_a_joined_blob_is_not_written_again(
    counted: tuple[Blobs, list[str]], other: Storage
) -> None:
    blobs, names = counted
    parts = {number: content(5 * MIB + number, b"%d." % number) for number in (3, 1, 2)}
    for store, (number, part) in zip((blobs, other.blobs, blobs), parts.items(), strict=True):
        assert store.properties(NAME) is None
        store.write_part(NAME, number, chunked(part))
    other.blobs.join_parts(NAME, 3, "application/gzip", "gzip")  # then this process died
    names.clear()
    blobs.join_parts(NAME, 3, "application/gzip", "gzip")
    assert names == ["block_list"], "a write would interrupt its readers"
    assert blob_summary(blobs, NAME) == (15 * MIB + 6, "application/gzip", "gzip")
    assert read(blobs) == b"".join(parts[number] for number in (1, 2, 3))


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


def test_if_two_clients_write_a_blob_the_first_to_finish_wins_and_the_other_must_retry(
    storage: Storage, other: Storage, backend: Backend
) -> None:
    def end_late(name: str, call: Callable[[], Any]) -> Any:
        if name == "put_block_list":
            # now the storage discards the blocks of the late write
            other.blobs.write(NAME, [b"first"], TEXT, None)
        return call()

    late = Blobs(intercept_port(storage.account.container, end_late), backend.clock)
    with pytest.raises(ServiceUnavailable):
        late.write(NAME, chunked(content(5 * MIB)), TEXT, None)
    assert read(other.blobs) == b"first"


@pytest.mark.parametrize(
    ("block", "name"),
    [(4 * MIB, "task/0/public/a b%2F?#.log"), (MIB, "task/0/!$&'()*+,;:@=~[]{}|^`<>\"")],
    ids=["whole", "in blocks"],
)
def test_azures_own_client_can_upload_and_download_with_signed_urls(
    served: Backend, block: int, name: str
) -> None:
    blobs, end = served.storage.blobs, served.clock.now() + HOUR
    data = content(3 * MIB + 1)
    sizes = ("max_single_put_size", "max_block_size", "max_single_get_size", "max_chunk_get_size")
    options: dict[str, Any] = {"api_version": "2021-12-02", **dict.fromkeys(sizes, block)}
    settings = ContentSettings(content_type=TEXT, content_encoding="gzip")
    with BlobClient.from_blob_url(blobs.upload_url(name, end), **options) as client:
        client.upload_blob(data, content_settings=settings)
        with pytest.raises(ResourceExistsError, match="BlobAlreadyExists"):
            client.upload_blob(data)
    with BlobClient.from_blob_url(blobs.download_url(name, end), **options) as client:
        found = client.get_blob_properties()
        assert (found.size, found.content_settings.content_type) == (len(data), TEXT)
        assert found.content_settings.content_encoding == "gzip"
        assert client.download_blob(decompress=False).readall() == data
        part = client.download_blob(offset=MIB, length=10, decompress=False).readall()
        assert part == data[MIB : MIB + 10]
    blobs.remove(name)
    assert blobs.properties(name) is None
