"""Which tasks depend on a task."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from legacy_queue.ports.table import Row
from legacy_queue.stores.rows import ExpiringRows, between, of_kind, slugid_in

_BEGIN = "!"
_END = "~"  # before and behind every taskId


@dataclass(frozen=True)
class Dependent:
    """A task that waits for another task: ``requires`` is all-completed or all-resolved."""

    task_id: str
    requires: str


class DependencyStore(ExpiringRows):
    """A partition for each required task: a row for each of its dependents."""

    def add(self, required_id: str, dependent: Dependent, expires: datetime) -> None:
        """Store that ``dependent`` depends on ``required_id``. Safe to repeat."""
        self._table.put(required_id, dependent.task_id, {"requires": dependent.requires, "expires": expires})

    def dependents(self, required_id: str, after: str, limit: int) -> Sequence[Dependent]:
        """Up to ``limit`` behind the taskId ``after``, ordered as bytes. Only the last page is short."""
        return between(self._table, required_id, after or _BEGIN, _END, limit, _dependent)


def _dependent(row: Row) -> Dependent:
    return Dependent(slugid_in(row.key), of_kind(str, row.values["requires"]))
