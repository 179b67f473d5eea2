"""A container of Azure Blob Storage."""

import base64
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from urllib.parse import quote

from legacy_queue.adapters.azure.connection import Response
from legacy_queue.adapters.azure.rest import Missing, Request, RestClient, StorageRefused, elements, whole
from legacy_queue.adapters.signing import UrlSigner
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports.blob import (
    BlobAlreadyExists,
    BlobContainer,
    BlobProperties,
    BlockCountExceedsLimit,
    BlockList,
    Blocks,
    InvalidBlockList,
    Written,
)

_DOWNLOADED = 1024 * 1024  # bytes in one request: as much waits in memory for a slow client
_PIECE = 256 * 1024  # bytes
_NO_CONTAINER = {"ContainerNotFound": Missing}
_REFUSALS = {
    "BlobAlreadyExists": BlobAlreadyExists,
    "BlockCountExceedsLimit": BlockCountExceedsLimit,
    "ConditionNotMet": BlobAlreadyExists,
    "InvalidBlockList": InvalidBlockList,
}


class _Exists(Exception):
    """The container exists."""


class _Empty(Exception):
    """The blob has no bytes, and so no range of them."""


class AzureBlobContainer(BlobContainer):
    """Each operation is one request, but a read, which is one for each MiB."""

    max_blocks = 50_000

    def __init__(self, service: RestClient, name: str, signer: UrlSigner) -> None:
        self._service = service
        self._signer = signer
        self.name = name

    def create(self) -> None:
        """Create the container where it is missing."""
        params = [("restype", "container")]
        if not self._service.find(Request("GET", f"/{self.name}", params), whole, _NO_CONTAINER):
            with suppress(_Exists):  # another process was faster
                request = Request("PUT", f"/{self.name}", params, body=b"")
                self._service.send(request, whole, {"ContainerAlreadyExists": _Exists})

    def remove(self) -> None:
        """Delete the container and everything in it."""
        request = Request("DELETE", f"/{self.name}", [("restype", "container")])
        self._service.find(request, whole, _NO_CONTAINER)

    def put(
        self, name: str, content: bytes, content_type: str, encoding: str | None, *, is_new: bool = False
    ) -> Written:
        request = Request("PUT", self._path(name), headers={"x-ms-blob-type": "BlockBlob"}, body=content)
        return self._write(request, content_type, encoding, is_new)

    def put_block(self, name: str, block_id: str, content: bytes) -> None:
        params = [("blockid", _encoded(block_id)), ("comp", "block")]
        self._service.send(Request("PUT", self._path(name), params, body=content), whole, _REFUSALS)

    def put_block_list(
        self, name: str, blocks: Blocks, content_type: str, encoding: str | None, *, is_new: bool = False
    ) -> Written:
        ids = [f"<{kind}>{_encoded(block_id)}</{kind}>" for kind, block_id in blocks]
        body = f"<?xml version='1.0' encoding='utf-8'?><BlockList>{''.join(ids)}</BlockList>".encode()
        headers = {"content-type": "application/xml"}
        request = Request("PUT", self._path(name), [("comp", "blocklist")], headers, body)
        return self._write(request, content_type, encoding, is_new)

    def block_list(self, name: str) -> BlockList | None:
        params = [("blocklisttype", "all"), ("comp", "blocklist")]
        return self._service.find(Request("GET", self._path(name), params), _block_list)

    def discard_blocks(self, after: str, limit: int, is_over: Callable[[str], bool]) -> str | None:  # noqa: ARG002
        return None

    def properties(self, name: str) -> BlobProperties | None:
        return self._service.find(Request("HEAD", self._path(name)), _properties)

    def read(self, name: str) -> tuple[BlobProperties, Iterator[bytes]] | None:
        path = self._path(name)
        try:
            found = self._service.find(_part(path, 0), _first_part, {"InvalidRange": _Empty})
        except _Empty:
            empty = self.properties(name)
            return (empty, iter(())) if empty else None
        return (found[0], self._chunks(path, *found)) if found else None

    def delete(self, name: str) -> None:
        path = self._path(name)
        delete = Request("DELETE", path, headers={"x-ms-delete-snapshots": "include"})
        try:
            self._service.find(delete, whole)
        except StorageRefused as error:
            if error.code != "LeaseIdMissing":
                raise
            headers = {"x-ms-lease-action": "break", "x-ms-lease-break-period": "0"}
            self._service.find(Request("PUT", path, [("comp", "lease")], headers, b""), whole)
            self._service.find(delete, whole)

    def upload_url(self, name: str, start: datetime, expiry: datetime) -> str:
        return self._signer.upload_url(self.name, name, start, expiry)

    def download_url(self, name: str, start: datetime, expiry: datetime) -> str:
        return self._signer.download_url(self.name, name, start, expiry)

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

    def _chunks(self, path: str, properties: BlobProperties, content: bytes) -> Iterator[bytes]:
        """The first part, and the others as they are asked for."""
        start = 0
        while content:
            # in small pieces: each waits for its client as a whole
            for at in range(0, len(content), _PIECE):
                yield content[at : at + _PIECE]
            start += len(content)
            if start == properties.length:
                return
            request = _part(path, start, properties.etag)
            content = self._service.find(request, lambda answer: answer.body, {412: Missing}) or b""
        raise ServiceUnavailable("the blob changed while it was read, try again")


def _written(response: Response) -> Written:
    return Written(response.headers["etag"], parsedate_to_datetime(response.headers["last-modified"]))


def _encoded(block_id: str) -> str:
    """Azure requires ids in base64."""
    return base64.b64encode(block_id.encode()).decode()


def _block_list(response: Response) -> BlockList:
    found = elements(response, "BlockList")
    committed, uncommitted = (
        [base64.b64decode(name.text).decode() for name in found.iterfind(f"{kind}Blocks/Block/Name")]
        for kind in ("Committed", "Uncommitted")
    )
    return BlockList(committed, uncommitted)


def _part(path: str, start: int, etag: str | None = None) -> Request:
    """The request for a part of the blob, which must have that etag."""
    headers = {"x-ms-range": f"bytes={start}-{start + _DOWNLOADED - 1}"}
    return Request("GET", path, headers={**headers, "if-match": etag} if etag else headers)


def _first_part(response: Response) -> tuple[BlobProperties, bytes]:
    return _properties(response), response.body


def _properties(response: Response) -> BlobProperties:
    headers = response.headers
    whole = headers.get("content-range", "").partition("/")[2] or headers["content-length"]
    return BlobProperties(
        int(whole),
        headers.get("content-type", ""),
        headers.get("content-encoding"),
        parsedate_to_datetime(headers["last-modified"]),
        headers["etag"],
    )
