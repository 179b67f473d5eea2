"""A container of block blobs as Azure keeps it: blobs, and the blocks that no list has made a blob of yet."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock

from legacy_queue.ports import BlobProperties

_BLOCKS_LAST = timedelta(days=7)  # from the last one of a blob on, while no list names them


class BlobAlreadyExists(Exception):
    """There is a blob of that name, and the write was for where there is none."""


class InvalidBlockList(KeyError):
    """A block that the list names is not there."""


@dataclass(frozen=True)
class MemoryBlob:
    """Its blocks with their ids, in their order; where it came in one piece, the id is empty."""

    blocks: Sequence[tuple[str, bytes]]
    content_type: str
    content_encoding: str | None
    modified: datetime
    etag: str = field(default_factory=lambda: f"0x{uuid.uuid4().hex[:15].upper()}")

    @property
    def properties(self) -> BlobProperties:
        length = sum(len(block) for _, block in self.blocks)
        return BlobProperties(length, self.content_type, self.content_encoding)

    def read(self) -> Iterator[bytes]:
        """All of its bytes, in chunks."""
        return (block for _, block in self.blocks)


class MemoryContainer:
    """Blobs by name, and their blocks. A new blob takes the place of the old one and of all blocks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._blobs: dict[str, MemoryBlob] = {}
        self._blocks: dict[str, tuple[dict[str, bytes], datetime]] = {}
        self._lock = Lock()

    def get(self, name: str) -> MemoryBlob | None:
        return self._blobs.get(name)

    def put(self, name: str, blob: MemoryBlob, is_new: bool = False) -> None:
        """Keep the blob; raises BlobAlreadyExists where it ``is_new``, and there is one."""
        with self._lock:
            if is_new and name in self._blobs:
                raise BlobAlreadyExists
            self._blobs[name] = blob
            self._blocks.pop(name, None)

    def put_block(self, name: str, block_id: str, content: bytes, now: datetime) -> None:
        """Keep the block until a list names it, in place of the one that is there."""
        with self._lock:
            for old in [one for one, (_, used) in self._blocks.items() if now - used > _BLOCKS_LAST]:
                del self._blocks[old]
            blocks, _ = self._blocks.get(name, ({}, now))
            blocks[block_id] = content
            self._blocks[name] = blocks, now

    def find_blocks(self, name: str, wanted: Sequence[tuple[str, str]]) -> Sequence[tuple[str, bytes]]:
        """The blocks that a list names, each as Latest, Committed or Uncommitted; raises InvalidBlockList."""
        with self._lock:
            blob = self._blobs.get(name)
            committed = dict(blob.blocks) if blob else {}
            uncommitted, _ = self._blocks.get(name, ({}, None))
            where = {
                "Committed": committed,
                "Uncommitted": uncommitted,
                "Latest": {**committed, **uncommitted},
            }
            try:
                return [(block_id, where[kind][block_id]) for kind, block_id in wanted]
            except KeyError as error:
                raise InvalidBlockList(*error.args) from None

    def remove(self, name: str) -> None:
        """Forget the blob and its blocks, if they are there."""
        with self._lock:
            self._blobs.pop(name, None)
            self._blocks.pop(name, None)
