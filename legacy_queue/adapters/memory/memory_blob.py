"""A container of block blobs in the memory of this process."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from threading import Lock
from typing import NamedTuple

from legacy_queue.ports import Clock
from legacy_queue.ports.blob import (
    BlobAlreadyExists,
    BlobContainer,
    BlobProperties,
    BlockList,
    Blocks,
    InvalidBlockList,
    Written,
)

_BLOCKS_KEPT = timedelta(days=7)  # after the last block of a blob, until a list names them


_Contents = Sequence[tuple[str, bytes]]  # blocks with their ids; a blob without blocks has an empty id


class _Blob(NamedTuple):
    blocks: _Contents
    properties: BlobProperties


class MemoryBlobContainer(BlobContainer):
    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._blobs: dict[str, _Blob] = {}
        self._blocks: dict[str, tuple[dict[str, bytes], datetime]] = {}
        self._lock = Lock()

    def put(
        self, name: str, content: bytes, content_type: str, encoding: str | None, *, is_new: bool = False
    ) -> Written:
        with self._lock:
            return self._store(name, [("", bytes(content))], content_type, encoding, is_new)

    def put_block(self, name: str, block_id: str, content: bytes) -> None:
        with self._lock:
            now = self._clock.now()
            for old in [one for one, (_, used) in self._blocks.items() if now - used > _BLOCKS_KEPT]:
                del self._blocks[old]
            blocks, _ = self._blocks.get(name, ({}, now))
            blocks[block_id] = bytes(content)
            self._blocks[name] = blocks, now

    def put_block_list(
        self, name: str, blocks: Blocks, content_type: str, encoding: str | None, *, is_new: bool = False
    ) -> Written:
        with self._lock:
            committed, uncommitted = self._blocks_of(name)
            latest = {**dict(committed), **uncommitted}
            where = {"Committed": dict(committed), "Uncommitted": uncommitted, "Latest": latest}
            try:
                found = [(block_id, where[kind][block_id]) for kind, block_id in blocks]
            except KeyError as error:
                raise InvalidBlockList(*error.args) from None
            return self._store(name, found, content_type, encoding, is_new)

    def block_list(self, name: str) -> BlockList | None:
        with self._lock:
            committed, uncommitted = self._blocks_of(name)
            if name not in self._blobs and not uncommitted:
                return None
            return BlockList([block_id for block_id, _ in committed], [*uncommitted])

    def properties(self, name: str) -> BlobProperties | None:
        blob = self._blobs.get(name)
        return blob.properties if blob else None

    def read(self, name: str) -> tuple[BlobProperties, Iterator[bytes]] | None:
        blob = self._blobs.get(name)
        return (blob.properties, (block for _, block in blob.blocks)) if blob else None

    def delete(self, name: str) -> None:
        with self._lock:
            self._blobs.pop(name, None)
            self._blocks.pop(name, None)

    def _blocks_of(self, name: str) -> tuple[_Contents, Mapping[str, bytes]]:
        """The blocks of the blob, in order, and the uncommitted blocks."""
        blob, (uncommitted, _) = self._blobs.get(name), self._blocks.get(name, ({}, None))
        return [block for block in blob.blocks if block[0]] if blob else [], uncommitted

    def _store(
        self, name: str, blocks: _Contents, content_type: str, encoding: str | None, is_new: bool
    ) -> Written:
        if is_new and name in self._blobs:
            raise BlobAlreadyExists
        etag = f'"0x{uuid.uuid4().hex[:15].upper()}"'
        length = sum(len(block) for _, block in blocks)
        properties = BlobProperties(length, content_type, encoding, self._clock.now(), etag)
        self._blobs[name] = _Blob(blocks, properties)
        self._blocks.pop(name, None)
        return Written(properties.etag, properties.modified)
