"""The part of Azure Blob Storage that a signed URL opens: writing one block blob, and reading it.

It answers for the memory storage what Azure answers itself for the other. Its origin is this server's own, so
nothing that it serves is ever shown by a browser as a page. Requests carry their SAS: nothing here logs them.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast
from urllib.parse import unquote

from flask import Blueprint, Response, request
from lxml import etree
from werkzeug.exceptions import ClientDisconnected, RequestedRangeNotSatisfiable
from werkzeug.http import parse_range_header

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.gateway.azure_answers import (
    AzureError,
    answer,
    blueprint_of,
    check_names,
    refused,
    with_common_headers,
)
from legacy_queue.gateway.shared_access import BLOB_SAS_FIELDS, authenticate, parse_query
from legacy_queue.ports import Clock
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.blob import (
    BlobAlreadyExists,
    BlobContainer,
    BlobProperties,
    Block,
    InvalidBlockList,
    Written,
)
from legacy_queue.services.upload_slots import UploadSlots

_PARAMETERS = {"comp", "blockid", "timeout"}
_LARGEST_BODY = 5000 * 1024 * 1024  # bytes
_MOST_BLOCKS = 50_000
_LONGEST_TEXT = 1024  # characters where a block's id is expected, which has 88 at most
_BLOCK_KINDS = ("Latest", "Committed", "Uncommitted")
_NEVER_INLINE = {
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "sandbox",
    "X-Content-Type-Options": "nosniff",
}


def blob_face(account: StorageAccount, clock: Clock, slots: UploadSlots) -> Blueprint:
    """PUT, GET and HEAD of ``/<account>/<container>/<blob>``, and PUT of its blocks and their list.

    To be mounted as ``azure_face`` is, beside it. Bodies may be as large as Azure takes them; whatever is
    written takes a slot while it is read, of those for its blob.
    """
    container, endpoint = account.container, account.public_blobs
    key = base64.b64decode(endpoint.key)

    def serve(path: str) -> Response:
        request.max_content_length = _LARGEST_BODY + 1  # in place of the application's
        parameters, name = parse_query(request.query_string), unquote(path)
        resource = f"/blob/{endpoint.account}/{container.name}/{name}"
        permission = "r" if request.method in ("GET", "HEAD") else "w"
        authenticate(parameters, resource, permission, key, request.scheme, clock.now())
        check_names(parameters, _PARAMETERS, BLOB_SAS_FIELDS)
        match request.method, parameters.get("comp"):
            case "GET" | "HEAD", None:
                return _read(container, name)
            case "PUT", None | "block" | "blocklist":
                try:
                    with slots.taken(name):
                        return _write(container, name, parameters)
                except ServiceUnavailable as error:
                    raise AzureError("ServerBusy", error.message) from None
        denied = request.method in ("GET", "HEAD", "PUT", "DELETE")
        raise AzureError("AuthorizationPermissionMismatch" if denied else "UnsupportedHttpVerb")

    return blueprint_of("blob_face", f"/{endpoint.account}/{container.name}/<path:path>", serve)


def _read(container: BlobContainer, name: str) -> Response:
    found = container.read(name)
    if found is None:
        raise AzureError("BlobNotFound")
    properties, chunks = found
    length = properties.length
    response = Response(chunks, content_type=properties.content_type)
    response.headers.update(_NEVER_INLINE)
    response.headers["x-ms-blob-type"] = "BlockBlob"
    response.headers["Accept-Ranges"] = "bytes"
    if properties.content_encoding:
        response.headers["Content-Encoding"] = properties.content_encoding
    _name_version(response, properties)
    response.content_length = length
    if "x-ms-range" in request.headers:  # Azure's own clients ask so
        request.environ["HTTP_RANGE"] = request.headers["x-ms-range"]
    wants_range = request.method == "GET" and _is_one_range(request.headers.get("range"))
    try:
        if wants_range and not length:
            raise RequestedRangeNotSatisfiable(length)
        response.make_conditional(request, accept_ranges=wants_range, complete_length=length)
    except RequestedRangeNotSatisfiable:
        refusal = refused(AzureError("InvalidRange"))
        refusal.headers["Content-Range"] = f"bytes */{length}"
        return refusal
    if response.status_code == 412:
        raise AzureError("ConditionNotMet")
    return with_common_headers(response)


def _is_one_range(header: str | None) -> bool:
    """What else a client may say is ignored, and answered with everything. Source: RFC 9110, 14.2."""
    wanted = parse_range_header(header)
    return wanted is not None and wanted.units == "bytes" and len(wanted.ranges) == 1


def _write(container: BlobContainer, name: str, parameters: Mapping[str, str]) -> Response:
    sent, comp = request.headers, parameters.get("comp")
    write: Callable[..., Written]
    if comp == "block":
        block_id = parameters.get("blockid", "")
        if not _is_block_id(block_id):
            raise AzureError("InvalidQueryParameterValue", "'blockid' is not base64 of 1 to 64 bytes.")
        container.put_block(name, block_id, _body())
        return answer(201)
    if comp == "blocklist":
        write = partial(container.put_block_list, name, _block_list(_body()))
    elif sent.get("x-ms-blob-type") != "BlockBlob":
        raise AzureError("MissingRequiredHeader", "'x-ms-blob-type: BlockBlob' is what is kept here.")
    else:
        write = partial(container.put, name, _body())

    def of_blob(header: str) -> str | None:
        return sent.get(f"x-ms-blob-{header}") or (None if comp else sent.get(header))

    content_type = of_blob("content-type") or "application/octet-stream"
    is_new = sent.get("if-none-match") == "*"
    try:
        written = write(content_type, of_blob("content-encoding"), is_new=is_new)
    except (BlobAlreadyExists, InvalidBlockList) as error:
        raise AzureError(type(error).__name__) from None
    response = answer(201)
    _name_version(response, written)
    return response


def _name_version(response: Response, blob: Written | BlobProperties) -> None:
    response.headers["ETag"] = blob.etag
    response.last_modified = blob.modified


def _body() -> bytes:
    """All of it, or an AzureError: a body that breaks off stores nothing."""
    length = request.content_length
    if length is None:
        raise AzureError("MissingContentLengthHeader")
    if length > _LARGEST_BODY:
        raise AzureError("RequestBodyTooLarge")
    try:
        body = request.stream.read()
    except (OSError, ClientDisconnected):
        body = b""
    if len(body) != length:
        raise AzureError("InvalidInput", f"The body ended after {len(body)} of {length} bytes.")
    digest = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
    if request.headers.get("content-md5", digest) != digest:
        raise AzureError("Md5Mismatch")
    return body


def _block_list(body: bytes) -> Sequence[Block]:
    """The kind and the id of each block that the body lists."""
    block_list = _BlockList()
    parser = etree.XMLParser(target=block_list, resolve_entities=False, no_network=True, load_dtd=False)  # type: ignore[arg-type]
    try:
        etree.fromstring(body, parser)
    except etree.XMLSyntaxError:
        raise AzureError("InvalidXmlDocument") from None
    return block_list.wanted


class _BlockList:
    """Reads a Put Block List as it is parsed: no tree is built, and what is refused ends the parsing."""

    def __init__(self) -> None:
        self.wanted: list[Block] = []
        self._depth, self._text = 0, ""

    def doctype(self, _name: str, _public_id: str | None, _url: str | None) -> None:
        raise AzureError("InvalidXmlDocument", "A document type declaration is not accepted.")

    def start(self, tag: str, _attributes: object) -> None:
        if tag not in (("BlockList",), _BLOCK_KINDS, ())[min(self._depth, 2)]:
            raise AzureError("InvalidXmlDocument", f"A BlockList is accepted, of {', '.join(_BLOCK_KINDS)}.")
        if len(self.wanted) == _MOST_BLOCKS:
            raise AzureError("InvalidBlockList", f"At most {_MOST_BLOCKS} blocks are accepted.")
        self._depth, self._text = self._depth + 1, ""

    def data(self, text: str) -> None:
        if self._depth == 2:
            self._text += text
        if len(self._text) > _LONGEST_TEXT:
            raise AzureError("InvalidBlockList")

    def end(self, tag: str) -> None:
        self._depth -= 1
        if self._depth:
            self.wanted.append(cast(Block, (tag, self._text.strip())))

    def close(self) -> None:
        """Nothing is left to be done."""


def _is_block_id(text: str) -> bool:
    try:
        return 1 <= len(base64.b64decode(text, validate=True)) <= 64
    except ValueError:
        return False
