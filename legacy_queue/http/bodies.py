"""Bodies read: strict JSON, then the schema. Nothing that was not sent exactly so is ever stored."""

import json
import math
from collections import Counter
from decimal import Decimal, InvalidOperation
from functools import cache
from itertools import islice
from typing import Any

import jsonschema_rs

from legacy_queue.domain.errors import InputValidationError, MalformedPayload
from legacy_queue.http.outline import MAX_ERRORS, outline, validator
from legacy_queue.http.schemas import SCHEMAS

SECRET_FIELDS = ("receipt", "signature", "accessToken", "certificate")
MAX_ECHO = 4096  # characters of what was sent, in an error
_LARGEST_INTEGER = 2**63
_LONGEST_NUMBER = 400  # characters, more than any float needs
_EXACT_DIGITS = 15  # every decimal number of so many survives as a float
MAX_BODY = 1024 * 1024  # bytes
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
        if body.count(b"{") + body.count(b"[") > _DEEPEST:
            _check_depth(value)
        if b"\\u" in body:  # nothing else makes a surrogate: UTF-8 has none
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise MalformedPayload(_TOO_DEEP) from None
    except UnicodeError:
        raise MalformedPayload("the body is not UTF-8, or holds half a surrogate pair") from None
    except ValueError as error:
        raise MalformedPayload(f"the body is not JSON: {error}") from None
    return value


def validate(value: Any, schema: str) -> None:
    """Raises InputValidationError: it names the first places, what is there and what would be accepted."""
    if validator(_as_json(schema)).is_valid(value):
        return
    errors = []
    for error in islice(validator(_as_json(schema)).iter_errors(outline(value, SCHEMAS[schema])), MAX_ERRORS):
        path = "/".join(["body", *map(str, error.instance_path)])
        is_secret = bool(error.instance_path) and error.instance_path[-1] in SECRET_FIELDS
        if not is_secret and not isinstance(error.instance, dict | list):  # which may hold a secret
            path += f" is {json.dumps(error.instance)[:200]}"
        errors.append(f"{path}: {_accepted(error)}")
    described = cut("; ".join(errors), MAX_ECHO - 200)
    raise InputValidationError(f"{described}. See /schemas/queue/v1/{schema}.json")


def shown(raw: bytes, value: Any) -> Any:
    """A body as it may be shown to the caller again: without secrets, and only where it is small."""
    if len(raw) <= MAX_ECHO:
        value = without_secrets(value)
        if len(json.dumps(value)) <= MAX_ECHO:
            return value
    return f"({len(raw)} bytes, which are not shown)"


def cut(text: str, most: int = MAX_ECHO) -> str:
    """The text, where its JSON has that many characters at most, else its beginning."""
    if len(text) <= most and len(json.dumps(text)) <= most + 2:
        return text
    return text[:most].encode("ascii", "backslashreplace").decode()[: most - 10] + " (cut)"


def build_validators() -> None:
    """Make the validators of all bodies, each of which is otherwise made when it is first needed."""
    for schema in SCHEMAS:
        validator(_as_json(schema))


def without_secrets(value: Any) -> Any:
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
def _as_json(schema: str) -> str:
    return json.dumps(SCHEMAS[schema])


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
        doubled = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise ValueError(f"the key {doubled[:100]!r} stands twice in one object")
    return value


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")


def _float(text: str) -> float:
    """The number that is written there, and no other: what is stored is what was sent."""
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"the number {text[:40]}.. has more than {_LONGEST_NUMBER} characters")
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is out of range")
    is_short = len(text) <= _EXACT_DIGITS and "e" not in text.lower()
    if not is_short and not _is_exact(text, value):
        raise ValueError(f"the number {text[:40]} is more precise than 64 bits hold: it would be {value!r}")
    return value


def _is_exact(text: str, value: float) -> bool:
    try:
        # the second is how C and others print all digits of a number
        return Decimal(text) in (Decimal(repr(value)), Decimal(f"{value:.17g}"))
    except InvalidOperation:  # an exponent beyond all bounds
        return False


def _int(text: str) -> int:
    if len(text) > 20 or not -_LARGEST_INTEGER <= (value := int(text)) < _LARGEST_INTEGER:
        raise ValueError(f"the integer {text[:40]} is out of range: 64 bits are accepted")
    return value
