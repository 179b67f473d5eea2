"""The JSON schemas of artifacts. Source: the original's of 2018; today's for links and objects."""

from collections.abc import Mapping
from types import MappingProxyType

from legacy_queue.http.schema_helpers import STRING, Schema, array, each, enum, text
from legacy_queue.http.schema_properties import MAX_PARTS, PROPERTIES, URL, WORKER, object_of, page_of


def _by_storage_type(
    required: dict[str, str], optional: Mapping[str, str] = MappingProxyType({}), **own: Schema
) -> Schema:
    """An object whose storageType decides which other properties it has."""
    names = dict.fromkeys(" ".join([*required.values(), *optional.values()]).split())

    def rule(storage_type: str) -> Schema:
        needed = required[storage_type].split()
        unfit = names.keys() - {*needed, *optional.get(storage_type, "").split()}
        return {
            "if": {"required": ["storageType"], "properties": {"storageType": {"const": storage_type}}},
            "then": {"required": needed, "properties": dict.fromkeys(sorted(unfit), False)},
        }

    own = {"storageType": enum(" ".join(required)), **own}
    return {
        **object_of("storageType", " ".join(names), **own),
        "allOf": [rule(storage_type) for storage_type in required],
    }


CONTENT_TYPE = text(255, "[!-~](?:[ -~]*[!-~])?")  # valid in a header

_ARTIFACT_REQUEST = _by_storage_type(
    {
        "s3": "expires contentType",
        "azure": "expires contentType",
        "blob": "expires contentType contentLength contentSha256",
        "object": "expires contentType",
        "reference": "expires contentType url",
        "link": "expires artifact",
        "error": "expires reason message",
    },
    {
        "blob": "contentEncoding transferLength transferSha256 parts",
        **dict.fromkeys(("s3", "object"), "contentLength"),  # sent by today's workers, and ignored
        "link": "contentType",
    },
    contentType=CONTENT_TYPE,
    artifact=text(1024, "[ -~]+"),
    parts=array(object_of("sha256 size"), minItems=1, maxItems=MAX_PARTS),
    url=text(4096, URL),
    reason=enum("file-missing-on-worker invalid-resource-on-worker too-large-file-on-worker"),
)
_UPLOADED = "expires contentType putUrl"
_ARTIFACT_RESPONSE = _by_storage_type(
    {
        **dict.fromkeys(("s3", "azure"), _UPLOADED),
        "blob": "expires requests",
        "object": "name projectId uploadId expires credentials",
        **dict.fromkeys(("reference", "link", "error"), ""),
    },
    name=STRING,
    requests=array(object_of("method url headers", method=enum("PUT"), url=STRING)),
)
_ARTIFACT_CONTENT = _by_storage_type(
    {"s3": "url", "object": "name credentials", "reference": "url", "error": "reason message"},
    **each("url name reason", STRING),
)

PROPERTIES["artifact"] = object_of("storageType name expires contentType", name=text(1024))

ARTIFACT_SCHEMAS: dict[str, Schema] = {
    "post-artifact-request": _ARTIFACT_REQUEST,
    "post-artifact-response": _ARTIFACT_RESPONSE,
    "put-artifact-request": {**object_of("", "etags uploadId"), "minProperties": 1, "maxProperties": 1},
    "finish-artifact-request": object_of("uploadId"),
    "artifact-response": PROPERTIES["artifact"],
    "artifact-content-response": _ARTIFACT_CONTENT,
    "list-artifacts-response": page_of("artifacts", PROPERTIES["artifact"]),
    "artifact-created-message": object_of(f"version status runId {WORKER} artifact"),
}
