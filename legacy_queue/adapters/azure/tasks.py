"""Tasks in Azure Table Storage."""

from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.data.tables import TableClient, TableEntity, UpdateMode

from legacy_queue.adapters.azure.client import unavailable_when_down
from legacy_queue.adapters.azure.entities import ROW_KEY, changing_properties, task_entity, task_from_entity
from legacy_queue.adapters.azure.rows import ExpiringRows, page, read, readable
from legacy_queue.adapters.recent import Recent
from legacy_queue.domain.task import Task
from legacy_queue.ports import AlreadyExists, Changed, StoredTask, TaskPage, TaskStore

# How many tasks a process remembers, and how large one may be for that
_REMEMBERED = 2000
_LARGEST_REMEMBERED = 16 * 1024

_UNRESOLVED = "state eq 'unscheduled' or state eq 'pending' or state eq 'running'"
_RESOLVED = "state eq 'completed' or state eq 'failed' or state eq 'exception'"


class AzureTaskStore(ExpiringRows, TaskStore):
    """Every change is a conditional write on the entity's ETag, so a remembered task needs no read."""

    _EXPIRED = f"expires lt @now and ({_RESOLVED})"

    def __init__(self, table: TableClient) -> None:
        super().__init__(table)
        self._recent: Recent[str, StoredTask] = Recent(_REMEMBERED)

    def load(self, task_id: str) -> StoredTask | None:
        try:
            with unavailable_when_down():
                entity = self._table.get_entity(task_id, ROW_KEY)
        except ResourceNotFoundError:
            self._recent.forget(task_id)
            return None
        stored, known = read(entity, _stored), self._recent.get(task_id)
        if known and known.etag == stored.etag:
            return known
        size = sum(len(value) for name, value in entity.items() if name.startswith("definition"))
        return self._remember(stored, size)

    def recall(self, task_id: str) -> StoredTask | None:
        return self._recent.get(task_id)

    def insert(self, task: Task) -> StoredTask:
        entity = task_entity(task)
        try:
            with unavailable_when_down():
                metadata = self._table.create_entity(entity)
        except ResourceExistsError:
            raise AlreadyExists from None
        stored = StoredTask(task, str(metadata["etag"]), is_own=True)
        return self._remember(stored, len(entity["definition0"]))

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
        stored_now = StoredTask(task, str(metadata["etag"]), is_own=True)
        if self._recent.get(task.task_id):
            self._recent.put(task.task_id, stored_now)
        return stored_now

    def pending(self, provisioner_id: str, worker_type: str) -> None:
        """That would be a scan of the table."""

    def unresolved(self, after: str, limit: int) -> TaskPage:
        entities, further = page(self._table, _UNRESOLVED, {}, after, limit)
        return TaskPage([*readable(entities, _stored)], further)

    def _remember(self, stored: StoredTask, size: int) -> StoredTask:
        if size <= _LARGEST_REMEMBERED:
            self._recent.put(stored.task.task_id, stored)
        return stored

    def _forget(self, partition: str) -> None:
        self._recent.forget(partition)


def _stored(entity: TableEntity) -> StoredTask:
    return StoredTask(task_from_entity(entity), str(entity.metadata["etag"]))
