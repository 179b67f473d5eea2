"""Stores which tasks depend on a task."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from legacy_queue.domain.definition import MAX_DEADLINE
from legacy_queue.ports import Clock
from legacy_queue.ports.table import Change, Row, Table
from legacy_queue.stores.table_rows import ExpiringRows, between, of_kind, slugid_in

_MARK = "!"
_END = "~"  # "!" sorts before every taskId, "~" after
_MARK_KEPT = MAX_DEADLINE + timedelta(days=1)  # longer than any task waits


@dataclass(frozen=True)
class Dependent:
    """A task that waits for another task. ``requires`` is all-completed or all-resolved."""

    task_id: str
    requires: str


class DependencyStore(ExpiringRows):
    """A partition for each required task. It has a row for each dependent, and a mark that there are any."""

    def __init__(self, table: Table, clock: Clock) -> None:
        super().__init__(table)
        self._clock = clock

    def add(self, required_id: str, dependent: Dependent, expires: datetime) -> None:
        """Store that ``dependent`` depends on ``required_id``. Safe to repeat."""
        row = Change("put", dependent.task_id, {"requires": dependent.requires, "expires": expires})
        mark = Change("put", _MARK, {"expires": self._clock.now() + _MARK_KEPT})
        self._table.batch(required_id, [mark, row])

    def has_any(self, required_id: str) -> bool:
        """Whether any task may wait for ``required_id``. Costs one point read."""
        return self._table.get(required_id, _MARK) is not None

    def dependents(self, required_id: str, after: str, limit: int) -> Sequence[Dependent]:
        """Returns up to ``limit`` dependents after ``after``, in byte order. Only the last page is short."""
        return between(self._table, required_id, after or _MARK, _END, limit, _dependent)


def _dependent(row: Row) -> Dependent:
    return Dependent(slugid_in(row.key), of_kind(str, row.values["requires"]))
