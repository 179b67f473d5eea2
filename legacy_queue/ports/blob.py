"""A container of block blobs, as in Azure Blob Storage."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol


class BlobAlreadyExists(Exception):
    """The blob exists, but the write was for a new blob."""


class BlockCountExceedsLimit(Exception):
    """The blob has the maximum number of uncommitted blocks already."""


class ConditionNotMet(Exception):
    """The blob is not the version that the write was meant to replace."""


class InvalidBlobOrBlock(Exception):
    """The block id is not as long as the ids of the blob's other uncommitted blocks."""


class InvalidBlockList(Exception):
    """The list names a block that does not exist."""


@dataclass(frozen=True)
class Written:
    """What a write of a blob returns."""

    etag: str
    modified: datetime


@dataclass(frozen=True)
class BlobProperties:
    """The properties of a blob. ``length`` is in bytes as stored, after any content encoding.

    ``md5``, in base64, is the value that a write passed. Azure computes it for a put if none was passed. The
    names in ``metadata`` are in lower case.
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
    """Block ids: ``committed`` are the blocks of the blob, in order; no list has named the others yet."""

    committed: Sequence[str]
    uncommitted: Sequence[str]


Block = tuple[Literal["Latest", "Committed", "Uncommitted"], str]  # which version of the block, and its id
Blocks = Sequence[Block]


@dataclass(frozen=True)
class WriteOptions:
    """Options of a write: properties of the blob, and which version of the blob it replaces."""

    is_new: bool = False
    replaces: str | None = None  # an ETag; None for any version
    md5: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


DEFAULTS = WriteOptions()


class BlobContainer(Protocol):
    """A container of blobs. A write stores the whole blob or nothing.

    All block ids of a blob have the same length, at most 64 bytes. A block list names at most ``max_blocks``.
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
        """Store the blob, and replace an earlier blob. On Azurite the uncommitted blocks stay.

        With ``is_new``, raises BlobAlreadyExists if the blob exists; on Azurite, also if it has an
        uncommitted block. Raises ConditionNotMet.
        """

    def put_block(self, name: str, block_id: str, content: bytes) -> None:
        """Store 1 byte to 4 MiB as an uncommitted block, and replace an uncommitted block with that id.

        Raises BlockCountExceedsLimit, though not before the blob has ``max_blocks`` uncommitted blocks.
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
        """Make the blob from these blocks. Raises InvalidBlockList, BlobAlreadyExists, ConditionNotMet."""

    def describe(self, name: str, wanted: BlobProperties) -> Written:
        """Set either content type, encoding and MD5, or the metadata, to those of ``wanted``.

        Raises ConditionNotMet if the blob's ETag is no longer the ETag of ``wanted``.
        """

    def block_list(self, name: str) -> BlockList | None:
        """Returns the blob's blocks, or None if neither the blob nor a block of it exists."""

    def discard_blocks(self, after: str, limit: int, is_over: Callable[[str], bool]) -> str | None:
        """Look at the next ``limit`` names, and discard the uncommitted blocks of blobs whose upload
        ``is_over``.

        Returns the last of these names, or None at the end. Azure discards such blocks itself after a week.
        """

    def properties(self, name: str) -> BlobProperties | None:
        """Returns the properties of the blob, or None if it does not exist."""

    def read(self, name: str) -> tuple[BlobProperties, Iterator[bytes]] | None:
        """Returns the blob's properties and its stored bytes in chunks, or None if it does not exist.

        If the blob is written or removed meanwhile, the chunks may raise ServiceUnavailable. They never mix
        two versions.
        """

    def delete(self, name: str) -> None:
        """Delete the blob, even if it is leased. Safe to repeat."""

    def upload_url(self, name: str, start: datetime, expiry: datetime) -> str:
        """Returns a URL, valid between these times, to write that blob by a PUT or by blocks and a list."""

    def download_url(self, name: str, start: datetime, expiry: datetime) -> str:
        """Returns a URL, valid between these times, to read that blob by GET and HEAD, whole or in ranges.

        The answer is an attachment, so that no browser shows it as a page of that server.
        """
