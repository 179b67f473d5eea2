"""Writes and reads JSON at a tenth of the cost of Python's ``json``."""

import json
from collections.abc import Callable
from typing import Any

import orjson

_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS


def to_json(value: Any, *, is_sorted: bool = False, default: Callable[[Any], str] | None = None) -> bytes:
    """Returns compact JSON in UTF-8. With ``is_sorted`` the keys are in order.

    ``default`` turns values that JSON does not know into text. The value must not contain NaN; a parsed body
    never does.
    """
    options = _OPTIONS | orjson.OPT_SORT_KEYS if is_sorted else _OPTIONS
    try:
        return orjson.dumps(value, default, options)
    # lone surrogates, more than 64 bits or deep nesting, in a payload or a field of the log
    except TypeError:
        text = json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), sort_keys=is_sorted, default=default
        )
        return text.encode(errors="surrogatepass")


def from_json(content: bytes) -> Any:
    """Reads the JSON of a body. Raises ValueError."""
    return orjson.loads(content)
