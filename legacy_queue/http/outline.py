"""A body cut down to what its schema decides by, so that saying what is wrong with it costs little.

Each error of the validator holds a copy of the value that it is about, and all errors are found before the
first is told: of a body of a megabyte there are hundreds of thousands.
"""

import json
from functools import cache
from typing import Any

import jsonschema_rs

from legacy_queue.http.schema_terms import Schema

MAX_ERRORS = 20

_LONGEST = 255  # characters of text that has no maxLength: no value of an enum is longer


def outline(value: Any, schema: Schema) -> Any:
    """What is valid if, and only if, the value is, with errors at the same places, but not all of them.

    Arrays have a maxItems in the schema; they keep their first MAX_ERRORS wrong items and all before those.
    What the schema says nothing of is left out.
    """
    match value:
        case str():
            return value[: schema.get("maxLength", _LONGEST) + 1]
        case list() if schema.get("type") == "array":
            return [outline(one, schema["items"]) for one in _first_wrong(value, schema)]
        case dict() if schema.get("type") == "object":
            return _outlined_object(value, schema)
        case list() | dict():
            return type(value)()
    return value


def _first_wrong(items: list[Any], schema: Schema) -> list[Any]:
    items, wrong = items[: schema["maxItems"] + 1], 0
    item = validator(json.dumps(schema["items"]))
    for number, one in enumerate(items, 1):
        wrong += not item.is_valid(one)
        if wrong == MAX_ERRORS:
            return items[:number]
    return items


def _outlined_object(value: dict[str, Any], schema: Schema) -> dict[str, Any]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    known = {name: outline(one, properties[name]) for name, one in value.items() if name in properties}
    further = [name for name in value if name not in properties]
    if others is False:
        return {**known, **dict.fromkeys(further[:MAX_ERRORS])}
    if not others:
        return known
    further = further[: schema["maxProperties"] + 1]
    return {**known, **{name: outline(value[name], others) for name in further}}


@cache
def validator(schema: str) -> Any:
    """The validator of a schema that is given as JSON."""
    return jsonschema_rs.validator_for(
        {"$schema": "http://json-schema.org/draft-07/schema#", **json.loads(schema)},
        validate_formats=True,
        mask="it",
    )
