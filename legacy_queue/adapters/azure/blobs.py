"""Bytes of artifacts in Azure Blob Storage."""

import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from azure.core.exceptions import HttpResponseError, ResourceModifiedError, ResourceNotFoundError
from azure.storage.blob import BlobBlock, BlobClient, BlobLeaseClient, ContainerClient, ContentSettings

from legacy_queue.adapters.azure.client import error_code, unavailable_when_down
from legacy_queue.adapters.sas import BlobSigner
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.times import epoch_milliseconds
from legacy_queue.ports import BlobProperties, Blobs, Clock

BLOCK = 4 * 1024 * 1024  # bytes

_WHOLE = 0  # the number of the part that is no part, but all of it

_Block = tuple[bytes, bool]  # and whether it is the last one


class _BlockId(NamedTuple):
    """The block ``number``, 0.., of a part as one call, ``write``, wrote it.

    No two calls have an id in common, so theirs cannot be mixed; the later call has the greater ``write``.
    Azure wants the ids of a blob to be of one length, and 64 bytes at most.
    """

    part: int
    write: str
    number: int
    is_last: bool

    def __str__(self) -> str:
        return f"{self.part:05}.{self.write}.{self.number:05}.{self.is_last:d}"

    @classmethod
    def parse(cls, text: str) -> "_BlockId":
        part, write, number, is_last = text.split(".")
        return cls(int(part), write, int(number), is_last == "1")


class AzureBlobs(Blobs):
    """A blob of at most a block goes in one request, a larger one in blocks and their list.

    So memory holds a block for each call, and what a retry sends again is whole.
    """

    def __init__(self, container: ContainerClient, signer: BlobSigner, clock: Clock) -> None:
        self._container, self._signer, self._clock = container, signer, clock

    def upload_url(self, name: str, expiry: datetime) -> str:
        return self._signer.upload_url(name, self._clock.now(), expiry)

    def download_url(self, name: str, expiry: datetime) -> str:
        return self._signer.download_url(name, self._clock.now(), expiry)

    def write(
        self, name: str, chunks: Iterable[bytes], content_type: str, content_encoding: str | None
    ) -> None:
        blob, settings = self._container.get_blob_client(name), _settings(content_type, content_encoding)
        blocks = _blocks(chunks)
        first, is_last = next(blocks)
        if is_last:
            with unavailable_when_down():
                blob.upload_blob(first, overwrite=True, content_settings=settings)
            return
        ids = self._stage(blob, _WHOLE, chain([(first, is_last)], blocks))
        _commit(blob, ids, settings)

    def write_part(self, name: str, number: int, chunks: Iterable[bytes]) -> None:
        self._stage(self._container.get_blob_client(name), number, _blocks(chunks))

    def join_parts(self, name: str, count: int, content_type: str, content_encoding: str | None) -> None:
        blob = self._container.get_blob_client(name)
        try:
            with unavailable_when_down():
                lists = blob.get_block_list("all")
        except ResourceNotFoundError:
            raise KeyError(name) from None
        joined, new = ([_BlockId.parse(block.id) for block in blocks] for blocks in lists)
        parts = _newest_whole(chain(joined, new))
        ids = [block_id for part in range(1, count + 1) for block_id in parts[part]]
        if ids != joined:
            _commit(blob, ids, _settings(content_type, content_encoding))

    def properties(self, name: str) -> BlobProperties | None:
        try:
            with unavailable_when_down():
                found = self._container.get_blob_client(name).get_blob_properties()
        except ResourceNotFoundError:
            return None
        settings = found.content_settings
        return BlobProperties(found.size, settings.content_type or "", settings.content_encoding)

    def read(self, name: str) -> Iterator[bytes]:
        try:
            with unavailable_when_down():
                download = self._container.get_blob_client(name).download_blob(decompress=False)
        except ResourceNotFoundError:
            raise KeyError(name) from None
        return _each(download.chunks())

    def remove(self, name: str) -> None:
        blob = self._container.get_blob_client(name)
        try:
            _delete(blob)
        except HttpResponseError as error:
            if error_code(error) != "LeaseIdMissing":
                raise
            with suppress(ResourceNotFoundError):
                with unavailable_when_down():
                    BlobLeaseClient(blob).break_lease(0)
                _delete(blob)

    def _stage(self, blob: BlobClient, part: int, blocks: Iterable[_Block]) -> list[_BlockId]:
        write = f"{epoch_milliseconds(self._clock.now()):013}-{secrets.token_hex(8)}"
        ids = []
        for number, (block, is_last) in enumerate(blocks):
            block_id = _BlockId(part, write, number, is_last)
            with unavailable_when_down():
                blob.stage_block(str(block_id), block)
            ids.append(block_id)
        return ids


def _blocks(chunks: Iterable[bytes]) -> Iterator[_Block]:
    """The same bytes in blocks of one size, the last one smaller."""
    kept = bytearray()
    for chunk in chunks:
        kept += chunk
        while len(kept) > BLOCK:
            yield bytes(kept[:BLOCK]), False
            del kept[:BLOCK]
    yield bytes(kept), True


def _newest_whole(ids: Iterable[_BlockId]) -> dict[int, list[_BlockId]]:
    """The blocks of each part, as the last call wrote them that came to the end of it."""
    writes: defaultdict[tuple[int, str], set[_BlockId]] = defaultdict(set)
    for block_id in ids:
        writes[block_id.part, block_id.write].add(block_id)
    parts = {}
    for (part, _), blocks in sorted(writes.items(), key=lambda item: item[0]):
        *_, last = ordered = sorted(blocks, key=lambda block_id: block_id.number)
        if last.is_last and last.number + 1 == len(ordered):
            parts[part] = ordered
    return parts


def _commit(blob: BlobClient, ids: Iterable[_BlockId], settings: ContentSettings) -> None:
    with unavailable_when_down():
        blob.commit_block_list([BlobBlock(str(one)) for one in ids], content_settings=settings)


def _delete(blob: BlobClient) -> None:
    with suppress(ResourceNotFoundError), unavailable_when_down():
        blob.delete_blob(delete_snapshots="include")


def _each(chunks: Iterator[Any]) -> Iterator[bytes]:
    while True:
        try:
            with unavailable_when_down():
                chunk = next(chunks, None)
        except (ResourceModifiedError, ResourceNotFoundError) as error:
            raise ServiceUnavailable("the blob changed while it was read, try again") from error
        if chunk is None:
            return
        yield chunk


def _settings(content_type: str, content_encoding: str | None) -> ContentSettings:
    return ContentSettings(content_type=content_type, content_encoding=content_encoding)
