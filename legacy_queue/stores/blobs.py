"""Bytes of artifacts."""

import secrets
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import chain, groupby

from azure.storage.blob import generate_blob_sas

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.times import epoch_milliseconds
from legacy_queue.ports import Clock
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.blob import BlobProperties, Block, InvalidBlockList

BLOCK = 4 * 1024 * 1024  # bytes

_WHOLE = 0  # the number of the part that is no part, but all of it
_DRIFT = timedelta(minutes=15)  # of clocks: a URL is good from so long ago on

_Block = tuple[bytes, bool]  # and whether it is the last one


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
        return self._url(name, "cw", expiry)

    def download_url(self, name: str, expiry: datetime) -> str:
        """A SAS URL, good until then, for reading that blob: GET and HEAD, whole or in ranges.

        What is read is an attachment: no browser shows it as a page of that origin.
        """
        return self._url(name, "r", expiry, "attachment")

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
        parts = _newest_whole([*blocks.committed, *blocks.uncommitted])
        ids = [block_id for part in range(1, count + 1) for block_id in parts[part]]
        if ids != [*blocks.committed]:
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
        return found[1]

    def remove(self, name: str) -> None:
        """The blob is not there any more. Safe to repeat."""
        self._container.delete(name)

    def _url(self, name: str, permission: str, expiry: datetime, disposition: str | None = None) -> str:
        endpoint, container = self._endpoint, self._container.name
        sas = generate_blob_sas(
            endpoint.account,
            container,
            name,
            account_key=endpoint.key,
            permission=permission,
            start=self._clock.wall_time() - _DRIFT,
            expiry=expiry,
            protocol=endpoint.sas_protocol,
            content_disposition=disposition,
        )
        return f"{endpoint.url.rstrip('/')}/{container}/{name}?{sas}"

    def _stage(self, name: str, part: int, blocks: Iterable[_Block]) -> list[str]:
        """The ids ``<part>.<write>.<number>.<1 for the last>`` of the blocks, which are kept.

        No two writes have an id in common, so that they cannot be mixed; ids are in the order of their parts,
        writes and numbers. Azure wants the ids of a blob to be of one length, and 64 bytes at most.
        """
        write = f"{epoch_milliseconds(self._clock.now()):013}-{secrets.token_hex(8)}"
        ids = []
        for number, (block, is_last) in enumerate(blocks):
            ids.append(f"{part:05}.{write}.{number:05}.{is_last:d}")
            self._container.put_block(name, ids[-1], block)
        return ids

    def _commit(self, name: str, ids: Iterable[str], content_type: str, content_encoding: str | None) -> None:
        blocks: list[Block] = [("Latest", block_id) for block_id in ids]
        try:
            self._container.put_block_list(name, blocks, content_type, content_encoding)
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


def _newest_whole(ids: Iterable[str]) -> dict[int, list[str]]:
    """The blocks of each part, as the last write wrote them that came to the end of it."""
    parts = {}
    for write, written in groupby(sorted(set(ids)), lambda block_id: block_id.rsplit(".", 2)[0]):
        blocks = [*written]
        if blocks[-1].endswith(f".{len(blocks) - 1:05}.1"):
            parts[int(write.partition(".")[0])] = blocks
    return parts
