"""What the JSON schemas are written in."""

from typing import Any

Schema = dict[str, Any]

TIME: Schema = {"type": "string", "format": "date-time", "maxLength": 64}
STRING: Schema = {"type": "string"}


def object_of(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """An object that has these properties and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def text(longest: int, pattern: str | None = None, shortest: int = 0) -> Schema:
    """Text of so many characters, all of which the pattern matches."""
    lengths = {"type": "string", "minLength": shortest, "maxLength": longest}
    return {**lengths, "pattern": f"^(?:{pattern})$"} if pattern else lengths


def list_of(items: Schema, most: int | None = None) -> Schema:
    """A list; with ``most``, none of them twice."""
    limit = {} if most is None else {"maxItems": most, "uniqueItems": True}
    return {"type": "array", "items": items, **limit}
