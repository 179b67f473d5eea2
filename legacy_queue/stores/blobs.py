"""Stores the bytes of artifacts."""

import secrets
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import chain, groupby

from legacy_queue.domain.errors import InputTooLarge, ServiceUnavailable
from legacy_queue.domain.times import epoch_milliseconds
from legacy_queue.ports import Clock
from legacy_queue.ports.blob import (
    DEFAULTS,
    BlobContainer,
    BlobProperties,
    Block,
    InvalidBlockList,
    WriteOptions,
    Written,
)

BLOCK = 4 * 1024 * 1024  # bytes

_WHOLE = 0  # the part number of a blob that is not written in parts
_VALID_BEFORE = timedelta(minutes=15)  # a URL is valid from so long before now, because clocks differ

_MarkedBlock = tuple[bytes, bool]  # a block, and whether it is the last


class Blobs:
    """The bytes of artifacts, each under a name such as ``Artifact.blob_name``.

    - A blob is stored whole or not at all.
    - A blob of up to one block is sent in one request. A larger blob is sent in blocks, and then their list.
      So a call has only one block in memory.
    - If ``chunks`` raises an error, that is raised, and nothing is stored.
    - If two calls write a blob at the same time, one may raise ServiceUnavailable. Their bytes are never
      mixed.
    - If earlier writes have left too many blocks, a write raises BlockCountExceedsLimit.
    """

    def __init__(self, container: BlobContainer, clock: Clock) -> None:
        self._container = container
        self._clock = clock

    def upload_url(self, name: str, expiry: datetime) -> str:
        """Returns a signed URL for writing that blob, valid until ``expiry``."""
        return self._container.upload_url(name, self._clock.wall_time() - _VALID_BEFORE, expiry)

    def download_url(self, name: str, expiry: datetime) -> str:
        """Returns a signed URL for reading that blob as an attachment, valid until ``expiry``."""
        return self._container.download_url(name, self._clock.wall_time() - _VALID_BEFORE, expiry)

    def write(
        self,
        name: str,
        chunks: Iterable[bytes],
        content_type: str,
        content_encoding: str | None,
        options: Callable[[], WriteOptions] = WriteOptions,
    ) -> Written:
        """Store the chunks as the blob, and replace an earlier one. Calls ``options`` after the last chunk.

        If its conditions are not met, raises BlobAlreadyExists or ConditionNotMet.
        """
        blocks = _blocks(chunks)
        first, is_last = next(blocks)
        if is_last:
            return self._container.put(name, first, content_type, content_encoding, options())
        ids = self._stage(name, _WHOLE, chain([(first, is_last)], blocks))
        return self._commit(name, ids, content_type, content_encoding, options())

    def check_parts(self, sizes: Iterable[int]) -> None:
        """Check that the storage can join parts of these sizes. Raises InputTooLarge."""
        count = sum(-(-size // BLOCK) for size in sizes)
        if count > self._container.max_blocks:
            raise InputTooLarge(
                f"the parts have {count} blocks of 4 MiB, each part rounded up: expected at most "
                f"{self._container.max_blocks} on this storage"
            )

    def write_part(self, name: str, number: int, chunks: Iterable[bytes]) -> None:
        """Store the chunks, at least one byte, as part ``number`` (from 1), and replace an earlier one.

        Parts may come in any order. ``check_parts`` says how many there may be. They cannot be read before
        they are joined. Parts that are never joined expire.
        """
        self._stage(name, number, _blocks(chunks))

    def join_parts(self, name: str, count: int, content_type: str, content_encoding: str | None) -> None:
        """Make the blob from the parts 1 to ``count``. Raises KeyError if a part is missing.

        Safe to repeat, unless a part or the blob was written in between. If the blob already consists of
        these parts, nothing is written, so that reads of it are not interrupted.
        """
        blocks = self._container.block_list(name)
        if blocks is None:
            raise KeyError(name)
        parts = _last_complete([*blocks.committed, *blocks.uncommitted])
        ids = [block_id for part in range(1, count + 1) for block_id in parts[part]]
        if ids != [*blocks.committed]:
            self._commit(name, ids, content_type, content_encoding)

    def discard_blocks(self, after: str, limit: int, is_over: Callable[[str], bool]) -> str | None:
        """Discard the uncommitted blocks of the next blobs whose upload ``is_over``: see the port."""
        return self._container.discard_blocks(after, limit, is_over)

    def properties(self, name: str) -> BlobProperties | None:
        """Returns the properties of the blob, or None if it does not exist."""
        return self._container.properties(name)

    def read(self, name: str) -> Iterator[bytes]:
        """Returns the bytes of the blob as they are stored, in chunks. Raises KeyError.

        If the blob is written or removed during the read, the chunks may raise ServiceUnavailable. Bytes of
        two versions are never mixed.
        """
        blob = self._container.read(name)
        if blob is None:
            raise KeyError(name)
        return blob[1]

    def remove(self, name: str) -> None:
        """Delete the blob. Safe to repeat."""
        self._container.delete(name)

    def _stage(self, name: str, part: int, blocks: Iterable[_MarkedBlock]) -> list[str]:
        """Store the blocks. Returns their ids, ``<part>.<write>.<number>.<1 for the last, otherwise 0>``.

        No two writes share an id, so their blocks cannot be mixed. Ids sort by part, write and number. Azure
        requires that all ids of a blob have the same length, at most 64 bytes.
        """
        write = f"{epoch_milliseconds(self._clock.now()):013}-{secrets.token_hex(8)}"
        ids = []
        for number, (block, is_last) in enumerate(blocks):
            ids.append(f"{part:05}.{write}.{number:05}.{is_last:d}")
            self._container.put_block(name, ids[-1], block)
        return ids

    def _commit(
        self,
        name: str,
        ids: Iterable[str],
        content_type: str,
        content_encoding: str | None,
        options: WriteOptions = DEFAULTS,
    ) -> Written:
        blocks: list[Block] = [("Latest", block_id) for block_id in ids]
        try:
            return self._container.put_block_list(name, blocks, content_type, content_encoding, options)
        # another write finished first, and Azure has discarded these blocks
        except InvalidBlockList as error:
            raise ServiceUnavailable("the storage did not serve the request, try again") from error


def _blocks(chunks: Iterable[bytes]) -> Iterator[_MarkedBlock]:
    """Yields the same bytes in blocks of one size. The last block may be smaller."""
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        while len(buffer) > BLOCK:
            with memoryview(buffer) as view:
                block = bytes(view[:BLOCK])
            del buffer[:BLOCK]
            yield block, False
    yield bytes(buffer), True


def _last_complete(ids: Iterable[str]) -> dict[int, list[str]]:
    """Returns the blocks of each part, from the last write of it that was completed."""
    parts = {}
    # in sorted order, a later write of a part follows an earlier one, and replaces it
    for write, written in groupby(sorted(set(ids)), lambda block_id: block_id.rsplit(".", 2)[0]):
        blocks = [*written]
        # Count the blocks and look for the last one, because Azure discards blocks of a write if another
        # write is committed first.
        if blocks[-1].endswith(f".{len(blocks) - 1:05}.1"):
            parts[int(write.partition(".")[0])] = blocks
    return parts
