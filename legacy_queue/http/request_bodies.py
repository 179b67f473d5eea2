"""Parses request bodies as strict JSON, and validates them.

A value that could not be stored exactly as it was sent is refused.
"""

import gc
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from functools import cache
from io import StringIO
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import jsonschema_rs

from legacy_queue.cooperation import yielding
from legacy_queue.domain.errors import InputValidationError, MalformedPayload
from legacy_queue.http.parameters import in_words
from legacy_queue.http.schemas import SCHEMAS
from legacy_queue.ports import Waiter

Result = TypeVar("Result")

MAX_BODY = 1024 * 1024  # bytes
MAX_ECHO = 4096  # characters of a request that an error quotes

_SECRET_FIELDS = ("receipt", "signature", "accessToken", "certificate", "token")
_MAX_INTEGER = 2**63
_MAX_NUMBER_LENGTH = 400  # characters, more than any float needs
_JSON = "application/json"
_MAX_DEPTH = 200  # well below what Python's own stack and the validator's allow
# arrays and objects: Python's garbage collection visits each, and stops all threads meanwhile
_MAX_NESTED = 20_000
_TOO_NESTED = (
    f"the body has too much nesting: expected at most {_MAX_DEPTH} levels of arrays and objects, and at most "
    f"{_MAX_NESTED} of them in all. Send larger data as a string"
)
_MAX_ERRORS = 20
_Kind = jsonschema_rs.ValidationErrorKind
_EXPECTED: Mapping[type, str] = {
    _Kind.MaxLength: "expected at most {0.limit} characters",
    _Kind.Maximum: "expected at most {0.limit}",
    _Kind.Minimum: "expected at least {0.limit}",
    _Kind.ExclusiveMinimum: "expected more than {0.limit}",
    _Kind.MinItems: "too few items: expected at least {0.limit}",
    _Kind.MaxItems: "too many items: expected at most {0.limit}",
    _Kind.MinProperties: "too few properties: expected at least {0.limit}",
    _Kind.MaxProperties: "too many properties: expected at most {0.limit}",
    _Kind.UniqueItems: "an item occurs twice: expected each item once",
    _Kind.Required: "the property {0.property} is missing",  # not quoted: the log hides what is quoted
    _Kind.FalseSchema: "expected none for this storageType",
}
_FORMATS = {"date-time": "a time such as 2026-11-28T18:40:12.000Z", "email": "an email address"}
_LARGE = 32 * 1024  # bytes; a larger body is parsed in a thread of its own, and only its first error is shown
_OUTLINE = 5000  # values of a large body that are searched for that error
_PARTS_AT_ONCE = 100  # parts of indented JSON; a deeply nested part takes 70 µs
_MAX_FORM = 64 * 1024  # bytes
_MAX_FIELDS = 10


def without_blocking(waiter: Waiter, body: bytes, act: Callable[[], Result]) -> Result:
    """Returns what ``act`` returns. If the body is large, ``act`` does not hold up other requests."""
    return waiter.run_long(lambda: _without_collections(act)) if len(body) > _LARGE else act()


def _without_collections(act: Callable[[], Result]) -> Result:
    """Runs ``act`` without garbage collections: each would visit all new values, and stop all threads."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return act()
    finally:
        if was_enabled:
            gc.enable()


def parse(body: bytes, content_type: str) -> Any:
    """Returns the JSON value of a body, or None for an empty body.

    Raises MalformedPayload if the body is not JSON or has too much nesting, and if two parsers could read it
    differently: because of NaN, numbers out of range, repeated keys or lone surrogates.
    """
    if not body:
        return None
    if content_type != _JSON and content_type.partition(";")[0].strip().lower() != _JSON:
        raise MalformedPayload(
            f"the body's content-type is {content_type[:100]!r}: expected application/json"
        )
    brackets = _brackets(body)
    if brackets > _MAX_NESTED and _brackets(_without_strings(body)) > _MAX_NESTED:
        raise MalformedPayload(_TOO_NESTED)
    try:
        value = _decode(body.decode("utf-8"))
        if brackets > _MAX_DEPTH:
            _check_depth(value)
        if b"\\u" in body:  # UTF-8 has no surrogates, but escapes can make them
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise MalformedPayload(_TOO_NESTED) from None
    except UnicodeError:
        raise MalformedPayload(
            "the body is not UTF-8, or has half a surrogate pair: expected JSON in UTF-8"
        ) from None
    except ValueError as error:
        raise MalformedPayload(f"the body is not JSON: {error}") from None
    return value


def form(body: bytes) -> dict[str, str]:
    """Returns the fields of a browser's form. Raises MalformedPayload if it is longer than all our forms."""
    try:
        if len(body) > _MAX_FORM:
            raise ValueError
        return dict(parse_qsl(body.decode(errors="replace"), max_num_fields=_MAX_FIELDS))
    except ValueError:
        raise MalformedPayload(
            f"the form has {len(body)} bytes: expected at most {_MAX_FIELDS} fields and {_MAX_FORM} bytes"
        ) from None


def validate(body: Any, schema: str, size: int) -> None:
    """Raises InputValidationError if the body, of ``size`` bytes, does not match the schema.

    The message names the first wrong values, where they are, and what was expected.
    """
    validator = _validator(schema)
    if validator.is_valid(body):
        return
    errors = []
    for error in islice(_errors(validator, body, size), _MAX_ERRORS):
        path = "/".join(["body", *map(str, error.instance_path)])
        is_secret = bool(error.instance_path) and error.instance_path[-1] in _SECRET_FIELDS
        if not is_secret and not isinstance(error.instance, dict | list):  # these may contain a secret
            value = error.instance[:200] if isinstance(error.instance, str) else error.instance
            path += f" is {json.dumps(value)}"
        errors.append(f"{path}: {_expected(error)[:1000]}")
    if not errors:
        errors = [f"body: a value after the first {_OUTLINE} does not match the schema"]
    described = cut("; ".join(errors), MAX_ECHO - 200)
    raise InputValidationError(f"{described}. See /schemas/queue/v1/{schema}.json")


def _expected(error: jsonschema_rs.ValidationError) -> str:
    match error.kind:
        case _Kind.Enum(options=options):
            return f"expected one of {', '.join(map(str, options))}"
        case _Kind.Constant(expected_value=value):
            return f"expected {json.dumps(value)}"
        case _Kind.Pattern(pattern=pattern):
            return f"expected {in_words(pattern)}"
        case _Kind.Type(types=[kind, *_]):
            return f"expected {'an' if kind[0] in 'aio' else 'a'} {kind}"
        case _Kind.Format(format=name):
            return f"expected {_FORMATS.get(name, name)}"
        case _Kind.AdditionalProperties(unexpected=names):  # quoted, as whatever a client sent
            return f"unknown property {', '.join(map(repr, names))}"
        case kind:
            template = _EXPECTED.get(type(kind))
            return template.format(kind) if template else error.message


def shown(raw: bytes, value: Any) -> Any:
    """Returns the body for an error: without secrets, and only if it is small."""
    if len(raw) <= MAX_ECHO:
        value = _without_secrets(value)
        if len(json.dumps(value)) <= MAX_ECHO:
            return value
    return f"({len(raw)} bytes, which are not shown)"


def cut(text: str, max_length: int = MAX_ECHO) -> str:
    """Returns the text, or its beginning if its JSON is longer than ``max_length`` characters."""
    if len(text) <= max_length and len(json.dumps(text)) <= max_length + 2:
        return text
    return text[:max_length].encode("ascii", "backslashreplace").decode()[: max_length - 10] + " (cut)"


def indented(value: Any, max_length: int) -> str:
    """Returns the value as indented JSON. It stops soon after ``max_length`` characters.

    Indentation would turn two megabytes of nested arrays into hundreds.
    """
    text = StringIO()
    parts = json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value)
    for part in yielding(parts, _PARTS_AT_ONCE):
        text.write(part)
        if text.tell() > max_length:
            break
    return text.getvalue()


def _without_secrets(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_secrets(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: "(hidden)" if name in _SECRET_FIELDS else _without_secrets(inner)
        for name, inner in value.items()
    }


def _brackets(body: bytes) -> int:
    """Counts the opening brackets in the body, including those in its strings."""
    return body.count(b"{") + body.count(b"[")


def _without_strings(body: bytes) -> bytes:
    """Returns the JSON without the content of its strings. Only strings contain escapes."""
    return b"".join(body.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])


def _check_depth(value: Any) -> None:
    level = [value]
    depth = 0
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        if depth > _MAX_DEPTH:
            raise RecursionError
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        doubled = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise ValueError(f"the key {doubled[:100]!r} occurs twice in one object")
    return value


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number")


def _float(text: str) -> float:
    """Returns the number. Raises ValueError if a float cannot hold it exactly."""
    if len(text) > _MAX_NUMBER_LENGTH:
        raise ValueError(
            f"the number {text[:40]}.. has {len(text)} characters: expected at most {_MAX_NUMBER_LENGTH}"
        )
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is out of range: expected a 64-bit float")
    if repr(value) != text and not _is_exact(text, value):
        raise ValueError(
            f"the number {text[:40]} is more precise than a 64-bit float: expected {value!r}, or a string"
        )
    return value


def _is_exact(text: str, value: float) -> bool:
    try:
        # C and other languages print all digits of a number with %.17g
        return Decimal(text) in (Decimal(repr(value)), Decimal(f"{value:.17g}"))
    except InvalidOperation:  # even Decimal cannot hold the exponent
        return False


def _int(text: str) -> int:
    if len(text) > 20 or not -_MAX_INTEGER <= (value := int(text)) < _MAX_INTEGER:
        raise ValueError(f"the integer {text[:40]} is out of range: expected a 64-bit integer")
    return value


_decode = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_float, parse_int=_int
).decode


def _errors(validator: Any, body: Any, size: int) -> Iterator[Any]:
    """Yields all errors of a small body, but only the first of a large body, if its first values have one.

    The validator collects all errors before it returns the first, and each error copies its value. A megabyte
    may have hundreds of thousands of errors, which would occupy the process for seconds.
    """
    if size <= _LARGE:
        yield from validator.iter_errors(body)
        return
    try:
        validator.validate(_outline(body))
    except jsonschema_rs.ValidationError as error:
        yield error


def _outline(body: Any) -> Any:
    """Returns the first values of the body, level by level. The other values are left out."""
    left = _OUTLINE
    outline: list[Any] = [body]
    level: list[Any] = [outline]
    while level:
        following = []
        for copy in level:
            for key, value in [*(copy.items() if isinstance(copy, dict) else enumerate(copy))]:
                if isinstance(value, dict | list):
                    items = [*islice(value.items() if isinstance(value, dict) else value, left)]
                    left -= len(items)
                    copy[key] = type(value)(items)
                    following.append(copy[key])
        level = following
    return outline[0]


# A validator is compiled when it is first needed, which takes less than 1 ms. Most schemas describe answers,
# which a server does not check.
@cache
def _validator(schema: str) -> Any:
    return jsonschema_rs.validator_for(
        {"$schema": "http://json-schema.org/draft-07/schema#", **SCHEMAS[schema]},
        validate_formats=True,
        mask="it",
    )
