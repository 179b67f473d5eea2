"""The JSON schemas of artifacts. Source: the original's post-artifact-request.yml and its neighbours."""

from legacy_queue.http.schema_terms import STRING, TIME, Schema, list_of, object_of, text

_Names = tuple[list[str], list[str]]  # of properties: those that must be there, those that may

_SHA256 = text(64, "[0-9a-fA-F]{64}")
_SIZE = {"type": "integer", "minimum": 0, "maximum": 2**53}
_ERRORS = ("file-missing-on-worker", "invalid-resource-on-worker", "too-large-file-on-worker")
_MOST_PARTS = 10_000

_STORAGE_TYPE = {"enum": ["s3", "azure", "blob", "reference", "error"]}
_CONTENT_TYPE = text(255, "[!-~](?:[ -~]*[!-~])?")  # fit for a header
_PARTS = {**list_of(object_of({"sha256": _SHA256, "size": _SIZE})), "minItems": 1, "maxItems": _MOST_PARTS}
_REQUEST = object_of(
    {
        "method": {"enum": ["PUT"]},
        "url": STRING,
        "headers": {"type": "object", "additionalProperties": STRING},
    }
)

ARTIFACT = object_of(
    {"storageType": _STORAGE_TYPE, "name": text(1024), "expires": TIME, "contentType": text(255)}
)


def _by_storage_type(properties: dict[str, Schema], needed: dict[str, _Names]) -> Schema:
    """An object whose storageType says which of the properties it must have, and which it may have beside."""

    def rule(storage_type: str, required: list[str], optional: list[str]) -> Schema:
        unfit = properties.keys() - {*required, *optional}
        return {
            "if": {"required": ["storageType"], "properties": {"storageType": {"const": storage_type}}},
            "then": {"required": required, "properties": dict.fromkeys(sorted(unfit), False)},
        }

    schema = object_of({"storageType": _STORAGE_TYPE}, properties)
    return {**schema, "allOf": [rule(storage_type, *names) for storage_type, names in needed.items()]}


_STORED: _Names = (["expires", "contentType"], [])
_UPLOADED: _Names = (["expires", "contentType", "putUrl"], [])

ARTIFACT_SCHEMAS: dict[str, Schema] = {
    "post-artifact-request": _by_storage_type(
        {
            "expires": TIME,
            "contentType": _CONTENT_TYPE,
            "contentLength": _SIZE,
            "contentSha256": _SHA256,
            "contentEncoding": text(255, "[!#$%&'*+.^_`|~0-9A-Za-z-]+"),
            "transferLength": _SIZE,
            "transferSha256": _SHA256,
            "parts": _PARTS,
            "url": text(4096, "https?://[!-~]+"),
            "reason": {"enum": list(_ERRORS)},
            "message": text(4096),
        },
        {
            "s3": _STORED,
            "azure": _STORED,
            "blob": (
                ["expires", "contentType", "contentLength", "contentSha256"],
                ["contentEncoding", "transferLength", "transferSha256", "parts"],
            ),
            "reference": (["expires", "contentType", "url"], []),
            "error": (["expires", "reason", "message"], []),
        },
    ),
    "post-artifact-response": _by_storage_type(
        {"expires": TIME, "contentType": text(255), "putUrl": STRING, "requests": list_of(_REQUEST)},
        {
            "s3": _UPLOADED,
            "azure": _UPLOADED,
            "blob": (["expires", "requests"], []),
            "reference": ([], []),
            "error": ([], []),
        },
    ),
    "put-artifact-request": object_of({"etags": {**list_of(text(256)), "maxItems": _MOST_PARTS}}),
    "list-artifacts-response": object_of({"artifacts": list_of(ARTIFACT)}, {"continuationToken": STRING}),
}
