"""Dependencies between tasks in Azure Table Storage."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from legacy_queue.adapters.azure.client import unavailable_when_down
from legacy_queue.adapters.azure.rows import ExpiringRows, between, slugid_in
from legacy_queue.ports import DependencyStore, Dependent

_END = "~"  # behind every taskId


class AzureDependencyStore(ExpiringRows, DependencyStore):
    """A partition for each task that others depend on, a row for each of those."""

    def add(self, required_id: str, dependent: Dependent, expires: datetime) -> None:
        row = {
            "PartitionKey": required_id,
            "RowKey": dependent.task_id,
            "requires": dependent.requires,
            "expires": expires,
        }
        with unavailable_when_down():
            self._table.upsert_entity(row)

    def dependents(self, required_id: str, after: str, limit: int) -> Sequence[Dependent]:
        return between(self._table, required_id, after, _END, limit, _dependent)


def _dependent(row: dict[str, Any]) -> Dependent:
    if row["requires"] not in ("all-completed", "all-resolved"):
        raise ValueError("it requires something else")
    return Dependent(slugid_in(row["RowKey"]), row["requires"])
