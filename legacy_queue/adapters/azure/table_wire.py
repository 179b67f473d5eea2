"""Rows, conditions and batches as Azure Table Storage has them on the wire: JSON, OData and multipart.

Source: Azure's "Payload format for Table service operations", "Querying tables and entities" and
"Performing entity group transactions"; held to the SDK by tests.
"""

import base64
import binascii
import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn
from urllib.parse import quote

from legacy_queue.ports.table import KEY, PARTITION, Change, Condition, Row, Value

_VALID_KEY = re.compile(r"[^/\\#?\x00-\x1f\x7f-\x9f]{1,512}")
_MAX_VALUE, _MAX_ROW = 64 * 1024, 1024 * 1024  # bytes, two for each character
_TYPE = "@odata.type"
_METHODS = {"insert": "POST", "put": "PUT", "merge": "PATCH", "delete": "DELETE"}
_PART = re.compile(rb"\r\nHTTP/1\.1 (\d{3})[^\r\n]*\r\n((?:[^\r\n]+\r\n)*)")
_ETAG = re.compile(rb"(?:^|\n)etag: *([^\r]+)\r", re.IGNORECASE)

dumps = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True)
class Foreign:
    """A value of another writer that is none of ours: its type, such as ``Edm.Int64``, and its text."""

    edm_type: str
    text: str


def check_key(partition: str, key: str) -> None:
    """Raise ValueError for what is no key, since a part of a URL is made of it."""
    if not (_VALID_KEY.fullmatch(partition) and _VALID_KEY.fullmatch(key)):
        raise ValueError(f"{partition!r} {key!r} is not a valid key")


def key_path(partition: str, key: str) -> str:
    """``(PartitionKey='...',RowKey='...')``, percent-encoded."""
    partition, key = (quote(one.replace("'", "''"), safe="") for one in (partition, key))
    return f"(PartitionKey='{partition}',RowKey='{key}')"


def entity(partition: str, key: str, values: Mapping[str, Value]) -> bytes:
    """The row as JSON; raises ValueError or TypeError for what Azure would refuse."""
    properties: dict[str, Any] = {PARTITION: partition, KEY: key}
    size = 0
    for name, value in values.items():
        if type(value) is str:
            properties[name], length = value, 2 * len(value)
        else:
            edm_type, properties[name], length = _WRITERS.get(type(value), _refuse)(value)
            if edm_type:
                properties[name + _TYPE] = edm_type
        if length > _MAX_VALUE:
            raise ValueError(f"{name} has more than 64 KiB")
        size += length
    if size > _MAX_ROW:
        raise ValueError("a row has up to 1 MiB")
    return dumps(properties).encode()


def row(properties: Mapping[str, Any]) -> Row:
    """The inverse of ``entity``. A value of a type that it does not know is a Foreign, and spoils no row."""
    values: dict[str, Any] = {}
    for name, value in properties.items():
        if value is None or "odata." in name:  # nothing under a name that was selected; what describes others
            continue
        edm_type = properties.get(name + _TYPE)
        values[name] = value if edm_type is None else _read(edm_type, value)
    values.pop("Timestamp", None)
    return Row(str(values.pop(PARTITION)), str(values.pop(KEY)), values, str(properties["odata.etag"]))


def odata(conditions: Sequence[Condition]) -> str:
    """The conditions as a ``$filter``, an empty string for none."""
    return " and ".join([_condition(condition) for condition in conditions])


def literal(value: Value) -> str:
    """The value as OData has it."""
    match value:
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case bytes():
            return f"X'{value.hex()}'"
        case datetime():
            return f"datetime'{_time(value)}'"


def change(path: str, partition: str, change: Change) -> tuple[str, str, Mapping[str, str], bytes | None]:
    """Method, path, headers and body of the request that changes a row of the table at ``path``."""
    check_key(partition, change.key)
    headers = {"accept": "application/json", "dataserviceversion": "3.0"}
    body = None
    if change.kind != "delete":
        headers["content-type"] = "application/json"
        body = entity(partition, change.key, change.values)
    if change.kind == "insert":
        headers["prefer"] = "return-no-content"
    else:
        path += key_path(partition, change.key)
    if change.kind in ("merge", "delete"):
        headers["if-match"] = change.etag or "*"
    return _METHODS[change.kind], path, headers, body


def batch(url: str, partition: str, changes: Sequence[Change]) -> tuple[str, bytes]:
    """Content type and body of a request that makes all the changes to rows of the table at ``url``."""
    boundary, changeset = f"batch_{uuid.uuid4()}", f"changeset_{uuid.uuid4()}"
    parts = [f"--{boundary}\r\nContent-Type: multipart/mixed; boundary={changeset}\r\n\r\n".encode()]
    for number, one in enumerate(changes):
        method, at, headers, body = change(url, partition, one)
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        parts += (
            f"--{changeset}\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n"
            f"Content-ID: {number}\r\n\r\n{method} {at} HTTP/1.1\r\n{lines}"
            f"Content-Length: {len(body or b'')}\r\n\r\n".encode(),
            body or b"",
            b"\r\n",
        )
    parts.append(f"--{changeset}--\r\n\r\n--{boundary}--\r\n".encode())
    return f"multipart/mixed; boundary={boundary}", b"".join(parts)


def batch_parts(body: bytes) -> Sequence[tuple[int, str]]:
    """Status and etag of each part of the answer to a batch, "" where there is none."""
    etags = ((int(part[1]), _ETAG.search(part[2])) for part in _PART.finditer(body))
    return [(status, etag[1].decode("latin-1") if etag else "") for status, etag in etags]


def _condition(condition: Condition) -> str:
    if isinstance(condition.value, tuple):
        return "(" + " or ".join([f"{condition.name} eq {literal(one)}" for one in condition.value]) + ")"
    return f"{condition.name} {condition.operator} {literal(condition.value)}"


def _read(edm_type: str, value: Any) -> Value | Foreign:
    try:
        return _READERS[edm_type](value)
    except (LookupError, ValueError, TypeError):
        return Foreign(edm_type, str(value))


def _read_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def _refuse(value: Any) -> NoReturn:
    raise TypeError(f"a {type(value).__name__} is no value of a row")


def _write_int(value: int) -> tuple[str | None, Any, int]:
    if not -(2**31) <= value < 2**31:
        raise ValueError(f"{value} has more than 32 bits")
    return None, value, 4


def _write_float(value: float) -> tuple[str | None, Any, int]:
    if value != value or value in (float("inf"), float("-inf")):  # JSON has none
        return "Edm.Double", {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)], 8
    return "Edm.Double", value, 8


def _time(value: datetime) -> str:
    if value.tzinfo is None:
        raise ValueError("a time has no time zone")
    return value.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


_WRITERS: Mapping[type, Callable[[Any], tuple[str | None, Any, int]]] = {
    bool: lambda value: (None, value, 1),
    int: _write_int,
    float: _write_float,
    bytes: lambda value: ("Edm.Binary", binascii.b2a_base64(value, newline=False).decode(), len(value)),
    datetime: lambda value: ("Edm.DateTime", _time(value), 8),
}
_READERS: Mapping[str, Callable[[Any], Value]] = {
    "Edm.Binary": base64.b64decode,
    "Edm.DateTime": _read_time,
    "Edm.Double": float,
    "Edm.Int32": int,
    "Edm.Boolean": bool,
    "Edm.String": str,
}
