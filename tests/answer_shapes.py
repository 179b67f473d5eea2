"""Checks the shape of every answer and event in the test run, for clients of 2018 or for today's.

It works in the tests' own process, in which tests/http calls every endpoint. A wrong shape fails the test
that is running.
"""
# ruff: noqa: SLF001

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
from flask import request

from legacy_queue.http.views import EndpointViews
from legacy_queue.services.events.event_publisher import EventPublisher

FILES = {"2018": ("shapes_2018.txt",), "today": ("shapes_2018.txt", "shapes_today.txt")}
_TYPES: dict[str, Any] = {
    "": {},
    **{name: {"type": name} for name in ("string", "integer", "object", "boolean")},
    **{name: {"type": "string", "format": name} for name in ("date-time", "uri", "email")},
}
Schema = dict[str, Any]


@cache
def shapes(generation: str) -> dict[str, Schema]:
    """The JSON schemas of answers and events by name, from the files of this generation."""
    found: dict[str, Schema] = {}
    for name in FILES[generation]:
        lines = (Path(__file__).parent / name).read_text().splitlines()
        _read([line for line in lines if line and not line.startswith("#")], found)
    return found


def _read(lines: list[str], found: dict[str, Schema]) -> None:
    """Add the shapes in these lines to ``found``. A shape can extend one that is there."""
    above: list[Schema] = []
    for line in lines:
        depth = (len(line) - len(line.lstrip())) // 2
        name, _, said = line.strip().partition(":")
        del above[depth:]
        if said.strip() == "gone":
            del above[-1]["properties"][name]
            above[-1]["required"].remove(name)
            continue
        if said.strip() != "closed":
            _add(above[-1], name, _schema(said.strip()))
            continue
        places, at = above[-1]["properties"] if above else found, name.removesuffix(" (each)")
        if "items" in places.get(at, {}):
            places, at = places[at], "items"
        if not places.get(at, {}).get("properties"):
            places[at] = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
        above.append(places[at])


def _add(owner: Schema, name: str, schema: Schema) -> None:
    if not name.endswith("?") and name not in owner["required"]:
        owner["required"].append(name)
    owner["properties"][name.removesuffix("?")] = schema


def _schema(said: str) -> Schema:
    if said.startswith("one of "):
        return {"enum": [int(word) if word.isdigit() else word for word in said.split()[2:]]}
    if said.startswith("array of "):
        return {"type": "array", "items": _schema(said.removeprefix("array of "))}
    if said.startswith("-> "):
        return {"$ref": f"#/$defs/{said.removeprefix('-> ')}"}
    return dict(_TYPES[said])


@cache
def _validator(generation: str, name: str) -> Any:
    """A validator for this shape. None if the generation has no such shape."""
    known = shapes(generation)
    kinds = [schema for other, schema in known.items() if other.startswith(f"{name} / ")]
    schema = known.get(name) or ({"anyOf": kinds} if kinds else None)
    if schema is None:
        return None
    text = json.dumps([schema, known])
    named = set(re.findall(r'"#/\$defs/([^"]+)"', text))
    defined = {**{other: {} for other in named}, **known}
    return jsonschema_rs.validator_for({**schema, "$defs": defined}, validate_formats=True)


def fault(generation: str, name: str, value: Any) -> str | None:
    """What is wrong with an answer or event in this generation. None if nothing is."""
    validator = _validator(generation, name)
    if validator is None or validator.is_valid(value):
        return None
    why = "; ".join(f"{list(error.instance_path)}: {error.message}" for error in validator.iter_errors(value))
    where = " and ".join(f"tests/{file}" for file in FILES[generation])
    return (
        f"{name} does not have the shape of {generation}: {why[:1000]}\n"
        f"If clients of {generation} accept that, change {where}. Otherwise change "
        "legacy_queue/http/schemas.py, legacy_queue/http/schema_properties.py, or the to_wire in "
        "legacy_queue/domain/ that makes it."
    )


_found: list[str | None] = []


def watch() -> None:
    """Check each answer and each event of this process from now on."""
    checked, serve, shaped = EndpointViews._checked, EndpointViews._answer, EventPublisher._shaped

    def keeping(self: Any, endpoint: Any, is_open: Any, segments: Any, environ: Any, record: Any) -> Any:
        call = environ["tests.call"] = checked(self, endpoint, is_open, segments, environ, record)
        environ.get("tests.calls", []).append(call)  # a list of tests/http/calls.py
        return call

    def answering(self: Any, endpoint: Any, is_open: Any, **segments: str) -> Any:
        answered = serve(self, endpoint, is_open, **segments)
        call = request.environ["tests.call"]
        if call.endpoint.output and answered.status_code == 200 and answered.is_json:
            answer = answered.get_json()
            is_todays = isinstance(answer, dict) and answer.get("storageType") in ("object", "link")
            if not is_todays:
                _found.append(fault("today" if call.is_todays else "2018", call.endpoint.output, answer))
        return answered

    def shaping(self: Any, events: Any) -> Any:
        events = shaped(self, events)
        for event in events:
            name = event.exchange + ("" if event.exchange == "task-group-resolved" else "-message")
            _found.append(fault("today" if self._is_todays else "2018", name, dict(event.payload)))
        return events

    for owner, name, watched in (
        (EndpointViews, "_checked", keeping),
        (EndpointViews, "_answer", answering),
        (EventPublisher, "_shaped", shaping),
    ):
        setattr(owner, name, watched)


def faults() -> str:
    """The errors since the last call."""
    text = "\n".join(filter(None, _found))
    _found.clear()
    return text
