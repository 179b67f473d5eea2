"""A container of Azure Blob Storage."""

import base64
from collections.abc import Iterator, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape

from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.storage.blob import BlobClient, BlobLeaseClient, ContainerClient, ContentSettings
from azure.storage.blob import BlobProperties as AzureProperties

from legacy_queue.adapters.azure.client import error_code, unavailable_when_down
from legacy_queue.adapters.azure.http_response import Response
from legacy_queue.adapters.azure.rest import RestClient, StorageRefused
from legacy_queue.adapters.azure.rest import error_code as code_of
from legacy_queue.adapters.azure.signing import Request
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports.blob import (
    BlobAlreadyExists,
    BlobContainer,
    BlobProperties,
    Block,
    BlockList,
    InvalidBlockList,
    Written,
)


class AzureBlobContainer(BlobContainer):
    """By the SDK's ``client``, but for lists of blocks: the SDK sorts them by where they are looked for."""

    def __init__(self, service: RestClient, client: ContainerClient) -> None:
        self._service, self._client = service, client
        self.name = client.container_name

    def put(
        self,
        name: str,
        content: bytes,
        content_type: str,
        content_encoding: str | None,
        *,
        is_new: bool = False,
    ) -> Written:
        settings = ContentSettings(content_type=content_type, content_encoding=content_encoding)
        try:
            with unavailable_when_down():
                written = self._blob(name).upload_blob(
                    content, overwrite=not is_new, content_settings=settings
                )
        except ResourceExistsError:
            raise BlobAlreadyExists from None
        return Written(str(written["etag"]), written["last_modified"])

    def put_block(self, name: str, block_id: str, content: bytes) -> None:
        with unavailable_when_down():
            self._blob(name).stage_block(block_id, content)

    def put_block_list(
        self,
        name: str,
        blocks: Sequence[Block],
        content_type: str,
        content_encoding: str | None,
        *,
        is_new: bool = False,
    ) -> Written:
        headers = {"content-type": "application/xml", "x-ms-blob-content-type": content_type}
        if content_encoding:
            headers["x-ms-blob-content-encoding"] = content_encoding
        if is_new:
            headers["if-none-match"] = "*"
        path, body = f"/{self.name}/{quote(name)}", _block_list(blocks)
        response = self._service.send(
            Request("PUT", path, [("comp", "blocklist")], headers, body), (400, 409, 412)
        )
        if response.status >= 400:
            raise _refused(response)
        return self._service.read(response, _written)

    def block_list(self, name: str) -> BlockList | None:
        try:
            with unavailable_when_down():
                committed, uncommitted = self._blob(name).get_block_list("all")
        except ResourceNotFoundError:
            return None
        return BlockList([str(one.id) for one in committed], [str(one.id) for one in uncommitted])

    def properties(self, name: str) -> BlobProperties | None:
        try:
            with unavailable_when_down():
                return _properties(self._blob(name).get_blob_properties())
        except ResourceNotFoundError:
            return None

    def read(self, name: str) -> tuple[BlobProperties, Iterator[bytes]] | None:
        try:
            with unavailable_when_down():
                download = self._blob(name).download_blob(decompress=False)
        except ResourceNotFoundError:
            return None
        return _properties(download.properties), _each(download.chunks())

    def delete(self, name: str) -> None:
        blob = self._blob(name)
        try:
            _delete(blob)
        except HttpResponseError as error:
            if error_code(error) != "LeaseIdMissing":
                raise
            with suppress(ResourceNotFoundError):
                with unavailable_when_down():
                    BlobLeaseClient(blob).break_lease(0)
                _delete(blob)

    def _blob(self, name: str) -> BlobClient:
        return self._client.get_blob_client(name)


def _block_list(blocks: Sequence[Block]) -> bytes:
    """Azure wants ids in base64, as the SDK sends those of blocks."""
    lines = [
        f"<{kind}>{escape(base64.b64encode(block_id.encode()).decode())}</{kind}>"
        for kind, block_id in blocks
    ]
    return f"<?xml version='1.0' encoding='utf-8'?><BlockList>{''.join(lines)}</BlockList>".encode()


def _refused(response: Response) -> Exception:
    match response.status, code_of(response):
        case (409, "BlobAlreadyExists") | (412, "ConditionNotMet"):
            return BlobAlreadyExists()
        case 400, "InvalidBlockList":
            return InvalidBlockList()
        case status, code:
            return StorageRefused(status, code)


def _written(response: Response) -> Written:
    return Written(response.headers["etag"], parsedate_to_datetime(response.headers["last-modified"]))


def _properties(found: AzureProperties) -> BlobProperties:
    settings = found.content_settings
    return BlobProperties(
        length=found.size,
        content_type=settings.content_type or "",
        content_encoding=settings.content_encoding,
        modified=found.last_modified,
        etag=str(found.etag),
    )


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
