"""Task groups in Azure Table Storage."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.data.tables import TableClient, TableEntity, UpdateMode

from legacy_queue.adapters.azure.client import LOST_RACE, unavailable_when_down
from legacy_queue.adapters.azure.entities import of_kind
from legacy_queue.adapters.azure.rows import KEYS, ExpiringRows, between, page, read, readable, slugid_in
from legacy_queue.adapters.recent import Recent
from legacy_queue.ports import ActivePage, ActiveTask, Changed, Clock, Group, GroupStore

_REMEMBERED = 2000  # groups
_GROUP, _MEMBER, _ACTIVE = "group", "member-", "active-"
_MEMBERS_END, _ACTIVE_END = "member.", "active."  # "." is the character behind "-"


class _Stored(NamedTuple):
    group: Group
    etag: str


class AzureGroupStore(ExpiringRows, GroupStore):
    """A partition for each group, with three kinds of rows.

    ``group``, ``member-<taskId>`` for each of its tasks, and ``active-<taskId>-<activation>`` while it is so.
    """

    def __init__(self, table: TableClient, clock: Clock) -> None:
        super().__init__(table)
        self._clock = clock
        self._recent: Recent[str, _Stored] = Recent(_REMEMBERED)

    def join(self, task_id: str, task_group_id: str, scheduler_id: str, expires: datetime) -> Group:
        rows = [
            {"PartitionKey": task_group_id, "RowKey": _MEMBER + task_id, "expires": expires},
            self._active_row(task_id, task_group_id, 0, expires),
        ]
        stored = self._recent.get(task_group_id)
        if stored and stored.group.scheduler_id != scheduler_id:
            stored = self._read(task_group_id)
        while stored is None or stored.group.scheduler_id == scheduler_id:
            group = stored.group if stored else Group(task_group_id, scheduler_id, expires)
            try:
                return self._write(stored, replace(group, expires=max(group.expires, expires)), rows)
            except Changed:
                stored = self._read(task_group_id)
        return stored.group

    def leave(self, task_id: str, task_group_id: str) -> None:
        self.deactivate(task_id, task_group_id, 0)
        with unavailable_when_down():
            self._table.delete_entity(task_group_id, _MEMBER + task_id)

    def load(self, task_group_id: str) -> Group | None:
        stored = self._read(task_group_id)
        return stored.group if stored else None

    def members(self, task_group_id: str, after: str, limit: int) -> Sequence[str]:
        return between(self._table, task_group_id, _MEMBER + after, _MEMBERS_END, limit, _member, KEYS)

    def activate(self, task_id: str, task_group_id: str, activation: int, expires: datetime) -> None:
        with unavailable_when_down():
            self._table.upsert_entity(self._active_row(task_id, task_group_id, activation, expires))

    def deactivate(self, task_id: str, task_group_id: str, activation: int) -> None:
        with unavailable_when_down():
            self._table.delete_entity(task_group_id, _active_key(task_id, activation))

    def has_active(self, task_group_id: str) -> bool:
        return bool(between(self._table, task_group_id, _ACTIVE, _ACTIVE_END, 1, _activation, KEYS))

    def all_active(self, after: str, limit: int) -> ActivePage:
        query = "RowKey gt @first and RowKey lt @end"
        rows, further = page(self._table, query, {"first": _ACTIVE, "end": _ACTIVE_END}, after, limit)
        return ActivePage([*readable(rows, _active_task)], further)

    def _active_row(
        self, task_id: str, task_group_id: str, activation: int, expires: datetime
    ) -> dict[str, Any]:
        return {
            "PartitionKey": task_group_id,
            "RowKey": _active_key(task_id, activation),
            "since": self._clock.now(),
            "expires": expires,
        }

    def _write(self, stored: _Stored | None, group: Group, rows: Sequence[dict[str, Any]]) -> Group:
        """Write the rows, and the group where it is not as it is stored, at once; raises Changed."""
        changes: list[Any] = [("upsert", row) for row in rows]
        row = {"PartitionKey": group.task_group_id, "RowKey": _GROUP, "expires": group.expires}
        if stored is None:
            changes.insert(0, ("create", {**row, "schedulerId": group.scheduler_id}))
        elif group != stored.group:
            condition = {
                "etag": stored.etag,
                "match_condition": MatchConditions.IfNotModified,
                "mode": UpdateMode.MERGE,
            }
            changes.insert(0, ("update", row, condition))
        try:
            with unavailable_when_down():
                metadata = self._table.submit_transaction(changes)
        except HttpResponseError as error:
            if error.status_code not in LOST_RACE:
                raise
            raise Changed from None
        if len(changes) > len(rows):
            self._recent.put(group.task_group_id, _Stored(group, str(metadata[0]["etag"])))
        return group

    def _read(self, task_group_id: str) -> _Stored | None:
        try:
            with unavailable_when_down():
                row = self._table.get_entity(task_group_id, _GROUP)
        except ResourceNotFoundError:
            self._recent.forget(task_group_id)
            return None
        stored = read(row, _stored)
        self._recent.put(task_group_id, stored)
        return stored

    def _forget(self, partition: str) -> None:
        self._recent.forget(partition)


def _active_key(task_id: str, activation: int) -> str:
    return f"{_ACTIVE}{task_id}-{activation:04}"


def _stored(row: TableEntity) -> _Stored:
    scheduler_id, expires = of_kind(str, row["schedulerId"]), of_kind(datetime, row["expires"])
    return _Stored(Group(row["PartitionKey"], scheduler_id, expires), str(row.metadata["etag"]))


def _member(row: dict[str, Any]) -> str:
    return slugid_in(row["RowKey"].removeprefix(_MEMBER))


def _activation(row: dict[str, Any]) -> tuple[str, int]:
    task_id, _, activation = row["RowKey"].removeprefix(_ACTIVE).rpartition("-")
    return slugid_in(task_id), int(activation)


def _active_task(row: dict[str, Any]) -> ActiveTask:
    return ActiveTask(slugid_in(row["PartitionKey"]), *_activation(row), of_kind(datetime, row["since"]))
