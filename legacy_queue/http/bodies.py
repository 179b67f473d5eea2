"""Bodies read: strict JSON, then the schema. Nothing that was not sent exactly so is ever stored."""

import json
import math
from functools import cache
from typing import Any

import jsonschema_rs

from legacy_queue.domain.errors import InputValidationError, MalformedPayload
from legacy_queue.http.schemas import SCHEMAS

SECRET_FIELDS = ("receipt", "signature", "accessToken", "certificate")
_MOST_ERRORS = 5
_LARGEST_INTEGER = 2**63
_DEEPEST = 200  # well below what Python's own stack and the validator's allow
_TOO_DEEP = f"the body is nested too deeply: {_DEEPEST} arrays and objects within each other are accepted"


def parse(body: bytes, content_type: str) -> Any:
    """The JSON value of a body, and None for an empty one.

    Raises MalformedPayload for what is not JSON, or is JSON that two parsers could read differently: NaN,
    numbers out of range, doubled keys, lone surrogates, bottomless nesting.
    """
    if not body:
        return None
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise MalformedPayload(f"the body's content-type is {content_type[:100]!r}: send application/json")
    try:
        value = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_object,
            parse_constant=_refuse_constant,
            parse_float=_float,
            parse_int=_int,
        )
        _check_depth(value)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise MalformedPayload(_TOO_DEEP) from None
    except UnicodeError:
        raise MalformedPayload("the body is not UTF-8, or holds half a surrogate pair") from None
    except ValueError as error:
        raise MalformedPayload(f"the body is not JSON: {error}") from None
    return value


def validate(value: Any, schema: str) -> None:
    """Raises InputValidationError, which names each place, what is there and what would be accepted."""
    errors = []
    for error in _validator(schema).iter_errors(value):
        path = "/".join(["body", *map(str, error.instance_path)])
        is_secret = bool(error.instance_path) and error.instance_path[-1] in SECRET_FIELDS
        if not is_secret and not isinstance(error.instance, dict | list):  # which may hold a secret
            path += f" is {json.dumps(error.instance)[:200]}"
        errors.append(f"{path}: {_accepted(error)}")
        if len(errors) == _MOST_ERRORS:
            break
    if errors:
        raise InputValidationError("; ".join(errors) + f". See /schemas/queue/v1/{schema}.json")


def build_validators() -> None:
    """Make the validators of all bodies, each of which is otherwise made when it is first needed."""
    for schema in SCHEMAS:
        _validator(schema)


def without_secrets(value: Any) -> Any:
    """A body that may be shown to the caller again."""
    match value:
        case dict():
            return {
                name: "(hidden)" if name in SECRET_FIELDS else without_secrets(one)
                for name, one in value.items()
            }
        case list():
            return [without_secrets(one) for one in value]
    return value


def _accepted(error: jsonschema_rs.ValidationError) -> str:
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Enum):
        return f"one of {', '.join(map(str, error.kind.options))} is accepted"
    return error.message[:1000]


@cache
def _validator(schema: str) -> Any:
    return jsonschema_rs.validator_for(
        {"$schema": "http://json-schema.org/draft-07/schema#", **SCHEMAS[schema]},
        validate_formats=True,
        mask="it",
    )


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level := [one for one in level if isinstance(one, dict | list)]:
        depth += 1
        if depth > _DEEPEST:
            raise RecursionError
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        doubled = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {doubled[:100]!r} stands twice in one object")
    return value


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is out of range")
    return value


def _int(text: str) -> int:
    if len(text) > 20 or abs(value := int(text)) >= _LARGEST_INTEGER:
        raise ValueError(f"the integer {text[:40]} is out of range: 64 bits are accepted")
    return value
