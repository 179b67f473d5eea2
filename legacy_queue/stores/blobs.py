"""Bytes of artifacts."""

import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.times import epoch_milliseconds
from legacy_queue.ports import Clock
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.blob import BlobProperties, InvalidBlockList
from legacy_queue.stores import signed_urls

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


class Blobs:
    """Bytes of artifacts, each under a name such as ``Artifact.blob_name``.

    A blob is there as a whole or not at all. A blob of at most a block goes in one request, a larger one in
    blocks and their list: so a call holds a block in memory, and what a retry sends again is whole. An error
    that ``chunks`` raises goes through, and then nothing is stored. Of two writes of one blob at a time, one
    may end with ServiceUnavailable; they are never mixed.
    """

    def __init__(self, account: StorageAccount, clock: Clock) -> None:
        self._container, self._endpoint = account.container, account.public_blobs
        self._clock = clock

    def upload_url(self, name: str, expiry: datetime) -> str:
        """A SAS URL, good until then, for writing that blob: by one PUT, or by blocks and their list."""
        now = self._clock.now()
        return signed_urls.upload_url(self._endpoint, self._container.name, name, now, expiry)

    def download_url(self, name: str, expiry: datetime) -> str:
        """A SAS URL, good until then, for reading that blob: GET and HEAD, whole or in ranges.

        What is read is an attachment: no browser shows it as a page of that origin.
        """
        now = self._clock.now()
        return signed_urls.download_url(self._endpoint, self._container.name, name, now, expiry)

    def write(
        self, name: str, chunks: Iterable[bytes], content_type: str, content_encoding: str | None
    ) -> None:
        """Store the chunks as the blob, in place of what is there."""
        blocks = _blocks(chunks)
        first, is_last = next(blocks)
        if is_last:
            self._container.put(name, first, content_type, content_encoding)
            return
        ids = self._stage(name, _WHOLE, chain([(first, is_last)], blocks))
        self._commit(name, ids, content_type, content_encoding)

    def write_part(self, name: str, number: int, chunks: Iterable[bytes]) -> None:
        """Keep the chunks, at least a byte, as part ``number``, 1.. in any order, in place of what is there.

        Parts may have 195 GiB together, each counted as a multiple of 4 MiB. They cannot be read before they
        are joined; parts that never are joined expire.
        """
        self._stage(name, number, _blocks(chunks))

    def join_parts(self, name: str, count: int, content_type: str, content_encoding: str | None) -> None:
        """Make the blob of the parts 1 to ``count``; raises KeyError where one of them is missing.

        Safe to repeat, as long as no part is written and nothing else is stored there between; where the
        blob is already made of these parts, nothing is written, so that its readers are not interrupted.
        """
        blocks = self._container.block_list(name)
        if blocks is None:
            raise KeyError(name)
        joined, new = ([_BlockId.parse(one) for one in ids] for ids in (blocks.committed, blocks.uncommitted))
        parts = _newest_whole(chain(joined, new))
        ids = [block_id for part in range(1, count + 1) for block_id in parts[part]]
        if ids != joined:
            self._commit(name, ids, content_type, content_encoding)

    def properties(self, name: str) -> BlobProperties | None:
        """Of the blob, if it is there."""
        return self._container.properties(name)

    def read(self, name: str) -> Iterator[bytes]:
        """The bytes of the blob as they are stored, in chunks; raises KeyError.

        A write or removal during the read may end the chunks with ServiceUnavailable; they are never mixed.
        """
        found = self._container.read(name)
        if found is None:
            raise KeyError(name)
        _, chunks = found
        return chunks

    def remove(self, name: str) -> None:
        """The blob is not there any more. Safe to repeat."""
        self._container.delete(name)

    def _stage(self, name: str, part: int, blocks: Iterable[_Block]) -> list[_BlockId]:
        write = f"{epoch_milliseconds(self._clock.now()):013}-{secrets.token_hex(8)}"
        ids = []
        for number, (block, is_last) in enumerate(blocks):
            block_id = _BlockId(part, write, number, is_last)
            self._container.put_block(name, str(block_id), block)
            ids.append(block_id)
        return ids

    def _commit(
        self, name: str, ids: Iterable[_BlockId], content_type: str, content_encoding: str | None
    ) -> None:
        try:
            self._container.put_block_list(
                name, [("Latest", str(one)) for one in ids], content_type, content_encoding
            )
        except InvalidBlockList as error:  # another write came to its end first, and took our blocks away
            raise ServiceUnavailable("storage did not serve the request, try again") from error


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
