"""A table of Azure Table Storage."""

import json
from collections.abc import Mapping, Sequence

from legacy_queue.adapters.azure import table_wire
from legacy_queue.adapters.azure.http_response import Response
from legacy_queue.adapters.azure.rest import RestClient, StorageRefused, error_code_in, refusal
from legacy_queue.adapters.azure.signing import Request
from legacy_queue.ports import AlreadyExists, Changed
from legacy_queue.ports.table import KEY, PARTITION, Change, Condition, Page, Row, Table, Value

_READ = {"accept": "application/json;odata=minimalmetadata", "dataserviceversion": "3.0"}
_LOST_RACE = (404, 409, 412)  # of a conditional write, alone or in a batch: another writer was first
_NEXT = "x-ms-continuation-next"


class AzureTable(Table):
    """Each operation is one request. ``url`` is that of the service, as a batch names it."""

    def __init__(self, service: RestClient, url: str, name: str) -> None:
        self._service, self._url, self._path = service, f"{url}/{name}", f"/{name}"

    def get(self, partition: str, key: str) -> Row | None:
        table_wire.check_key(partition, key)
        path = self._path + table_wire.key_path(partition, key)
        response = self._service.send(Request("GET", path, headers=_READ), (404,))
        return None if response.status == 404 else self._service.read(response, _row)

    def insert(self, partition: str, key: str, values: Mapping[str, Value]) -> str:
        response = self._change(partition, Change("insert", key, values), (409,))
        if response.status == 409:
            raise AlreadyExists
        return self._service.read(response, _etag)

    def put(self, partition: str, key: str, values: Mapping[str, Value]) -> str:
        return self._service.read(self._change(partition, Change("put", key, values), ()), _etag)

    def merge(self, partition: str, key: str, values: Mapping[str, Value], etag: str | None = None) -> str:
        response = self._change(partition, Change("merge", key, values, etag), _LOST_RACE)
        if response.status in _LOST_RACE:
            raise Changed
        return self._service.read(response, _etag)

    def delete(self, partition: str, key: str, etag: str | None = None) -> None:
        if self._change(partition, Change("delete", key, {}, etag), (404, 412)).status == 412:
            raise Changed

    def batch(self, partition: str, changes: Sequence[Change]) -> Sequence[str]:
        if not 1 <= len({change.key for change in changes}) == len(changes) <= 100:
            raise ValueError("a batch has 1 to 100 changes of different rows")
        content_type, body = table_wire.batch(self._url, partition, changes)
        headers = {"accept": "application/json", "content-type": content_type, "dataserviceversion": "3.0"}
        response = self._service.send(Request("POST", "/$batch", headers=headers, body=body), _LOST_RACE)
        parts = self._service.read(response, lambda answer: table_wire.batch_parts(answer.body))
        for status, _ in [(response.status, ""), *parts]:
            if status >= 300:
                error = refusal(status, error_code_in(response.body))
                raise Changed if isinstance(error, StorageRefused) and status in _LOST_RACE else error
        return self._service.read(response, lambda _: _etags(parts, changes))

    def page(
        self,
        conditions: Sequence[Condition],
        after: str,
        limit: int,
        select: Sequence[str] | None = None,
    ) -> Page:
        if not 1 <= limit <= 1000:
            raise ValueError("a page has 1 to 1000 rows")
        if any(condition.value == () for condition in conditions):
            return Page([], None)
        params = {"$filter": table_wire.odata(conditions), "$top": str(limit)}
        if select is not None:
            params["$select"] = ",".join((PARTITION, KEY, *select))
        if after:
            params |= {f"Next{name}": value for name, value in json.loads(after).items() if value}
        pairs = sorted((name, value) for name, value in params.items() if value)
        return self._service.read(self._service.send(Request("GET", f"{self._path}()", pairs, _READ)), _page)

    def _change(self, partition: str, change: Change, accepted: Sequence[int]) -> Response:
        method, path, headers, body = table_wire.change(self._path, partition, change)
        return self._service.send(Request(method, path, headers=headers, body=body), accepted)


def _row(response: Response) -> Row:
    return table_wire.row(json.loads(response.body))


def _etag(response: Response) -> str:
    return response.headers["etag"]


def _etags(parts: Sequence[tuple[int, str]], changes: Sequence[Change]) -> Sequence[str]:
    if len(parts) != len(changes):
        raise ValueError("parts are missing")
    if not all(etag or change.kind == "delete" for (_, etag), change in zip(parts, changes, strict=True)):
        raise ValueError("an etag is missing")
    return ["" if change.kind == "delete" else etag for (_, etag), change in zip(parts, changes, strict=True)]


def _page(response: Response) -> Page:
    rows = [table_wire.row(one) for one in json.loads(response.body)["value"]]
    keys = {name: response.headers.get(f"{_NEXT}{name.lower()}") for name in (PARTITION, KEY)}
    return Page(rows, json.dumps(keys) if any(keys.values()) else None)
