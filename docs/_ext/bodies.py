"""JSON schemas as tables for a reader."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from legacy_queue.http.schemas import SCHEMAS

Schema = Mapping[str, Any]

_OFTEN = 3  # an object that so many bodies have under one name is shown once


def table(name: str) -> str:
    """The properties of a body, those of the objects in it as ``status.runs[].state``."""
    rules = [rule for rule in map(_rule, SCHEMAS[name].get("allOf", ())) if rule]
    return _table(SCHEMAS[name]) + "".join(f"\n{rule}" for rule in rules)


def shapes() -> str:
    """A section for each object that many bodies have."""
    return "\n".join(
        f"### The object {name}\n\n{_table(schema)}" for name, schema in sorted(_SHAPES.values())
    )


def _table(schema: Schema) -> str:
    rows = [f"| `{name}` | {kind} | {need} |" for name, kind, need in _rows(schema, "")]
    return "\n".join(["| property | what | |", "| --- | --- | --- |", *rows, ""])


def _rows(schema: Schema, prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, one in schema["properties"].items():
        if one is False:
            continue
        need = "required" if name in schema.get("required", ()) else "optional"
        item, mark = (one["items"], "[]") if one.get("type") == "array" else (one, "")
        shape = _SHAPES.get(_key(name, item))
        if shape:
            what = f"[the object {name}](http-api.md#the-object-{name.lower()})"
            yield f"{prefix}{name}", f"list of {what}{_limits(one)}" if mark else what, need
        elif item.get("properties"):
            yield f"{prefix}{name}", f"list of objects{_limits(one)}" if mark else "object", need
            yield from _rows(item, f"{prefix}{name}{mark}.")
        else:
            yield f"{prefix}{name}", _kind(one), need


def _kind(one: Schema) -> str:
    """In words, with every limit."""
    if "enum" in one:
        return ", ".join(f"`{json.dumps(value)}`" for value in one["enum"])
    if "const" in one:
        return f"`{json.dumps(one['const'])}`"
    match one.get("type"):
        case "array":
            return f"list of {_kind(one['items'])}{_limits(one)}"
        case "integer":
            return f"integer{_range(one)}"
        case "string" if one.get("format") == "date-time":
            return "time, ISO 8601"
        case "object" if isinstance(one.get("additionalProperties"), dict):
            return f"object; each value: {_kind(one['additionalProperties'])}{_limits(one)}"
    length = f", up to {one['maxLength']:,} characters" if "maxLength" in one else ""
    form = f", {one['format']}" if "format" in one else ""
    pattern = f", `` {one['pattern']} ``".replace("|", "\\|") if "pattern" in one else ""
    return f"{one.get('type', 'anything')}{form}{length}{pattern}"


def _range(one: Schema) -> str:
    if "maximum" in one:
        return f", {one.get('minimum', 0):,} to {one['maximum']:,}"
    return f", {one['minimum']:,} or more" if "minimum" in one else ""


def _limits(one: Schema) -> str:
    most = one.get("maxItems", one.get("maxProperties"))
    least = f", at least {one['minItems']}" if one.get("minItems") else ""
    return (
        least
        + (f", at most {most:,}" if most else "")
        + (", all different" if one.get("uniqueItems") else "")
    )


def _rule(rule: Schema) -> str:
    """What a storageType decides of the other properties."""
    given = rule.get("if", {}).get("properties", {}).get("storageType", {}).get("const")
    needed = ", ".join(f"`{name}`" for name in rule.get("then", {}).get("required", ()))
    return f"- `{given}`: {f'needs {needed}' if needed else 'nothing else'}\n" if given else ""


def _key(name: str, schema: Schema) -> str:
    return f"{name} {json.dumps(schema, sort_keys=True)}"


def _objects(schema: Schema) -> Iterator[tuple[str, Schema]]:
    for name, one in schema.get("properties", {}).items():
        item = one.get("items", one) if one is not False else {}
        if item.get("properties"):
            yield name, item
            yield from _objects(item)


_COUNTED = Counter(_key(*found) for schema in SCHEMAS.values() for found in _objects(schema))
_SHAPES = {
    _key(name, one): (name, one)
    for schema in SCHEMAS.values()
    for name, one in _objects(schema)
    if _COUNTED[_key(name, one)] >= _OFTEN
}
