"""JSON schemas as tables for a reader."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from legacy_queue.http.parameters import in_words
from legacy_queue.http.schemas import SCHEMAS

Schema = Mapping[str, Any]

_MIN_USES = 3  # an object of several properties that is in so many bodies gets a section of its own


def table(name: str) -> str:
    """The properties of a body. A property of an inner object is named like ``status.runs[].state``."""
    rules = [rule for rule in map(_rule, SCHEMAS[name].get("allOf", ())) if rule]
    choice = "\nThe `storageType` decides which other properties are required:\n\n" if rules else ""
    return _table(SCHEMAS[name]) + choice + "".join(rules)


def shapes() -> str:
    """A section for each object that occurs in several bodies."""
    return "\n".join(f"## The object {name}\n\n{_table(schema)}" for name, schema in sorted(_SHAPES.values()))


def _table(schema: Schema) -> str:
    rows = [f"| `{name}` | {kind} | {need} |" for name, kind, need in _rows(schema, "")]
    if not rows:
        return "An empty object.\n"
    return "\n".join(["| property | value | presence |", "| --- | --- | --- |", *rows, ""])


def _rows(schema: Schema, prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, value in schema["properties"].items():
        if value is False:
            continue
        need = "required" if name in schema.get("required", ()) else "optional"
        item, mark = (value["items"], "[]") if value.get("type") == "array" else (value, "")
        shape = _SHAPES.get(_key(name, item))
        if shape:
            what = f"[the object {name}](/reference/http-api/shared-objects.md#the-object-{name.lower()})"
            yield f"{prefix}{name}", f"list of {what}{_limits(value)}" if mark else what, need
        elif item.get("properties"):
            yield f"{prefix}{name}", f"list of objects{_limits(value)}" if mark else "object", need
            yield from _rows(item, f"{prefix}{name}{mark}.")
        else:
            yield f"{prefix}{name}", _kind(value), need


def _kind(schema: Schema) -> str:
    """In words, with every limit."""
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    match schema.get("type"):
        case "array":
            return f"list; each item: {_kind(schema['items'])}{_limits(schema)}"
        case "integer":
            return f"integer{_range(schema)}"
        case "string" if schema.get("format") == "date-time":
            return "time, ISO 8601"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"object; each value: {_kind(schema['additionalProperties'])}{_limits(schema)}"
    length = f", up to {schema['maxLength']:,} characters" if "maxLength" in schema else ""
    form = f", {schema['format']}" if "format" in schema else ""
    pattern = schema.get("pattern", "")
    words = in_words(pattern).replace("<", "&lt;")
    if not pattern:
        what = ""
    elif pattern in words:
        what = f", `` {pattern} ``".replace("|", "\\|")
    else:
        what = f": {words}"
        length = "" if re.search("[0-9]", words) else length  # the words say how long it is
    return f"{schema.get('type', 'anything')}{form}{length}{what}"


def _range(schema: Schema) -> str:
    if "maximum" in schema:
        return f", {schema.get('minimum', 0):,} to {schema['maximum']:,}"
    return f", {schema['minimum']:,} or more" if "minimum" in schema else ""


def _limits(schema: Schema) -> str:
    minimum = schema.get("minItems")
    maximum = schema.get("maxItems", schema.get("maxProperties"))
    return (
        (f"; at least {minimum}" if minimum else "")
        + (f"; at most {maximum:,} of them" if maximum else "")
        + ("; all different" if schema.get("uniqueItems") else "")
    )


def _rule(rule: Schema) -> str:
    """Which other properties a storageType needs."""
    storage_type = rule.get("if", {}).get("properties", {}).get("storageType", {}).get("const")
    needed = ", ".join(f"`{name}`" for name in rule.get("then", {}).get("required", ()))
    return f"- `{storage_type}`: {needed or 'none'}\n" if storage_type else ""


def _key(name: str, schema: Schema) -> str:
    return f"{name} {json.dumps(schema, sort_keys=True)}"


def _objects(schema: Schema) -> Iterator[tuple[str, Schema]]:
    for name, value in schema.get("properties", {}).items():
        item = value.get("items", value) if value is not False else {}
        if item.get("properties"):
            yield name, item
            yield from _objects(item)


_USES = Counter(_key(*named) for schema in SCHEMAS.values() for named in _objects(schema))
_SHAPES = {
    _key(name, value): (name, value)
    for schema in SCHEMAS.values()
    for name, value in _objects(schema)
    if _USES[_key(name, value)] >= _MIN_USES and len(value["properties"]) > 1
}
