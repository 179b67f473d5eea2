"""The JSON schemas of objects. Source: those of today's Object service."""

from legacy_queue.domain.artifact import MAX_UPLOAD_SIZE
from legacy_queue.http.artifact_schemas import CONTENT_TYPE
from legacy_queue.http.schema_helpers import STRING, Schema, each, enum, integer, text
from legacy_queue.http.schema_properties import object_of

_INLINE = object_of("contentType objectData", contentType=CONTENT_TYPE, objectData=text(10_926))  # 8 KiB
_TO_PUT = object_of(
    "contentType contentLength", contentType=CONTENT_TYPE, contentLength=integer(MAX_UPLOAD_SIZE)
)
_PUT_URL = object_of("url expires headers", url=STRING)
_HASHES: Schema = {
    "type": "object",
    "properties": {"sha256": text(64, "[a-z0-9]{64}"), "sha512": text(128, "[a-z0-9]{128}")},
    "additionalProperties": text(4096),  # hashes of other kinds are accepted, and not kept
    "maxProperties": 20,
}
_UPLOAD = "projectId uploadId"

OBJECT_SCHEMAS: dict[str, Schema] = {
    "create-upload-request": object_of(
        f"{_UPLOAD} expires proposedUploadMethods",
        proposedUploadMethods=object_of("", "dataInline putUrl", dataInline=_INLINE, putUrl=_TO_PUT),
    ),
    "create-upload-response": object_of(
        f"{_UPLOAD} expires uploadMethod",
        uploadMethod=object_of("", "dataInline putUrl", dataInline={"const": True}, putUrl=_PUT_URL),
    ),
    "finish-upload-request": object_of(_UPLOAD, "hashes", hashes=_HASHES),
    "download-object-request": object_of(
        "acceptDownloadMethods",
        acceptDownloadMethods=object_of("", "simple getUrl", **each("simple getUrl", {"const": True})),
    ),
    "download-object-response": object_of(
        "method url", "expires hashes", method=enum("simple getUrl"), url=STRING, hashes=_HASHES
    ),
    "get-object-response": object_of("projectId expires hashes", hashes=_HASHES),
}
