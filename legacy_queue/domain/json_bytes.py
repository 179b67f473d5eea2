"""Values as JSON, at a tenth of the cost of Python's ``json``."""

import json
from collections.abc import Callable
from typing import Any

import orjson

_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS


def to_json(value: Any, *, is_sorted: bool = False, default: Callable[[Any], str] | None = None) -> bytes:
    """Compact JSON in UTF-8, the inverse of ``json.loads``; with ``is_sorted`` the keys are in order.

    ``default`` makes text of what JSON does not know. A value without NaN: no parsed body has any.
    """
    options = _OPTIONS | orjson.OPT_SORT_KEYS if is_sorted else _OPTIONS
    try:
        return orjson.dumps(value, default, options)
    except TypeError:  # lone surrogates, more than 64 bits, deep nesting: a payload, or a field of a log
        text = json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), sort_keys=is_sorted, default=default
        )
        return text.encode(errors="surrogatepass")


def from_json(content: bytes) -> Any:
    """The inverse of ``to_json`` for what a body may hold; raises ValueError."""
    return orjson.loads(content)
