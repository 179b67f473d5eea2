"""A container of block blobs, as Azure Blob Storage has it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol


class BlobAlreadyExists(Exception):
    """There is a blob of that name, and the write was for where there is none."""


class InvalidBlockList(Exception):
    """A block that the list names is not there."""


@dataclass(frozen=True)
class Written:
    """The blob that a write made."""

    etag: str
    modified: datetime


@dataclass(frozen=True)
class BlobProperties:
    """``length`` in bytes, as they are stored: encoded where there is an encoding."""

    length: int
    content_type: str
    content_encoding: str | None
    modified: datetime
    etag: str


@dataclass(frozen=True)
class BlockList:
    """Ids of blocks: those that make up the blob, in order, and those that no list has named yet."""

    committed: Sequence[str]
    uncommitted: Sequence[str]


Block = tuple[Literal["Latest", "Committed", "Uncommitted"], str]  # where to look for it, and its id
Blocks = Sequence[Block]


class BlobContainer(Protocol):
    """A blob is there as a whole or not at all. Ids of its blocks have the same length, 64 bytes at most."""

    name: str

    def put(
        self, name: str, content: bytes, content_type: str, encoding: str | None, *, is_new: bool = False
    ) -> Written:
        """Store the blob in place of what is there; on Azurite its uncommitted blocks stay.

        Raises BlobAlreadyExists where ``is_new``, and there is a blob, or on Azurite an uncommitted block.
        """

    def put_block(self, name: str, block_id: str, content: bytes) -> None:
        """Keep 1 to 4 MiB of bytes until a list names them, in place of an uncommitted block of that id."""

    def put_block_list(
        self, name: str, blocks: Blocks, content_type: str, encoding: str | None, *, is_new: bool = False
    ) -> Written:
        """Make the blob of these blocks; raises InvalidBlockList, BlobAlreadyExists."""

    def block_list(self, name: str) -> BlockList | None:
        """The blob's blocks; None where there is neither a blob nor a block of that name."""

    def properties(self, name: str) -> BlobProperties | None:
        """Of the blob, if it is there."""

    def read(self, name: str) -> tuple[BlobProperties, Iterator[bytes]] | None:
        """The blob and its bytes as they are stored, in chunks; None where there is none.

        Where it is written or removed meanwhile, the chunks may end with ServiceUnavailable, never mixed.
        """

    def delete(self, name: str) -> None:
        """The blob is not there any more, leased or not. Safe to repeat."""
