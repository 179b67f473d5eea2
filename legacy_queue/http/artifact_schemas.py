"""The JSON schemas of artifacts. Source: the original's ``schemas/`` of 2018."""

from legacy_queue.http.schema_helpers import STRING, Schema, array, enum, text
from legacy_queue.http.schema_properties import MAX_PARTS, PROPERTIES, URL, WORKER, object_of, page_of


def _by_storage_type(required: dict[str, str], of_blob: str = "", **own: Schema) -> Schema:
    """An object whose storageType decides which other properties it has; ``of_blob`` are optional."""
    names = dict.fromkeys(" ".join([*required.values(), of_blob]).split())

    def rule(storage_type: str) -> Schema:
        needed = required[storage_type].split()
        unfit = names.keys() - {*needed, *(of_blob.split() if storage_type == "blob" else ())}
        return {
            "if": {"required": ["storageType"], "properties": {"storageType": {"const": storage_type}}},
            "then": {"required": needed, "properties": dict.fromkeys(sorted(unfit), False)},
        }

    return {**object_of("storageType", " ".join(names), **own), "allOf": [rule(one) for one in required]}


_ARTIFACT_REQUEST = _by_storage_type(
    {
        "s3": "expires contentType",
        "azure": "expires contentType",
        "blob": "expires contentType contentLength contentSha256",
        "reference": "expires contentType url",
        "error": "expires reason message",
    },
    of_blob="contentEncoding transferLength transferSha256 parts",
    contentType=text(255, "[!-~](?:[ -~]*[!-~])?"),  # fit for a header
    parts=array(object_of("sha256 size"), minItems=1, maxItems=MAX_PARTS),
    url=text(4096, URL),
    reason=enum("file-missing-on-worker invalid-resource-on-worker too-large-file-on-worker"),
)
_UPLOADED = "expires contentType putUrl"
_ARTIFACT_RESPONSE = _by_storage_type(
    {"s3": _UPLOADED, "azure": _UPLOADED, "blob": "expires requests", "reference": "", "error": ""},
    requests=array(object_of("method url headers", method=enum("PUT"), url=STRING)),
)

PROPERTIES["artifact"] = object_of("storageType name expires contentType", name=text(1024))

ARTIFACT_SCHEMAS: dict[str, Schema] = {
    "post-artifact-request": _ARTIFACT_REQUEST,
    "post-artifact-response": _ARTIFACT_RESPONSE,
    "put-artifact-request": object_of("etags"),
    "list-artifacts-response": page_of("artifacts", PROPERTIES["artifact"]),
    "artifact-created-message": object_of(f"version status runId {WORKER} artifact"),
}
