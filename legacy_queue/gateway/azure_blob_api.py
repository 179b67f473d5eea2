"""The part of Azure Blob Storage that a signed URL allows: writing one block blob, and reading it.

It serves any storage account, in memory or behind the gateway. It shares the origin of this server, so no
browser may show its answers as a page. Requests carry their SAS: this module never logs them.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from typing import cast
from urllib.parse import unquote

from flask import Blueprint, Response, request
from werkzeug.exceptions import ClientDisconnected, RequestedRangeNotSatisfiable
from werkzeug.http import parse_range_header

from legacy_queue.domain.artifact import NEVER_INLINE, run_of_blob
from legacy_queue.domain.errors import MalformedPayload
from legacy_queue.domain.fault import UPLOAD
from legacy_queue.gateway.azure_protocol import (
    AzureError,
    Observer,
    answer,
    authenticated,
    blueprint_of,
    check_timeout,
)
from legacy_queue.outside_loop import outside_loop
from legacy_queue.ports import Clock
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.blob import (
    BlobAlreadyExists,
    BlobContainer,
    BlobProperties,
    Block,
    BlockCountExceedsLimit,
    InvalidBlockList,
)
from legacy_queue.services.artifacts.upload_slots import UploadSlots
from legacy_queue.stores.blobs import BLOCK, Blobs

_MAX_BODY = 5000 * 1024 * 1024  # bytes
_MAX_BLOCK = 16 * 1024 * 1024  # bytes; clients of Azure send 4 or 8 MiB by default
_CHUNK = 256 * 1024  # bytes of a body read at once
_MAX_BLOCKS = 50_000
_MAX_BLOCK_LIST = 8 * 1024 * 1024  # bytes of XML; _MAX_BLOCKS need less
_OF_EACH_BLOB = {  # headers of reads: there are no other blobs, no leases, and Azure encrypts all
    "x-ms-blob-type": "BlockBlob",
    "Accept-Ranges": "bytes",
    "x-ms-lease-state": "available",
    "x-ms-lease-status": "unlocked",
    "x-ms-server-encrypted": "true",
}
_BLOCK_KINDS = ("Latest", "Committed", "Uncommitted")
# of a block list, as clients write it; ``*+`` does not try again what it has matched
_BEGIN_OF_LIST = re.compile(rb"(?:\xef\xbb\xbf)?(?:<\?xml [^<>]{1,200}\?>)?\s*+<BlockList\s*+(/?)>\s*+")
_LISTED = re.compile(
    rb"(?:<!--[^-]{0,1000}+-->\s*+)?+"
    rb"<(Latest|Committed|Uncommitted)>\s*+([A-Za-z0-9+/=]{0,128}+)\s*+</\1\s*+>\s*+"
)
_END_OF_LIST = re.compile(rb"</BlockList\s*+>\s*+")


def azure_blob_api(
    account: StorageAccount, clock: Clock, slots: UploadSlots, observer: Observer
) -> Blueprint:
    """PUT, GET and HEAD of ``/<account>/<container>/<blob>``, and PUT of its blocks and their list.

    Mount it beside ``azure_queue_api``. A blob may be as large as in Azure and is stored as its body arrives.
    Each write holds a slot of its run meanwhile. ``observer`` may cause faults of writes.
    """
    container = account.container
    endpoint = account.public_blobs
    blobs = Blobs(container, clock)

    def serve(path: str) -> Response:
        request.max_content_length = _MAX_BODY + 1
        name = unquote(path)
        permission = "r" if request.method in ("GET", "HEAD") else "w"
        observer.record_endpoint(request.environ, UPLOAD if request.method == "PUT" else "download")
        resource = f"/blob/{endpoint.account}/{container.name}/{name}"
        parameters = authenticated(resource, permission, endpoint.key, clock.wall_time())
        check_timeout(parameters)
        match request.method, parameters.get("comp"):
            case "GET" | "HEAD", None:
                return _read(container, name)
            case "PUT", None | "block" | "blocklist":
                run = run_of_blob(name)
                observer.cause_fault(request.environ, UPLOAD, [run] if run else [])
                with slots.acquire(run, _in_memory(parameters)):
                    return _write(container, blobs, name, parameters)
        denied = request.method in ("GET", "HEAD", "PUT", "DELETE")
        raise AzureError("AuthorizationPermissionMismatch" if denied else "UnsupportedHttpVerb")

    return blueprint_of(
        "azure_blob_api", f"/{endpoint.account}/{container.name}/<path:path>", serve, observer
    )


def _in_memory(parameters: Mapping[str, str]) -> int:
    """How many bytes of the body are in memory at once: a block is, a whole blob is stored in pieces."""
    return min(request.content_length or 0, _MAX_BLOCK if "comp" in parameters else BLOCK)


def _read(container: BlobContainer, name: str) -> Response:
    blob = container.read(name)
    if blob is None:
        raise AzureError("BlobNotFound")
    properties, chunks = blob
    length = properties.length
    response = Response(chunks, content_type=properties.content_type, headers=NEVER_INLINE)
    response.headers |= _OF_EACH_BLOB | {"ETag": properties.etag}
    if properties.content_encoding:
        response.headers["Content-Encoding"] = properties.content_encoding
    response.content_length = length
    response.last_modified = properties.modified
    if status := _unmet_condition(properties):
        if status == 412:
            raise AzureError("ConditionNotMet")
        response.headers["x-ms-error-code"] = "ConditionNotMet"
        response.response, response.status_code = [], status
        return response
    # clients of Azure send x-ms-range
    environ = {"HTTP_RANGE": request.headers.get("x-ms-range") or request.headers.get("range", "")}
    environ["REQUEST_METHOD"] = request.method
    # an invalid or multiple range is ignored. Source: RFC 9110, 14.2
    wanted = parse_range_header(environ["HTTP_RANGE"]) if request.method == "GET" else None
    has_range = wanted is not None and wanted.units == "bytes" and len(wanted.ranges) == 1
    try:
        if has_range and not length:
            raise RequestedRangeNotSatisfiable(length)
        response.make_conditional(environ, accept_ranges=has_range, complete_length=length)
    except RequestedRangeNotSatisfiable:
        raise AzureError("InvalidRange", headers={"Content-Range": f"bytes */{length}"}) from None
    return response


def _unmet_condition(properties: BlobProperties) -> int:
    """412 or 304 where the blob does not meet a condition of the request, else 0. Source: RFC 9110, 13.2."""
    etag = properties.etag.strip('"')
    modified = properties.modified.replace(microsecond=0)
    if request.if_match:
        if not request.if_match.contains(etag):
            return 412
    elif request.if_unmodified_since and modified > request.if_unmodified_since:
        return 412
    if request.if_none_match:
        return 304 if request.if_none_match.contains_weak(etag) else 0
    return 304 if request.if_modified_since and modified <= request.if_modified_since else 0


def _write(container: BlobContainer, blobs: Blobs, name: str, parameters: Mapping[str, str]) -> Response:
    sent = request.headers
    comp = parameters.get("comp")
    if comp == "block":
        block_id = parameters.get("blockid", "")
        if not _is_block_id(block_id):
            raise AzureError(
                "InvalidQueryParameterValue", "expected base64 of 1 to 64 bytes", parameter="blockid"
            )
        try:
            container.put_block(name, block_id, _whole(_body(_MAX_BLOCK)))
        except BlockCountExceedsLimit:
            raise AzureError("BlockCountExceedsLimit") from None
        return _stored()
    if comp is None and (kind := sent.get("x-ms-blob-type")) != "BlockBlob":
        named = {"HeaderName": "x-ms-blob-type", **({"HeaderValue": kind} if kind else {})}
        raise AzureError("InvalidHeaderValue" if kind else "MissingRequiredHeader", elements=named)
    # in a request with a block list, headers without x-ms-blob describe the list
    content_type, encoding = (
        sent.get(f"x-ms-blob-{header}") or (None if comp else sent.get(header))
        for header in ("content-type", "content-encoding")
    )
    is_new = sent.get("if-none-match") == "*"
    properties = content_type or "application/octet-stream", encoding
    try:
        if comp:
            document = _whole(_body(_MAX_BLOCK_LIST))
            listed = outside_loop(lambda: _block_list(document))
            written = container.put_block_list(name, listed, *properties, is_new=is_new)
        else:
            written = blobs.write(name, _body(_MAX_BODY), *properties, is_new=is_new)
    except (BlobAlreadyExists, BlockCountExceedsLimit, InvalidBlockList) as error:
        raise AzureError(type(error).__name__) from None
    response = _stored()
    response.headers["ETag"] = written.etag
    response.last_modified = written.modified
    return response


def _stored() -> Response:
    """What Azure answers to each write; clients read no more from this header than that it is there."""
    response = answer(201)
    response.headers["x-ms-request-server-encrypted"] = "true"
    return response


def _body(max_length: int) -> Iterator[bytes]:
    """The body in chunks; raises AzureError, at its end if it is incomplete."""
    length = request.content_length
    received = 0
    md5 = hashlib.md5(usedforsecurity=False)
    if length is None:
        raise AzureError("MissingContentLengthHeader")
    if length > max_length:
        raise AzureError("RequestBodyTooLarge", f"At most {max_length} bytes are accepted.")
    with suppress(MalformedPayload, OSError, ClientDisconnected):
        while chunk := request.stream.read(_CHUNK):
            received += len(chunk)
            md5.update(chunk)
            yield chunk
    if received != length:
        raise AzureError("InvalidInput", f"The body ended after {received} of {length} bytes.")
    digest = base64.b64encode(md5.digest()).decode()
    if request.headers.get("content-md5", digest) != digest:
        raise AzureError("Md5Mismatch")


def _whole(chunks: Iterator[bytes]) -> bytes:
    """The chunks in one piece, which are never in memory twice."""
    whole = BytesIO()
    for chunk in chunks:
        whole.write(chunk)
    return whole.getvalue()


def _block_list(body: bytes) -> Sequence[Block]:
    """The kind and the id of each listed block. Raises AzureError.

    The document has one form, so that no entity, attribute or depth of a hostile one needs to be parsed; each
    step is short, so that other threads go on.
    """
    wanted: list[Block] = []
    begin = _BEGIN_OF_LIST.match(body)
    if begin is None:
        raise AzureError("InvalidXmlDocument", "Expected a BlockList.")
    at = begin.end()
    while block := _LISTED.match(body, at):
        if len(wanted) == _MAX_BLOCKS:
            raise AzureError("InvalidBlockList", f"Expected at most {_MAX_BLOCKS} blocks.")
        kind, block_id = (group.decode() for group in block.groups(b""))
        wanted.append(cast(Block, (kind, block_id)))
        at = block.end()
    if not (body.endswith(b"/>") if begin[1] else _END_OF_LIST.fullmatch(body, at)):
        kinds = ", ".join(_BLOCK_KINDS)
        raise AzureError("InvalidXmlDocument", f"Expected a BlockList without attributes, of {kinds}.")
    return wanted


def _is_block_id(text: str) -> bool:
    try:
        return 1 <= len(base64.b64decode(text, validate=True)) <= 64
    except ValueError:
        return False
