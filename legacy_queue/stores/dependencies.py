"""Which tasks depend on a task."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from legacy_queue.ports.table import Row
from legacy_queue.stores.rows import ExpiringRows, between, of_kind, slugid_in

_END = "~"  # behind every taskId


@dataclass(frozen=True)
class Dependent:
    """A task that waits for another one: to be completed, or only to be resolved."""

    task_id: str
    requires: str


class DependencyStore(ExpiringRows):
    """A partition for each task that others depend on, a row for each of those."""

    def add(self, required_id: str, dependent: Dependent, expires: datetime) -> None:
        """Remember that ``dependent`` depends on ``required_id``. Safe to repeat."""
        self._table.put(required_id, dependent.task_id, {"requires": dependent.requires, "expires": expires})

    def dependents(self, required_id: str, after: str, limit: int) -> Sequence[Dependent]:
        """Up to ``limit`` with a taskId greater than ``after``, ordered as bytes: fewer at the end only."""
        return between(self._table, required_id, after, _END, limit, _dependent)


def _dependent(row: Row) -> Dependent:
    requires = of_kind(str, row.values["requires"])
    if requires not in ("all-completed", "all-resolved"):
        raise ValueError("it requires something else")
    return Dependent(slugid_in(row.key), requires)
