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
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from legacy_queue.adapters.azure.connection import Response
from legacy_queue.adapters.azure.rest import (
    TABLE,
    Refusals,
    Request,
    RestClient,
    StorageRefused,
    error_code_in,
    header_lines,
    refusal,
    whole,
)
from legacy_queue.ports import AlreadyExists, Changed
from legacy_queue.ports.table import (
    KEY,
    PARTITION,
    Change,
    Condition,
    Row,
    RowPage,
    Table,
    Value,
    check_change,
    check_changes,
    check_key,
    check_limit,
)

_JSON = {"content-type": "application/json"}
_LOST_RACE = dict.fromkeys((404, 409, 412), Changed)  # another writer was first
_KINDS: Mapping[str, tuple[str, Mapping[str, str], Refusals]] = {
    "insert": ("POST", {**_JSON, "prefer": "return-no-content"}, {409: AlreadyExists}),
    "put": ("PUT", _JSON, {}),
    "merge": ("PATCH", _JSON, _LOST_RACE),
    "delete": ("DELETE", {}, {412: Changed}),
}
_NEXT = "x-ms-continuation-next"
_TYPE = "@odata.type"
_TIMESTAMP = "Timestamp"  # by which Azure names the time of the last write
_PART = re.compile(rb"\r\nHTTP/1\.1 (\d{3})[^\r\n]*\r\n((?:[^\r\n]+\r\n)*)")
_ETAG = re.compile(rb"(?:^|\n)etag: *([^\r]+)\r", re.IGNORECASE)

_dumps = json.JSONEncoder(separators=(",", ":")).encode


class AzureTable(Table):
    """Each operation is one request. ``url`` is that of the service."""

    def __init__(self, service: RestClient, url: str, name: str) -> None:
        self._service = service
        self._url = f"{url}/{name}"
        self._path = f"/{name}"

    def now(self) -> datetime:
        return self._service.now(Request("GET", self._path + _key_path("0", "0")))

    def get(self, partition: str, key: str) -> Row | None:
        check_key(partition, key)
        request = Request("GET", self._path + _key_path(partition, key))
        return self._service.find(request, lambda answer: row(json.loads(answer.body)))

    def create(self) -> None:
        """Create the table; raises AlreadyExists."""
        body = _dumps({"TableName": self._path[1:]}).encode()
        request = Request("POST", "/Tables", headers=_KINDS["insert"][1], body=body)
        self._service.send(request, whole, {409: AlreadyExists})

    def remove(self) -> None:
        """Delete the table; safe to repeat."""
        self._service.find(Request("DELETE", f"/Tables('{self._path[1:]}')"), whole)

    def batch(self, partition: str, changes: Sequence[Change]) -> Sequence[str]:
        check_changes(partition, changes)
        content_type, body = _batch(self._url, partition, changes)
        request = Request("POST", "/$batch", headers={"content-type": content_type}, body=body)
        return self._service.send(request, lambda answer: _etags(answer.body, changes), _LOST_RACE)

    def page(
        self, conditions: Sequence[Condition], after: str, limit: int, select: Sequence[str] | None = None
    ) -> RowPage:
        check_limit(limit)
        if any(condition.value == () for condition in conditions):
            return RowPage([], None)
        params = {"$filter": odata(conditions), "$top": str(limit)}
        if select is not None:
            params["$select"] = ",".join((PARTITION, KEY, _TIMESTAMP, *select))
        if after:
            params |= {f"Next{name}": value for name, value in json.loads(after).items()}
        pairs = sorted((name, value) for name, value in params.items() if value)
        return self._service.send(Request("GET", f"{self._path}()", pairs), _page)

    def _change(self, partition: str, change: Change) -> str:
        check_change(partition, change)
        request = _request(self._path, partition, change)
        refusals = _KINDS[change.kind][2]
        if change.kind == "delete":
            self._service.find(request, whole, refusals)
            return ""
        return self._service.send(request, _etag, refusals)


def entity(partition: str, key: str, values: Mapping[str, Value]) -> bytes:
    """The row as JSON."""
    properties: dict[str, Any] = {PARTITION: partition, KEY: key}
    for name, value in values.items():
        if type(value) in _WRITERS:
            properties[name + _TYPE], write = _WRITERS[type(value)]
            value = write(value)
        properties[name] = value
    return _dumps(properties).encode()


def row(properties: Mapping[str, Any]) -> Row:
    """The inverse of ``entity``."""
    values: dict[str, Any] = {}
    for name, value in properties.items():
        if value is None or "odata." in name:  # a selected property that the row lacks, or OData's metadata
            continue
        edm_type = properties.get(name + _TYPE)
        values[name] = value if edm_type is None else _READERS[edm_type](value)
    partition, key = str(values.pop(PARTITION)), str(values.pop(KEY))
    changed = values.pop(_TIMESTAMP)  # a text, unless its type is told
    changed = datetime.fromisoformat(changed) if isinstance(changed, str) else changed
    return Row(partition, key, values, str(properties["odata.etag"]), changed)


def odata(conditions: Sequence[Condition]) -> str:
    """The conditions as a ``$filter``, an empty string for none."""
    return " and ".join([_condition(condition) for condition in conditions])


def _condition(condition: Condition) -> str:
    if isinstance(condition.value, tuple):
        return (
            "(" + " or ".join([f"{condition.name} eq {_literal(value)}" for value in condition.value]) + ")"
        )
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
    partition, key = (quote(name.replace("'", "''"), safe="") for name in (partition, key))
    return f"(PartitionKey='{partition}',RowKey='{key}')"


def _request(path: str, partition: str, change: Change) -> Request:
    """The request for a change of a row of the table at ``path``, in a batch a URL."""
    method, headers, _ = _KINDS[change.kind]
    body = None if change.kind == "delete" else entity(partition, change.key, change.values)
    if change.kind != "insert":
        path += _key_path(partition, change.key)
    if change.kind in ("merge", "delete"):
        headers = {**headers, "if-match": change.etag or "*"}
    return Request(method, path, headers=headers, body=body)


def _batch(url: str, partition: str, changes: Sequence[Change]) -> tuple[str, bytes]:
    """Content type and body of a batch of changes of the table at ``url``."""
    boundary = f"batch_{uuid.uuid4()}"
    changeset = f"changeset_{uuid.uuid4()}"
    parts = [f"--{boundary}\r\nContent-Type: multipart/mixed; boundary={changeset}\r\n\r\n".encode()]
    fixed = header_lines(TABLE.headers)
    for number, change in enumerate(changes):
        method, at, _, headers, body = _request(url, partition, change)
        parts += (
            f"--{changeset}\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n"
            f"Content-ID: {number}\r\n\r\n{method} {at} HTTP/1.1\r\n{fixed}{header_lines(headers)}"
            f"Content-Length: {len(body or b'')}\r\n\r\n".encode(),
            body or b"",
            b"\r\n",
        )
    parts.append(f"--{changeset}--\r\n\r\n--{boundary}--\r\n".encode())
    return f"multipart/mixed; boundary={boundary}", b"".join(parts)


def _etags(body: bytes, changes: Sequence[Change]) -> Sequence[str]:
    """The etag of each change, from the parts of the answer to a batch."""
    parts = [(int(part[1]), _ETAG.search(part[2])) for part in _PART.finditer(body)]
    for status, _ in parts:
        if status >= 300:
            error = refusal(status, error_code_in(body))
            raise Changed if isinstance(error, StorageRefused) and status in _LOST_RACE else error
    etags = []
    for (_, etag), change in zip(parts, changes, strict=True):
        if etag is None and change.kind != "delete":
            raise ValueError("an etag is missing")
        etags.append("" if etag is None or change.kind == "delete" else etag[1].decode("latin-1"))
    return etags


def existing_tables(service: RestClient, first: str, last: str) -> set[str]:
    """Names of tables between these: an account may have thousands of others. No more than a page."""
    names = Condition("TableName", "ge", first), Condition("TableName", "le", last)
    request = Request("GET", "/Tables", [("$filter", odata(names))])
    return service.send(
        request, lambda answer: {table["TableName"] for table in json.loads(answer.body)["value"]}
    )


def _etag(response: Response) -> str:
    return response.headers["etag"]


def _page(response: Response) -> RowPage:
    rows = [row(entity) for entity in json.loads(response.body)["value"]]
    keys = {name: response.headers.get(f"{_NEXT}{name.lower()}") for name in (PARTITION, KEY)}
    return RowPage(rows, json.dumps(keys) if any(keys.values()) else None)


def _time(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


_WRITERS: Mapping[type, tuple[str, Callable[[Any], Any]]] = {
    bytes: ("Edm.Binary", lambda value: binascii.b2a_base64(value, newline=False).decode()),
    datetime: ("Edm.DateTime", _time),
}
_READERS: Mapping[str, Callable[[Any], Value]] = {
    "Edm.Binary": base64.b64decode,
    "Edm.DateTime": datetime.fromisoformat,
    "Edm.Int32": int,
    "Edm.Boolean": bool,
    "Edm.String": str,
}
