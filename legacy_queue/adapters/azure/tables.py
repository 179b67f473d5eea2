"""Tasks and task groups in Azure Table Storage."""

from datetime import datetime
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.data.tables import TableClient, TableTransactionError, UpdateMode

from legacy_queue.adapters.azure.client import unavailable_when_down
from legacy_queue.adapters.azure.entities import ROW_KEY, changing_properties, task_entity, task_from_entity
from legacy_queue.adapters.recent import Recent
from legacy_queue.domain.task import Task
from legacy_queue.ports import AlreadyExists, Changed, Group, GroupStore, StoredTask, TaskStore

# How many tasks and groups a process remembers, and how large a task may be for that
_REMEMBERED = 2000
_LARGEST_REMEMBERED = 16 * 1024


class AzureTaskStore(TaskStore):
    """Every change is a conditional write on the entity's ETag, so a remembered task needs no read."""

    def __init__(self, table: TableClient) -> None:
        self._table = table
        self._recent: Recent[str, StoredTask] = Recent(_REMEMBERED)

    def load(self, task_id: str) -> StoredTask | None:
        try:
            with unavailable_when_down():
                entity = self._table.get_entity(task_id, ROW_KEY)
        except ResourceNotFoundError:
            return None
        size = sum(len(value) for name, value in entity.items() if name.startswith("definition"))
        return self._remember(StoredTask(task_from_entity(entity), str(entity.metadata["etag"])), size)

    def recall(self, task_id: str) -> StoredTask | None:
        return self._recent.get(task_id)

    def insert(self, task: Task) -> StoredTask:
        entity = task_entity(task)
        try:
            with unavailable_when_down():
                metadata = self._table.create_entity(entity)
        except ResourceExistsError:
            raise AlreadyExists from None
        return self._remember(StoredTask(task, str(metadata["etag"])), len(entity["definition0"]))

    def replace(self, stored: StoredTask, task: Task) -> StoredTask:
        try:
            with unavailable_when_down():
                metadata = self._table.update_entity(
                    changing_properties(task),
                    mode=UpdateMode.MERGE,
                    etag=stored.etag,
                    match_condition=MatchConditions.IfNotModified,
                )
        except (ResourceModifiedError, ResourceNotFoundError):
            self._recent.forget(task.task_id)
            raise Changed from None
        stored_now = StoredTask(task, str(metadata["etag"]))
        if self._recent.get(task.task_id):
            self._recent.put(task.task_id, stored_now)
        return stored_now

    def _remember(self, stored: StoredTask, size: int) -> StoredTask:
        if size <= _LARGEST_REMEMBERED:
            self._recent.put(stored.task.task_id, stored)
        return stored


class AzureGroupStore(GroupStore):
    """A partition for each group: the row ``group``, and ``member-<taskId>`` for each of its tasks."""

    def __init__(self, table: TableClient) -> None:
        self._table = table
        self._recent: Recent[str, Group] = Recent(_REMEMBERED)

    def join(self, task_id: str, task_group_id: str, scheduler_id: str, expires: datetime) -> Group:
        member = {"PartitionKey": task_group_id, "RowKey": f"member-{task_id}", "expires": expires}
        wanted = Group(task_group_id, scheduler_id, expires)
        known, etag = self._recent.get(task_group_id), None
        while True:
            if known and known.scheduler_id != scheduler_id:
                return known
            if known and known.expires >= expires:
                with unavailable_when_down():
                    self._table.upsert_entity(member)
                return known
            if known and etag is None:  # remembered, and its expiry must move: the row's ETag is needed
                known, etag = self._load(task_group_id)
                continue
            if self._write(wanted, etag, member):
                self._recent.put(task_group_id, wanted)
                return wanted
            known, etag = self._load(task_group_id)

    def _write(self, group: Group, etag: str | None, member: dict[str, Any]) -> bool:
        """Write group and member at once; False when somebody else wrote the group first."""
        row = {"PartitionKey": group.task_group_id, "RowKey": "group", "expires": group.expires}
        if etag is None:
            change: Any = ("create", {**row, "schedulerId": group.scheduler_id})
        else:
            condition = {
                "etag": etag,
                "match_condition": MatchConditions.IfNotModified,
                "mode": UpdateMode.MERGE,
            }
            change = ("update", row, condition)
        try:
            with unavailable_when_down():
                self._table.submit_transaction([change, ("upsert", member)])
        except (TableTransactionError, ResourceExistsError, ResourceModifiedError, ResourceNotFoundError):
            return False
        return True

    def _load(self, task_group_id: str) -> tuple[Group | None, str | None]:
        try:
            with unavailable_when_down():
                row = self._table.get_entity(task_group_id, "group")
        except ResourceNotFoundError:
            self._recent.forget(task_group_id)
            return None, None
        group = Group(task_group_id, row["schedulerId"], row["expires"])
        self._recent.put(task_group_id, group)
        return group, str(row.metadata["etag"])
