"""Helpers that make JSON schemas of text, numbers and arrays."""

from typing import Any

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
TIME: Schema = {"type": "string", "format": "date-time", "maxLength": 64}


def text(max_length: int, pattern: str | None = None) -> Schema:
    """Text of at most ``max_length`` characters that matches the pattern as a whole."""
    lengths = {"type": "string", "minLength": 0, "maxLength": max_length}
    return {**lengths, "pattern": f"^(?:{pattern})$"} if pattern else lengths


def identifier(pattern: str, max_length: int) -> Schema:
    return {"type": "string", "pattern": f"^{pattern}$", "maxLength": max_length}


def enum(values: str) -> Schema:
    return {"enum": values.split()}


def integer(maximum: int, minimum: int = 0, **more: int) -> Schema:
    return {"type": "integer", "minimum": minimum, "maximum": maximum, **more}


def array(items: Schema, **limits: Any) -> Schema:
    return {"type": "array", "items": items, **limits}


def unique(items: Schema, max_items: int) -> Schema:
    return array(items, maxItems=max_items, uniqueItems=True)


def each(names: str, schema: Schema) -> dict[str, Schema]:
    return dict.fromkeys(names.split(), schema)
