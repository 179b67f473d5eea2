"""The part of Azure Blob Storage that a signed URL opens: writing one block blob, and reading it.

It answers for the memory storage what Azure answers itself for the other. Its origin is this server's own, so
nothing that it serves is ever shown by a browser as a page. Requests carry their SAS: nothing here logs them.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from urllib.parse import unquote

from flask import Blueprint, Response, request
from lxml import etree
from werkzeug.exceptions import ClientDisconnected, RequestedRangeNotSatisfiable
from werkzeug.http import parse_range_header

from legacy_queue.adapters.memory_blob import (
    BlobAlreadyExists,
    InvalidBlockList,
    MemoryBlob,
    MemoryContainer,
)
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.gateway.azure_answers import answer, refused, with_common_headers
from legacy_queue.gateway.azure_errors import AzureError
from legacy_queue.gateway.shared_access import BLOB_SAS_FIELDS, authenticate_blob, parse_query
from legacy_queue.ports import Clock
from legacy_queue.services.upload_slots import UploadSlots

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
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


def blob_face(
    container: MemoryContainer, account: str, key: bytes, clock: Clock, slots: UploadSlots
) -> Blueprint:
    """PUT, GET and HEAD of ``/<account>/<container>/<blob>``, and PUT of its blocks and their list.

    To be mounted as ``azure_face`` is, beside it. Bodies may be as large as Azure takes them; whatever is
    written takes a slot while it is read, of those for its blob.
    """
    blueprint = Blueprint("blob_face", __name__)

    def serve(path: str) -> Response:
        request.max_content_length = _LARGEST_BODY + 1  # in place of the application's
        parameters, name = parse_query(request.query_string), unquote(path)
        is_read = request.method in ("GET", "HEAD")
        resource, permission = f"{account}/{container.name}/{name}", "r" if is_read else "w"
        authenticate_blob(parameters, resource, permission, key, request.scheme, clock.now())
        _check_names(parameters)
        match request.method, parameters.get("comp"):
            case "GET" | "HEAD", None:
                return _read(container, name)
            case "PUT", None | "block" | "blocklist":
                with _slot(slots, name):
                    return _write(container, name, parameters, clock)
        denied = request.method in ("GET", "HEAD", "PUT", "DELETE")
        raise AzureError("AuthorizationPermissionMismatch" if denied else "UnsupportedHttpVerb")

    blueprint.add_url_rule(
        f"/{account}/{container.name}/<path:path>",
        view_func=serve,
        methods=_METHODS,
        provide_automatic_options=False,
        merge_slashes=False,  # else a redirect would repeat the SAS
    )
    blueprint.register_error_handler(AzureError, refused)
    return blueprint


@contextmanager
def _slot(slots: UploadSlots, name: str) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(slots.taken(name))
        except ServiceUnavailable as error:
            raise AzureError("ServerBusy", error.message) from None
        yield


def _write(container: MemoryContainer, name: str, parameters: Mapping[str, str], clock: Clock) -> Response:
    match parameters.get("comp"):
        case "block":
            return _put_block(container, name, parameters.get("blockid", ""), clock)
        case "blocklist":
            return _put_block_list(container, name, clock)
    return _put(container, name, clock)


def _check_names(parameters: Mapping[str, str]) -> None:
    unknown = sorted(parameters.keys() - _PARAMETERS - BLOB_SAS_FIELDS)
    if unknown:
        raise AzureError("UnsupportedQueryParameter", f"{unknown[0]!r} is not one of {sorted(_PARAMETERS)}.")
    if not re.fullmatch("[0-9]{1,9}", parameters.get("timeout", "30")):
        raise AzureError("InvalidQueryParameterValue", "'timeout' is not a number of seconds.")


def _read(container: MemoryContainer, name: str) -> Response:
    blob = container.get(name)
    if blob is None:
        raise AzureError("BlobNotFound")
    length = blob.properties.length
    response = Response(blob.read(), content_type=blob.content_type)
    response.headers.update(_NEVER_INLINE)
    response.headers["x-ms-blob-type"] = "BlockBlob"
    response.headers["Accept-Ranges"] = "bytes"
    if blob.content_encoding:
        response.headers["Content-Encoding"] = blob.content_encoding
    _name_version(response, blob)
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


def _put(container: MemoryContainer, name: str, clock: Clock) -> Response:
    if request.headers.get("x-ms-blob-type") != "BlockBlob":
        raise AzureError("MissingRequiredHeader", "'x-ms-blob-type: BlockBlob' is what is kept here.")
    headers = request.headers
    blob = MemoryBlob(
        [("", _body())],
        headers.get("x-ms-blob-content-type") or headers.get("content-type") or "application/octet-stream",
        headers.get("x-ms-blob-content-encoding") or headers.get("content-encoding"),
        clock.now(),
    )
    return _keep(container, name, blob)


def _put_block(container: MemoryContainer, name: str, block_id: str, clock: Clock) -> Response:
    if not _is_block_id(block_id):
        raise AzureError("InvalidQueryParameterValue", "'blockid' is not base64 of 1 to 64 bytes.")
    container.put_block(name, block_id, _body(), clock.now())
    return answer(201)


def _put_block_list(container: MemoryContainer, name: str, clock: Clock) -> Response:
    wanted = _block_list(_body())
    try:
        blocks = container.find_blocks(name, wanted)
    except InvalidBlockList:
        raise AzureError("InvalidBlockList") from None
    headers = request.headers
    content_type = headers.get("x-ms-blob-content-type", "application/octet-stream")
    encoding = headers.get("x-ms-blob-content-encoding")
    return _keep(container, name, MemoryBlob(blocks, content_type, encoding, clock.now()))


def _keep(container: MemoryContainer, name: str, blob: MemoryBlob) -> Response:
    try:
        container.put(name, blob, is_new=request.headers.get("if-none-match") == "*")
    except BlobAlreadyExists:
        raise AzureError("BlobAlreadyExists") from None
    response = answer(201)
    _name_version(response, blob)
    return response


def _name_version(response: Response, blob: MemoryBlob) -> None:
    response.set_etag(blob.etag)
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


def _block_list(body: bytes) -> Sequence[tuple[str, str]]:
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
        self.wanted: list[tuple[str, str]] = []
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
            self.wanted.append((tag, self._text.strip()))

    def close(self) -> None:
        """Nothing is left to be done."""


def _is_block_id(text: str) -> bool:
    try:
        return 1 <= len(base64.b64decode(text, validate=True)) <= 64
    except (binascii.Error, ValueError):
        return False
