"""A container of Azure Blob Storage."""

import base64
from collections.abc import Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

from azure.core.exceptions import HttpResponseError, ResourceModifiedError
from azure.storage.blob import BlobClient, BlobLeaseClient, ContainerClient
from azure.storage.blob import BlobProperties as AzureProperties

from legacy_queue.adapters.azure import sdk
from legacy_queue.adapters.azure.connection import Response
from legacy_queue.adapters.azure.rest import Request, RestClient
from legacy_queue.adapters.azure.sdk import ask, find
from legacy_queue.adapters.signing import UrlSigner
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports.blob import (
    BlobAlreadyExists,
    BlobContainer,
    BlobProperties,
    BlockList,
    Blocks,
    InvalidBlockList,
    Written,
)

_PIECE = 256 * 1024  # bytes
_REFUSALS = {
    "BlobAlreadyExists": BlobAlreadyExists,
    "ConditionNotMet": BlobAlreadyExists,
    "InvalidBlockList": InvalidBlockList,
}


class AzureBlobContainer(BlobContainer):
    """Writes by RestClient, since the SDK reorders blocks by kind; the SDK's ``client`` does the rest."""

    def __init__(self, service: RestClient, client: ContainerClient, signer: UrlSigner) -> None:
        self._service = service
        self._client = client
        self._signer = signer
        self.name = client.container_name

    def put(
        self, name: str, content: bytes, content_type: str, encoding: str | None, *, is_new: bool = False
    ) -> Written:
        request = Request("PUT", self._path(name), headers={"x-ms-blob-type": "BlockBlob"}, body=content)
        return self._write(request, content_type, encoding, is_new)

    def put_block(self, name: str, block_id: str, content: bytes) -> None:
        ask(self._blob(name).stage_block, block_id, content)

    def put_block_list(
        self, name: str, blocks: Blocks, content_type: str, encoding: str | None, *, is_new: bool = False
    ) -> Written:
        # Azure requires ids in base64, as the SDK sends those of blocks
        ids = [f"<{kind}>{base64.b64encode(name.encode()).decode()}</{kind}>" for kind, name in blocks]
        body = f"<?xml version='1.0' encoding='utf-8'?><BlockList>{''.join(ids)}</BlockList>".encode()
        headers = {"content-type": "application/xml"}
        request = Request("PUT", self._path(name), [("comp", "blocklist")], headers, body)
        return self._write(request, content_type, encoding, is_new)

    def block_list(self, name: str) -> BlockList | None:
        lists = find(self._blob(name).get_block_list, "all")
        return BlockList(*([str(block.id) for block in blocks] for blocks in lists)) if lists else None

    def properties(self, name: str) -> BlobProperties | None:
        properties = find(self._blob(name).get_blob_properties)
        return _properties(properties) if properties else None

    def read(self, name: str) -> tuple[BlobProperties, Iterator[bytes]] | None:
        download = find(self._blob(name).download_blob, decompress=False)
        # which is false for an empty blob
        return None if download is None else (_properties(download.properties), _chunks(download.chunks()))

    def delete(self, name: str) -> None:
        blob = self._blob(name)
        try:
            find(blob.delete_blob, delete_snapshots="include")
        except HttpResponseError as error:
            if sdk.error_code(error) != "LeaseIdMissing":
                raise
            find(BlobLeaseClient(blob).break_lease, 0)
            find(blob.delete_blob, delete_snapshots="include")

    def upload_url(self, name: str, start: datetime, expiry: datetime) -> str:
        return self._signer.upload_url(self.name, name, start, expiry)

    def download_url(self, name: str, start: datetime, expiry: datetime) -> str:
        return self._signer.download_url(self.name, name, start, expiry)

    def _blob(self, name: str) -> BlobClient:
        return self._client.get_blob_client(name)

    def _path(self, name: str) -> str:
        return f"/{self.name}/{quote(name)}"

    def _write(self, request: Request, content_type: str, encoding: str | None, is_new: bool) -> Written:
        headers = {
            **request.headers,
            "x-ms-blob-content-type": content_type,
            **({"x-ms-blob-content-encoding": encoding} if encoding else {}),
            **({"if-none-match": "*"} if is_new else {}),
        }
        return self._service.send(request._replace(headers=headers), _written, _REFUSALS)


def _written(response: Response) -> Written:
    return Written(response.headers["etag"], parsedate_to_datetime(response.headers["last-modified"]))


def _properties(azure: AzureProperties) -> BlobProperties:
    content = azure.content_settings
    return BlobProperties(
        azure.size, content.content_type or "", content.content_encoding, azure.last_modified, str(azure.etag)
    )


def _chunks(chunks: Iterator[Any]) -> Iterator[bytes]:
    while True:
        try:
            chunk = find(next, chunks, b"")
        except ResourceModifiedError:
            chunk = None
        if chunk is None:
            raise ServiceUnavailable("the blob changed while it was read, try again")
        if not chunk:
            return
        # in small pieces: each waits for its client as a whole
        yield from (chunk[start : start + _PIECE] for start in range(0, len(chunk), _PIECE))
