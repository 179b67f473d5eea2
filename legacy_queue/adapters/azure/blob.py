"""A container of Azure Blob Storage."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

from azure.core.exceptions import HttpResponseError, ResourceModifiedError
from azure.storage.blob import BlobClient, BlobLeaseClient, ContainerClient
from azure.storage.blob import BlobProperties as AzureProperties

from legacy_queue.adapters.azure import sdk
from legacy_queue.adapters.azure.http_response import Response
from legacy_queue.adapters.azure.rest import Request, RestClient, StorageRefused, error_code
from legacy_queue.adapters.azure.sdk import ask
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

_EXISTS = [(409, "BlobAlreadyExists"), (412, "ConditionNotMet")]


class AzureBlobContainer(BlobContainer):
    """Writes by requests of our own, since the SDK sorts blocks by where they are looked for; else by its
    ``client``.
    """

    def __init__(self, service: RestClient, client: ContainerClient) -> None:
        self._service, self._client = service, client
        self.name = client.container_name

    def put(
        self, name: str, content: bytes, content_type: str, encoding: str | None, *, is_new: bool = False
    ) -> Written:
        headers = {"x-ms-blob-type": "BlockBlob"}
        return self._write(name, [], headers, content, content_type, encoding, is_new)

    def put_block(self, name: str, block_id: str, content: bytes) -> None:
        ask(self._blob(name).stage_block, block_id, content)

    def put_block_list(
        self,
        name: str,
        blocks: Sequence[Block],
        content_type: str,
        encoding: str | None,
        *,
        is_new: bool = False,
    ) -> Written:
        # Azure wants ids in base64, as the SDK sends those of blocks
        ids = [f"<{kind}>{base64.b64encode(one.encode()).decode()}</{kind}>" for kind, one in blocks]
        body = f"<?xml version='1.0' encoding='utf-8'?><BlockList>{''.join(ids)}</BlockList>".encode()
        headers, params = {"content-type": "application/xml"}, [("comp", "blocklist")]
        return self._write(name, params, headers, body, content_type, encoding, is_new)

    def block_list(self, name: str) -> BlockList | None:
        found = ask(self._blob(name).get_block_list, "all")
        return BlockList(*([str(block.id) for block in blocks] for blocks in found)) if found else None

    def properties(self, name: str) -> BlobProperties | None:
        found = ask(self._blob(name).get_blob_properties)
        return _properties(found) if found else None

    def read(self, name: str) -> tuple[BlobProperties, Iterator[bytes]] | None:
        found = ask(self._blob(name).download_blob, decompress=False)
        return None if found is None else (_properties(found.properties), _each(found.chunks()))

    def delete(self, name: str) -> None:
        blob = self._blob(name)
        try:
            ask(blob.delete_blob, delete_snapshots="include")
        except HttpResponseError as error:
            if sdk.error_code(error) != "LeaseIdMissing":
                raise
            ask(BlobLeaseClient(blob).break_lease, 0)
            ask(blob.delete_blob, delete_snapshots="include")

    def _blob(self, name: str) -> BlobClient:
        return self._client.get_blob_client(name)

    def _write(
        self,
        name: str,
        params: Sequence[tuple[str, str]],
        headers: Mapping[str, str],
        body: bytes,
        content_type: str,
        encoding: str | None,
        is_new: bool,
    ) -> Written:
        headers = {
            **headers,
            "x-ms-blob-content-type": content_type,
            **({"x-ms-blob-content-encoding": encoding} if encoding else {}),
            **({"if-none-match": "*"} if is_new else {}),
        }
        request = Request("PUT", f"/{self.name}/{quote(name)}", params, headers, body)
        response = self._service.send(request, (400, 409, 412))
        if response.status < 400:
            return self._service.read(response, _written)
        refused = response.status, error_code(response)
        if refused in _EXISTS:
            raise BlobAlreadyExists
        raise InvalidBlockList if refused == (400, "InvalidBlockList") else StorageRefused(*refused)


def _written(response: Response) -> Written:
    return Written(response.headers["etag"], parsedate_to_datetime(response.headers["last-modified"]))


def _properties(found: AzureProperties) -> BlobProperties:
    content = found.content_settings
    return BlobProperties(
        found.size, content.content_type or "", content.content_encoding, found.last_modified, str(found.etag)
    )


def _each(chunks: Iterator[Any]) -> Iterator[bytes]:
    while True:
        try:
            chunk = ask(next, chunks, b"")
        except ResourceModifiedError:
            chunk = None
        if chunk is None:
            raise ServiceUnavailable("the blob changed while it was read, try again")
        if not chunk:
            return
        yield chunk
