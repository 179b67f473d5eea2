"""A container of block blobs, as Azure Blob Storage has it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol


class BlobAlreadyExists(Exception):
    """The blob exists, and the write was for a new blob."""


class BlockCountExceedsLimit(Exception):
    """The blob has as many uncommitted blocks as are accepted."""


class ConditionNotMet(Exception):
    """The blob is another version than the one that the write replaces."""


class InvalidBlobOrBlock(Exception):
    """The id of the block has another length than those of the blob's other uncommitted blocks."""


class InvalidBlockList(Exception):
    """The list names a block that does not exist."""


@dataclass(frozen=True)
class Written:
    """The result of a write of a blob."""

    etag: str
    modified: datetime


@dataclass(frozen=True)
class BlobProperties:
    """``length`` in bytes as stored, after any content encoding.

    ``md5``, in base64, is what a write gave; Azure has that of a put by itself. The names of ``metadata`` are
    in lower case.
    """

    length: int
    content_type: str
    content_encoding: str | None
    modified: datetime
    etag: str
    md5: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BlockList:
    """Ids of blocks: the blocks of the blob, in order, and the blocks that no list has named yet."""

    committed: Sequence[str]
    uncommitted: Sequence[str]


Block = tuple[Literal["Latest", "Committed", "Uncommitted"], str]  # which version of the block, and its id
Blocks = Sequence[Block]


@dataclass(frozen=True)
class WriteOptions:
    """What a write may say beside the content: the properties, and which version of the blob it replaces."""

    is_new: bool = False
    replaces: str | None = None  # an ETag; None for any version
    md5: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


DEFAULTS = WriteOptions()


class BlobContainer(Protocol):
    """A blob is stored whole or not at all. The ids of its blocks have one length, 64 bytes at most.

    A list names ``max_blocks`` at most.
    """

    name: str
    max_blocks: int

    def put(
        self,
        name: str,
        content: bytes,
        content_type: str,
        encoding: str | None,
        options: WriteOptions = DEFAULTS,
    ) -> Written:
        """Store the blob; replaces an earlier blob. On Azurite its uncommitted blocks stay.

        With ``is_new``, raises BlobAlreadyExists for an existing blob, on Azurite also for an uncommitted
        block. Raises ConditionNotMet.
        """

    def put_block(self, name: str, block_id: str, content: bytes) -> None:
        """Store 1 byte to 4 MiB as an uncommitted block; replaces an uncommitted block of that id.

        Raises BlockCountExceedsLimit: a blob has at least ``max_blocks`` uncommitted blocks before.
        Raises InvalidBlobOrBlock.
        """

    def put_block_list(
        self,
        name: str,
        blocks: Blocks,
        content_type: str,
        encoding: str | None,
        options: WriteOptions = DEFAULTS,
    ) -> Written:
        """Make the blob of these blocks; raises InvalidBlockList, BlobAlreadyExists, ConditionNotMet."""

    def describe(self, name: str, wanted: BlobProperties) -> Written:
        """Give the blob the content type, encoding and MD5, or the metadata, of ``wanted``; not both.

        Raises ConditionNotMet if it is another version now than that with the ETag of ``wanted``.
        """

    def block_list(self, name: str) -> BlockList | None:
        """The blob's blocks; None where neither the blob nor a block of it exists."""

    def discard_blocks(self, after: str, limit: int, is_over: Callable[[str], bool]) -> str | None:
        """Discard the uncommitted blocks of the blobs whose upload ``is_over``: of the next ``limit`` names.

        Returns the last of them, None at the end. Azure discards such blocks by itself, after a week.
        """

    def properties(self, name: str) -> BlobProperties | None:
        """The properties of the blob, if it exists."""

    def read(self, name: str) -> tuple[BlobProperties, Iterator[bytes]] | None:
        """The blob's properties and its stored bytes in chunks; None for a missing blob.

        Where the blob is written or removed meanwhile, the chunks may raise ServiceUnavailable; they are
        never mixed.
        """

    def delete(self, name: str) -> None:
        """Delete the blob, leased or not. Safe to repeat."""

    def upload_url(self, name: str, start: datetime, expiry: datetime) -> str:
        """A URL, valid between the times, to write that blob: by one PUT, or by blocks and their list."""

    def download_url(self, name: str, start: datetime, expiry: datetime) -> str:
        """A URL, valid between the times, for reading that blob: GET and HEAD, whole or in ranges.

        The answer is an attachment: no browser shows it as a page of that origin.
        """
