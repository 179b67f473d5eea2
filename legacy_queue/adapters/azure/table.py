"""A table of Azure Table Storage: JSON, OData and multipart on the wire.

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
from typing import Any
from urllib.parse import quote

from legacy_queue.adapters.azure.http_response import Response
from legacy_queue.adapters.azure.rest import Request, RestClient, StorageRefused, error_code_in, refusal
from legacy_queue.ports import AlreadyExists, Changed
from legacy_queue.ports.table import (
    KEY,
    PARTITION,
    Change,
    Condition,
    Page,
    Row,
    Table,
    Value,
    check_batch,
    check_key,
    check_limit,
    check_values,
)

_HEADERS = {"accept": "application/json", "dataserviceversion": "3.0"}
_READ = {"accept": "application/json;odata=minimalmetadata", "dataserviceversion": "3.0"}
_WRITE = {**_HEADERS, "content-type": "application/json"}
_LOST_RACE = (404, 409, 412)  # of a conditional write, alone or in a batch: another writer was first
_KINDS: Mapping[str, tuple[str, Mapping[str, str], Sequence[int]]] = {  # method, headers, refusals
    "insert": ("POST", {**_WRITE, "prefer": "return-no-content"}, (409,)),
    "put": ("PUT", _WRITE, ()),
    "merge": ("PATCH", _WRITE, _LOST_RACE),
    "delete": ("DELETE", _HEADERS, (404, 412)),
}
_NEXT = "x-ms-continuation-next"
_TYPE = "@odata.type"
_PART = re.compile(rb"\r\nHTTP/1\.1 (\d{3})[^\r\n]*\r\n((?:[^\r\n]+\r\n)*)")
_ETAG = re.compile(rb"(?:^|\n)etag: *([^\r]+)\r", re.IGNORECASE)

_dumps = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True)
class Foreign:
    """A value of another writer that is none of ours: its type, such as ``Edm.Int64``, and its text."""

    edm_type: str
    text: str


class AzureTable(Table):
    """Each operation is one request. ``url`` is that of the service, as a batch names it."""

    def __init__(self, service: RestClient, url: str, name: str) -> None:
        self._service, self._url, self._path = service, f"{url}/{name}", f"/{name}"

    def get(self, partition: str, key: str) -> Row | None:
        check_key(partition, key)
        request = Request("GET", self._path + _key_path(partition, key), headers=_READ)
        response = self._service.send(request, (404,))
        if response.status == 404:
            return None
        return self._service.read(response, lambda answer: row(json.loads(answer.body)))

    def batch(self, partition: str, changes: Sequence[Change]) -> Sequence[str]:
        check_batch(changes)
        content_type, body = _batch(self._url, partition, changes)
        request = Request("POST", "/$batch", headers={**_HEADERS, "content-type": content_type}, body=body)
        response = self._service.send(request, _LOST_RACE)
        parts = self._service.read(response, lambda answer: _parts(answer.body))
        for status, _ in [(response.status, ""), *parts]:
            if status >= 300:
                error = refusal(status, error_code_in(response.body))
                raise Changed if isinstance(error, StorageRefused) and status in _LOST_RACE else error
        return self._service.read(response, lambda _: _etags(parts, changes))

    def page(
        self, conditions: Sequence[Condition], after: str, limit: int, select: Sequence[str] | None = None
    ) -> Page:
        check_limit(limit)
        if any(condition.value == () for condition in conditions):
            return Page([], None)
        params = {"$filter": odata(conditions), "$top": str(limit)}
        if select is not None:
            params["$select"] = ",".join((PARTITION, KEY, *select))
        if after:
            params |= {f"Next{name}": value for name, value in json.loads(after).items()}
        pairs = sorted((name, value) for name, value in params.items() if value)
        return self._service.read(self._service.send(Request("GET", f"{self._path}()", pairs, _READ)), _page)

    def _change(self, partition: str, change: Change) -> str:
        response = self._service.send(_request(self._path, partition, change), _KINDS[change.kind][2])
        if response.status < 400:
            return "" if change.kind == "delete" else self._service.read(response, _etag)
        if change.kind == "delete" and response.status == 404:
            return ""
        raise AlreadyExists if change.kind == "insert" else Changed


def entity(partition: str, key: str, values: Mapping[str, Value]) -> bytes:
    """The row as JSON; raises ValueError or TypeError for what Azure would refuse."""
    check_values(values)
    properties: dict[str, Any] = {PARTITION: partition, KEY: key}
    for name, value in values.items():
        edm_type, write = _WRITERS.get(type(value), _AS_IT_IS)
        properties[name] = write(value) if write else value
        if edm_type:
            properties[name + _TYPE] = edm_type
    return _dumps(properties).encode()


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


def _condition(condition: Condition) -> str:
    if isinstance(condition.value, tuple):
        return "(" + " or ".join([f"{condition.name} eq {_literal(one)}" for one in condition.value]) + ")"
    return f"{condition.name} {condition.operator} {_literal(condition.value)}"


def _literal(value: Value) -> str:
    match value:
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bool():
            return "true" if value else "false"
        case bytes():
            return f"X'{value.hex()}'"
        case datetime():
            return f"datetime'{_time(value)}'"
    return repr(value)


def _key_path(partition: str, key: str) -> str:
    """``(PartitionKey='...',RowKey='...')``, percent-encoded."""
    partition, key = (quote(one.replace("'", "''"), safe="") for one in (partition, key))
    return f"(PartitionKey='{partition}',RowKey='{key}')"


def _request(path: str, partition: str, change: Change) -> Request:
    """That changes a row of the table at ``path``, which a batch has as a URL."""
    method, headers, _ = _KINDS[change.kind]
    check_key(partition, change.key)
    body = None if change.kind == "delete" else entity(partition, change.key, change.values)
    if change.kind != "insert":
        path += _key_path(partition, change.key)
    if change.kind in ("merge", "delete"):
        headers = {**headers, "if-match": change.etag or "*"}
    return Request(method, path, headers=headers, body=body)


def _batch(url: str, partition: str, changes: Sequence[Change]) -> tuple[str, bytes]:
    """Content type and body of a request that makes all the changes to rows of the table at ``url``."""
    boundary, changeset = f"batch_{uuid.uuid4()}", f"changeset_{uuid.uuid4()}"
    parts = [f"--{boundary}\r\nContent-Type: multipart/mixed; boundary={changeset}\r\n\r\n".encode()]
    for number, change in enumerate(changes):
        method, at, _, headers, body = _request(url, partition, change)
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


def _parts(body: bytes) -> Sequence[tuple[int, str]]:
    """Status and etag of each part of the answer to a batch, "" where there is none."""
    etags = ((int(part[1]), _ETAG.search(part[2])) for part in _PART.finditer(body))
    return [(status, etag[1].decode("latin-1") if etag else "") for status, etag in etags]


def _etags(parts: Sequence[tuple[int, str]], changes: Sequence[Change]) -> Sequence[str]:
    etags = [
        "" if change.kind == "delete" else etag for (_, etag), change in zip(parts, changes, strict=True)
    ]
    if not all(etag or change.kind == "delete" for etag, change in zip(etags, changes, strict=True)):
        raise ValueError("an etag is missing")
    return etags


def _etag(response: Response) -> str:
    return response.headers["etag"]


def _page(response: Response) -> Page:
    rows = [row(one) for one in json.loads(response.body)["value"]]
    keys = {name: response.headers.get(f"{_NEXT}{name.lower()}") for name in (PARTITION, KEY)}
    return Page(rows, json.dumps(keys) if any(keys.values()) else None)


def _read(edm_type: str, value: Any) -> Value | Foreign:
    try:
        return _READERS[edm_type](value)
    except (LookupError, ValueError, TypeError):
        return Foreign(edm_type, str(value))


def _read_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def _time(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def _double(value: float) -> float | str:
    """JSON has no infinity and no NaN."""
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(value), value)


_AS_IT_IS: tuple[None, None] = (None, None)
_WRITERS: Mapping[type, tuple[str, Callable[[Any], Any]]] = {
    float: ("Edm.Double", _double),
    bytes: ("Edm.Binary", lambda value: binascii.b2a_base64(value, newline=False).decode()),
    datetime: ("Edm.DateTime", _time),
}
_READERS: Mapping[str, Callable[[Any], Value]] = {
    "Edm.Binary": base64.b64decode,
    "Edm.DateTime": _read_time,
    "Edm.Double": float,
    "Edm.Int32": int,
    "Edm.Boolean": bool,
    "Edm.String": str,
}
