"""The part of Azure Blob Storage that a signed URL allows: to write one block blob, and to read it.

It works with every storage account. Its answers have the same origin as this server's web pages, so a browser
must never show one as a page. The query of a request has its SAS, so this module must never log a request.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import BytesIO
from typing import cast
from urllib.parse import unquote

from flask import Blueprint, Response, request
from werkzeug.exceptions import ClientDisconnected, RequestedRangeNotSatisfiable
from werkzeug.http import parse_range_header

from legacy_queue.domain.artifact import NEVER_INLINE, UPLOAD, run_of_blob
from legacy_queue.domain.errors import MalformedPayload
from legacy_queue.gateway.azure_protocol import (
    AzureError,
    Faults,
    RecordOf,
    answer,
    authenticated,
    blueprint_of,
    bytes_of_base64,
    check_timeout,
)
from legacy_queue.gateway.crc64 import crc64
from legacy_queue.ports import Clock, Waiter
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.blob import (
    BlobAlreadyExists,
    BlobContainer,
    BlobProperties,
    Block,
    BlockCountExceedsLimit,
    ConditionNotMet,
    InvalidBlobOrBlock,
    InvalidBlockList,
    WriteOptions,
    Written,
)
from legacy_queue.services.artifacts.upload_slots import UploadSlots
from legacy_queue.stores.blobs import BLOCK, Blobs

_MAX_BODY = 5000 * 1024 * 1024  # bytes
_MAX_BLOCK = 16 * 1024 * 1024  # bytes; clients of Azure send 4 or 8 MiB by default
_CHUNK = 256 * 1024  # bytes of a body that are read at once
_MAX_BLOCKS = 50_000
_MAX_BLOCK_LIST = 8 * 1024 * 1024  # bytes of XML; a list of _MAX_BLOCKS is shorter
_OF_EACH_BLOB = {  # headers of each read: there are only block blobs, without leases, and Azure encrypts all
    "x-ms-blob-type": "BlockBlob",
    "Accept-Ranges": "bytes",
    "x-ms-lease-state": "available",
    "x-ms-lease-status": "unlocked",
    "x-ms-server-encrypted": "true",
}
_MAX_METADATA = 8 * 1024  # bytes of names and values
_PART_MD5 = "x-ms-range-get-content-md5"
_MAX_PART_WITH_MD5 = 4 * 1024 * 1024  # bytes
_META = "x-ms-meta-"
_CRC64 = "x-ms-content-crc64"
_CONDITIONS = ("if-match", "if-none-match", "if-modified-since", "if-unmodified-since")
# The parts of a block list, as clients write it. ``*+`` never gives back what it has matched: a hostile
# document cannot make a match slow.
_BEGIN_OF_LIST = re.compile(rb"(?:\xef\xbb\xbf)?(?:<\?xml [^<>]{1,200}\?>)?\s*+<BlockList\s*+(/?)>\s*+")
_LISTED = re.compile(
    rb"(?:<!--[^-]{0,1000}+-->\s*+)?+"
    rb"<(Latest|Committed|Uncommitted)>\s*+([A-Za-z0-9+/=]{0,128}+)\s*+</\1\s*+>\s*+"
)
_END_OF_LIST = re.compile(rb"</BlockList\s*+>\s*+")


def azure_blob_api(
    account: StorageAccount,
    clock: Clock,
    waiter: Waiter,
    slots: UploadSlots,
    faults: Faults,
    record_of: RecordOf,
) -> Blueprint:
    """Serves PUT, GET and HEAD of ``/<account>/<container>/<blob>``, and PUT of its blocks and properties.

    Mount it next to ``azure_queue_api``. A blob may be as large as in Azure: it is stored while its body
    arrives. Each write occupies one of the slots for uploads until it is stored. ``faults`` apply to writes.
    """
    container = account.container
    endpoint = account.public_blobs
    blobs = Blobs(container, clock)

    def serve(path: str) -> Response:
        request.max_content_length = _MAX_BODY + 1
        name = unquote(path)
        permission = "r" if request.method in ("GET", "HEAD") else "w"
        record = record_of(request.environ)
        record.endpoint = UPLOAD if request.method == "PUT" else "download"
        resource = f"/blob/{endpoint.account}/{container.name}/{name}"
        parameters = authenticated(resource, permission, endpoint.key, clock.wall_time())
        check_timeout(parameters)
        match request.method, parameters.get("comp"):
            case "GET" | "HEAD", None:
                return _read(container, name)
            case "GET" | "HEAD", "metadata":
                return _read_metadata(container, name)
            case "PUT", "metadata" | "properties" as comp:
                return _describe(container, name, is_metadata=comp == "metadata")
            case "PUT", None | "block" | "blocklist":
                run = run_of_blob(name)
                record.runs = [run] if run else ()
                faults.cause_fault(request.environ, UPLOAD, run[0] if run else "")
                with slots.acquire(run, _in_memory(parameters)):
                    return _write(container, blobs, waiter, name, parameters)
        denied = request.method in ("GET", "HEAD", "PUT", "DELETE")
        raise AzureError("AuthorizationPermissionMismatch" if denied else "UnsupportedHttpVerb")

    return blueprint_of(
        "azure_blob_api", f"/{endpoint.account}/{container.name}/<path:path>", serve, record_of
    )


def _in_memory(parameters: Mapping[str, str]) -> int:
    """How many bytes of the body are in memory at once: all of a block, but only a piece of a whole blob."""
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
    response.headers.update({f"{_META}{key}": text for key, text in properties.metadata.items()})
    response.content_length = length
    response.last_modified = properties.modified
    if status := _unmet_condition(properties):
        if status == 412:
            raise AzureError("ConditionNotMet")
        response.headers["x-ms-error-code"] = "ConditionNotMet"
        response.response, response.status_code = [], status
        return response
    # Azure's clients send x-ms-range
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
    is_part = response.status_code == 206
    if properties.md5:  # Content-MD5 describes the body of the answer
        response.headers["x-ms-blob-content-md5" if is_part else "Content-MD5"] = properties.md5
    if request.headers.get(_PART_MD5) == "true":
        if not is_part or response.content_length > _MAX_PART_WITH_MD5:
            raise _invalid_header(_PART_MD5, f"expected a range of at most {_MAX_PART_WITH_MD5} bytes")
        md5 = hashlib.md5(response.get_data(), usedforsecurity=False)
        response.headers["Content-MD5"] = base64.b64encode(md5.digest()).decode()
    return response


def _read_metadata(container: BlobContainer, name: str) -> Response:
    properties = container.properties(name)
    if properties is None:
        raise AzureError("BlobNotFound")
    response = _with_version(answer(200), Written(properties.etag, properties.modified))
    response.headers.update({f"{_META}{key}": text for key, text in properties.metadata.items()})
    return response


def _unmet_condition(properties: BlobProperties) -> int:
    """412 or 304 if the blob does not meet a condition of the request, else 0. Source: RFC 9110, 13.2."""
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


def _write(
    container: BlobContainer, blobs: Blobs, waiter: Waiter, name: str, parameters: Mapping[str, str]
) -> Response:
    try:
        match parameters.get("comp"):
            case "block":
                return _put_block(container, waiter, name, parameters.get("blockid", ""))
            case "blocklist":
                return _put_block_list(container, waiter, name)
        return _put(container, blobs, waiter, name)
    except (
        BlobAlreadyExists,
        BlockCountExceedsLimit,
        ConditionNotMet,
        InvalidBlobOrBlock,
        InvalidBlockList,
    ) as error:
        raise AzureError(type(error).__name__) from None


def _put_block(container: BlobContainer, waiter: Waiter, name: str, block_id: str) -> Response:
    if not 1 <= (bytes_of_base64(block_id) or 0) <= 64:
        raise AzureError(
            "InvalidQueryParameterValue", "expected base64 of 1 to 64 bytes", parameter="blockid"
        )
    if request.content_length == 0:
        raise _invalid_header("content-length", "expected a block of at least a byte")
    body = _Body(waiter, _MAX_BLOCK)
    container.put_block(name, block_id, _whole(body))
    return _stored(body)


def _put_block_list(container: BlobContainer, waiter: Waiter, name: str) -> Response:
    options = _options(container, name)  # headers without x-ms-blob describe the list, not the blob
    body = _Body(waiter, _MAX_BLOCK_LIST)
    document = _whole(body)
    listed = waiter.run_long(lambda: _block_list(document))
    options = replace(options, md5=_declared_md5("x-ms-blob-content-md5"))
    written = container.put_block_list(name, listed, *_content("x-ms-blob-"), options)
    return _stored(body, written)


def _put(container: BlobContainer, blobs: Blobs, waiter: Waiter, name: str) -> Response:
    if (kind := request.headers.get("x-ms-blob-type")) != "BlockBlob":
        if kind:
            raise _invalid_header("x-ms-blob-type", "expected BlockBlob")
        raise AzureError("MissingRequiredHeader", elements={"HeaderName": "x-ms-blob-type"})
    options = _options(container, name)
    body = _Body(waiter, _MAX_BODY, "x-ms-blob-content-md5")
    written = blobs.write(name, body, *_content("x-ms-blob-", ""), lambda: replace(options, md5=body.md5))
    response = _stored(body, written)
    response.headers["Content-MD5"] = body.md5
    return response


def _describe(container: BlobContainer, name: str, *, is_metadata: bool) -> Response:
    properties = container.properties(name)
    if properties is None:
        raise AzureError("BlobNotFound")
    if _unmet_condition(properties):
        raise AzureError("ConditionNotMet")
    if is_metadata:
        wanted = replace(properties, metadata=_metadata())
    else:
        content_type, encoding = _content("x-ms-blob-")
        md5 = _declared_md5("x-ms-blob-content-md5")
        wanted = replace(properties, content_type=content_type, content_encoding=encoding, md5=md5)
    try:
        written = container.describe(name, wanted)
    except ConditionNotMet:
        raise AzureError("ConditionNotMet") from None
    return _with_version(answer(200), written)


def _options(container: BlobContainer, name: str) -> WriteOptions:
    """Returns the options of a write. If the request has conditions, it replaces only the checked version.

    Raises AzureError if the blob does not meet a condition.
    """
    metadata = _metadata()
    if request.if_none_match.star_tag:
        return WriteOptions(is_new=True, metadata=metadata)
    if not any(header in request.headers for header in _CONDITIONS):
        return WriteOptions(metadata=metadata)
    properties = container.properties(name)
    if _unmet_condition(properties) if properties else request.if_match:
        raise AzureError("ConditionNotMet")
    return WriteOptions(replaces=properties.etag if properties else None, metadata=metadata)


def _content(*prefixes: str) -> tuple[str, str | None]:
    """Returns content type and encoding, from the first header that exists for one of the prefixes."""
    content_type, encoding = (
        next(filter(None, (request.headers.get(f"{prefix}content-{name}") for prefix in prefixes)), None)
        for name in ("type", "encoding")
    )
    return content_type or "application/octet-stream", encoding


def _metadata() -> Mapping[str, str]:
    found = {
        name.lower().removeprefix(_META): text
        for name, text in request.headers.items()
        if name.lower().startswith(_META)
    }
    if not all(re.fullmatch("[a-z_][a-z0-9_]*", name) for name in found):
        raise AzureError("InvalidMetadata", "expected names of letters, digits and _")
    if sum(len(name) + len(text) for name, text in found.items()) > _MAX_METADATA:
        raise AzureError("MetadataTooLarge", f"expected at most {_MAX_METADATA} bytes")
    return found


def _stored(body: "_Body", written: Written | None = None) -> Response:
    """Returns what Azure answers to each write. Clients only check that the first header exists."""
    response = answer(201)
    response.headers["x-ms-request-server-encrypted"] = "true"
    response.headers.update(body.checked)
    return _with_version(response, written) if written else response


def _with_version(response: Response, written: Written) -> Response:
    response.headers["ETag"] = written.etag
    response.last_modified = written.modified
    return response


class _Body:
    """The body of a write, in chunks.

    Raises AzureError for wrong headers at once. At the end it raises AzureError if the body is incomplete or
    its checksum differs from the declared one. After that it has its ``md5``. ``checked`` has the headers
    with the declared checksums.
    """

    def __init__(self, waiter: Waiter, max_length: int, *md5_headers: str) -> None:
        length = request.content_length
        if length is None:
            raise AzureError("MissingContentLengthHeader")
        if length > max_length:
            raise AzureError("RequestBodyTooLarge", f"Expected at most {max_length} bytes.")
        self._waiter = waiter
        self._length = length
        self._md5s = [_declared_md5(header) for header in ("content-md5", *md5_headers)]
        self._crc64 = _declared_sum(_CRC64, 8, "InvalidHeaderValue")
        self.checked = {
            name: request.headers[name] for name in ("content-md5", _CRC64) if name in request.headers
        }
        if len(self.checked) > 1:
            raise AzureError("BothCrc64AndMd5HeaderPresent")
        self.md5 = ""

    def __iter__(self) -> Iterator[bytes]:
        received = 0
        crc = 0
        md5 = hashlib.md5(usedforsecurity=False)
        with suppress(MalformedPayload, OSError, ClientDisconnected):
            while chunk := request.stream.read(_CHUNK):
                received += len(chunk)
                md5.update(chunk)
                if self._crc64:
                    crc = self._waiter.run_long(partial(crc64, chunk, crc))
                yield chunk
        if received != self._length:
            raise AzureError("InvalidInput", f"The body ended after {received} of {self._length} bytes.")
        self.md5 = base64.b64encode(md5.digest()).decode()
        if any(declared not in (None, self.md5) for declared in self._md5s):
            raise AzureError("Md5Mismatch")
        if self._crc64 not in (None, base64.b64encode(crc.to_bytes(8, "little")).decode()):
            raise AzureError("Crc64Mismatch")


def _declared_md5(header: str) -> str | None:
    return _declared_sum(header, 16, "InvalidMd5")


def _declared_sum(header: str, length: int, code: str) -> str | None:
    """Returns the header, if there is one. Raises AzureError if it is not base64 of ``length`` bytes."""
    text = request.headers.get(header)
    if text is None or bytes_of_base64(text) == length:
        return text
    raise AzureError(code, elements={"HeaderName": header, "HeaderValue": text})


def _invalid_header(name: str, detail: str) -> AzureError:
    named = {"HeaderName": name, "HeaderValue": request.headers.get(name, "")}
    return AzureError("InvalidHeaderValue", detail, elements=named)


def _whole(chunks: Iterable[bytes]) -> bytes:
    """Returns the chunks in one piece. They are never in memory twice."""
    whole = BytesIO()
    for chunk in chunks:
        whole.write(chunk)
    return whole.getvalue()


def _block_list(body: bytes) -> Sequence[Block]:
    """Returns the kind and the id of each listed block. Raises AzureError for any other document.

    Only the one form that clients write is read, without an XML parser: so entities, attributes and nesting
    of a hostile document do no harm. Each step is short, so that other threads can go on.
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
        sentence = "Expected a BlockList without attributes, of Latest, Committed, Uncommitted."
        raise AzureError("InvalidXmlDocument", sentence)
    return wanted
