"""A table of Azure Table Storage."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableClient, UpdateMode

from legacy_queue.adapters.azure.errors import Refusals, call, find, present
from legacy_queue.ports import AlreadyExists, Changed, InvalidPosition
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

_LOST_RACE = dict.fromkeys((404, 409, 412), Changed)  # another writer was first
_REFUSALS: Mapping[str, Refusals] = {
    "insert": {409: AlreadyExists},
    "merge": _LOST_RACE,
    "delete": {412: Changed},
}
# what the SDK calls the changes
_NAMES = {"insert": "create", "put": "upsert", "merge": "update", "delete": "delete"}


class AzureTable(Table):
    """A table. Each operation is one request. ``missing`` makes the error if the table does not exist."""

    def __init__(self, client: TableClient, missing: Callable[[], Exception]) -> None:
        self._client: Any = client
        self._missing: Refusals = {"TableNotFound": missing}
        self._lost_race: Refusals = {**_LOST_RACE, **self._missing}

    def get(self, partition: str, key: str) -> Row | None:
        check_key(partition, key)
        return find(lambda: _row(self._client.get_entity(partition, key)), self._missing)

    def create(self) -> None:
        """Create the table; raises AlreadyExists."""
        call(self._client.create_table, {409: AlreadyExists})

    def remove(self) -> None:
        """Delete the table; safe to repeat."""
        call(self._client.delete_table)

    def batch(self, partition: str, changes: Sequence[Change]) -> Sequence[str]:
        check_changes(partition, changes)
        # it costs the SDK a tenth of what a batch costs
        if len(changes) == 1 and changes[0].kind != "delete":
            return [self._write(partition, changes[0], self._lost_race)]
        operations = [(_NAMES[change.kind], *_arguments(partition, change)) for change in changes]

        def etags() -> Sequence[str]:
            parts = self._client.submit_transaction(operations)
            return [_etag(change, part) for change, part in zip(changes, parts, strict=True)]

        return call(etags, self._lost_race)

    def page(
        self,
        conditions: Sequence[Condition],
        after: str,
        limit: int,
        select: Sequence[str] | None = None,
        newest_first: bool = False,  # noqa: ARG002 - Azure does not know the age of rows
    ) -> RowPage:
        check_limit(limit)
        if any(condition.value == () for condition in conditions):
            return RowPage([], None)
        names = None if select is None else [PARTITION, KEY, *select]
        parameters: dict[str, Value] = {}
        condition = " and ".join([_text(condition, parameters) for condition in conditions])
        options = {"results_per_page": limit, "select": names}
        if condition:
            entities = self._client.query_entities(condition, parameters=parameters, **options)
        else:
            entities = self._client.list_entities(**options)
        pages = entities.by_page(_place(after) if after else None)
        refusals: Refusals = {400: InvalidPosition, "400": InvalidPosition} if after else {}
        rows = call(lambda: [_row(entity) for entity in next(pages, ())], {**refusals, **self._missing})
        token = pages.continuation_token
        return RowPage(rows, json.dumps(token) if token else None)

    def _change(self, partition: str, change: Change) -> str:
        check_change(partition, change)
        return self._write(partition, change, {**_REFUSALS.get(change.kind, {}), **self._missing})

    def _write(self, partition: str, change: Change, refusals: Refusals) -> str:
        entity, options = _arguments(partition, change)
        write = getattr(self._client, f"{_NAMES[change.kind]}_entity")
        answers: list[Any] = []

        def etag() -> str:
            headers = write(entity, raw_response_hook=answers.append, **options)
            # the SDK ignores it for a delete, but the table may be missing
            if (answer := answers[0].http_response).status_code == 404:
                raise HttpResponseError(response=answer)
            return _etag(change, headers)

        return (find if change.kind == "delete" else call)(etag, refusals) or ""


def _place(after: str) -> dict[str, str | None]:
    """Return the SDK's continuation token: two headers of Azure, with any content. Raises InvalidPosition."""
    with suppress(ValueError, RecursionError):
        place = json.loads(after)
        if type(place) is dict and place.keys() == {PARTITION, KEY} and all(map(_is_header, place.values())):
            return place
    raise InvalidPosition


def _is_header(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.isascii() and value.isprintable())


def _arguments(partition: str, change: Change) -> tuple[Mapping[str, Value], Mapping[str, Any]]:
    """Return the entity and the options that the SDK needs to make the change."""
    options: dict[str, Any] = {}
    if change.etag:
        options = {"etag": change.etag, "match_condition": MatchConditions.IfNotModified}
    elif change.kind == "put":
        options = {"mode": UpdateMode.REPLACE}
    elif change.kind == "insert":
        options = {"headers": {"Prefer": "return-no-content"}}
    return {PARTITION: partition, KEY: change.key, **change.values}, options


def _etag(change: Change, answer: Mapping[str, str]) -> str:
    return "" if change.kind == "delete" else present(answer["etag"])


def _row(entity: Any) -> Row:
    # a value is None if the property was selected but does not exist
    values = {name: value for name, value in entity.items() if value is not None}
    for name, value in values.items():
        if isinstance(value, datetime):  # the SDK returns a subclass
            values[name] = datetime.combine(value.date(), value.time(), UTC)
    return Row(values.pop(PARTITION), values.pop(KEY), values, entity.metadata["etag"])


def _text(condition: Condition, parameters: dict[str, Value]) -> str:
    """Return the condition for a ``$filter``. The SDK fills in the ``parameters``."""

    def comparison(operator: str, value: Value) -> str:
        if type(value) is int:  # the SDK would turn 0 and 1 into false and true
            return f"{condition.name} {operator} {value}"
        parameters[f"v{len(parameters)}"] = value
        return f"{condition.name} {operator} @v{len(parameters) - 1}"

    if not isinstance(condition.value, tuple):
        return comparison(condition.operator, condition.value)
    # the spaces are needed, because the SDK looks for parameters between spaces
    return f"( {' or '.join([comparison('eq', value) for value in condition.value])} )"
