"""A container of Azure Blob Storage."""

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

from azure.core import MatchConditions
from azure.storage.blob import BlobLeaseClient, ContainerClient, ContentSettings

from legacy_queue.adapters.azure.errors import Missing, Refusals, call, find, present
from legacy_queue.adapters.url_signer import UrlSigner
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports import AlreadyExists
from legacy_queue.ports.blob import (
    DEFAULTS,
    BlobAlreadyExists,
    BlobContainer,
    BlobProperties,
    BlockCountExceedsLimit,
    BlockList,
    Blocks,
    ConditionNotMet,
    InvalidBlobOrBlock,
    InvalidBlockList,
    WriteOptions,
    Written,
)

DOWNLOADED = 1024 * 1024  # bytes in one request, which is also how much waits in memory for a slow client
_PIECE = 256 * 1024  # bytes
_NO_CONTAINER = {"ContainerNotFound": Missing}
_REFUSALS = {
    "BlobAlreadyExists": BlobAlreadyExists,
    "BlockCountExceedsLimit": BlockCountExceedsLimit,
    "ConditionNotMet": ConditionNotMet,
    "InvalidBlobOrBlock": InvalidBlobOrBlock,
    "InvalidBlockList": InvalidBlockList,
}


class _Leased(Exception):
    """Somebody has a lease on the blob."""


class AzureBlobContainer(BlobContainer):
    """A container. Each operation is one request, but a read is one request for each MiB.

    ``missing`` makes the error for a write if the container does not exist.
    """

    max_blocks = 50_000

    def __init__(self, client: ContainerClient, signer: UrlSigner, missing: Callable[[], Exception]) -> None:
        self._client: Any = client
        self._refusals: Refusals = {**_REFUSALS, "ContainerNotFound": missing}
        self._signer = signer
        self.name = client.container_name

    def create(self) -> bool:
        """Create the container if it is missing. Returns whether it was missing."""
        if find(self._client.get_container_properties, _NO_CONTAINER):
            return False
        with suppress(AlreadyExists):  # another process was faster
            call(self._client.create_container, {"ContainerAlreadyExists": AlreadyExists})
        return True

    def remove(self) -> None:
        """Delete the container and everything in it."""
        find(self._client.delete_container, _NO_CONTAINER)

    def put(
        self,
        name: str,
        content: bytes,
        content_type: str,
        encoding: str | None,
        options: WriteOptions = DEFAULTS,
    ) -> Written:
        write = partial(self._client.get_blob_client(name).upload_blob, content, overwrite=True)
        return _written(write, content_type, encoding, options, self._refusals)

    def put_block(self, name: str, block_id: str, content: bytes) -> None:
        call(lambda: self._client.get_blob_client(name).stage_block(block_id, content), self._refusals)

    def put_block_list(
        self,
        name: str,
        blocks: Blocks,
        content_type: str,
        encoding: str | None,
        options: WriteOptions = DEFAULTS,
    ) -> Written:
        ids = [(kind, base64.b64encode(block_id.encode()).decode()) for kind, block_id in blocks]
        body = "".join([f"<{kind}>{block_id}</{kind}>" for kind, block_id in ids])

        # the SDK would drop the kinds of the blocks and change their order
        def replace_body(request: Any) -> None:
            request.http_request.set_bytes_body(f"<BlockList>{body}</BlockList>".encode())

        write = partial(
            self._client.get_blob_client(name).commit_block_list, [], raw_request_hook=replace_body
        )
        return _written(write, content_type, encoding, options, self._refusals)

    def describe(self, name: str, wanted: BlobProperties) -> Written:
        blob = self._client.get_blob_client(name)
        found = self.properties(name)
        if found is None or found.etag != wanted.etag:
            raise ConditionNotMet
        version = _condition(WriteOptions(replaces=wanted.etag))
        if found.metadata != wanted.metadata:
            return _answered(lambda: blob.set_blob_metadata(dict(wanted.metadata), **version), self._refusals)
        settings = _settings(wanted.content_type, wanted.content_encoding, wanted.md5)
        return _answered(lambda: blob.set_http_headers(settings, **version), self._refusals)

    def block_list(self, name: str) -> BlockList | None:
        get = self._client.get_blob_client(name).get_block_list
        return find(lambda: BlockList(*([block.id for block in blocks] for blocks in get("all"))))

    def discard_blocks(self, after: str, limit: int, is_over: Callable[[str], bool]) -> str | None:  # noqa: ARG002
        return None

    def properties(self, name: str) -> BlobProperties | None:
        return find(lambda: _properties(self._client.get_blob_client(name).get_blob_properties()))

    def read(self, name: str) -> tuple[BlobProperties, Iterator[bytes]] | None:
        download = self._client.get_blob_client(name).download_blob

        def found() -> tuple[BlobProperties, Iterator[bytes]]:
            stream = download()
            return _properties(stream.properties), _pieces(stream.chunks())

        return find(found)

    def delete(self, name: str) -> None:
        blob = self._client.get_blob_client(name)
        delete = partial(blob.delete_blob, delete_snapshots="include")
        try:
            find(delete, {"LeaseIdMissing": _Leased})
        except _Leased:
            find(lambda: BlobLeaseClient(blob).break_lease(0))
            find(delete)

    def upload_url(self, name: str, start: datetime, expiry: datetime) -> str:
        return self._signer.upload_url(self.name, name, start, expiry)

    def download_url(self, name: str, start: datetime, expiry: datetime) -> str:
        return self._signer.download_url(self.name, name, start, expiry)


def _written(
    write: Callable[..., Any],
    content_type: str,
    encoding: str | None,
    options: WriteOptions,
    refusals: Refusals,
) -> Written:
    settings = _settings(content_type, encoding, options.md5)
    metadata = {"metadata": dict(options.metadata)} if options.metadata else {}
    refusals = {**refusals, "ConditionNotMet": BlobAlreadyExists if options.is_new else ConditionNotMet}
    return _answered(lambda: write(content_settings=settings, **metadata, **_condition(options)), refusals)


def _settings(content_type: str, encoding: str | None, md5: str | None) -> ContentSettings:
    return ContentSettings(
        content_type, encoding, content_md5=bytearray(base64.b64decode(md5)) if md5 else None
    )


def _condition(options: WriteOptions) -> Mapping[str, Any]:
    if options.is_new:
        return {"etag": "*", "match_condition": MatchConditions.IfMissing}
    if options.replaces:
        return {"etag": options.replaces, "match_condition": MatchConditions.IfNotModified}
    return {}


def _answered(write: Callable[[], Any], refusals: Refusals) -> Written:
    def written() -> Written:
        answer = write()
        return Written(present(answer["etag"]), present(answer["last_modified"]))

    return call(written, refusals)


def _pieces(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the parts of a blob. Each is downloaded when the caller asks for it."""
    while (chunk := find(lambda: next(chunks, b""), {412: Missing})) != b"":
        if chunk is None:
            raise ServiceUnavailable("the blob changed while it was read, try again")
        # yield small pieces, because a piece stays in memory until its client has read it
        for at in range(0, len(chunk), _PIECE):
            yield chunk[at : at + _PIECE]


def _properties(found: Any) -> BlobProperties:
    settings = found.content_settings
    return BlobProperties(
        present(found.size),
        settings.content_type or "",
        settings.content_encoding,
        present(found.last_modified),
        present(found.etag),
        base64.b64encode(settings.content_md5).decode() if settings.content_md5 else None,
        {key.lower(): text for key, text in (found.metadata or {}).items()},
    )
