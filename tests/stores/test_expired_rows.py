"""Rows are removed when they have expired, and never before."""

from collections.abc import Sequence

from legacy_queue.domain.definition import MAX_DEADLINE
from legacy_queue.domain.ids import slugid
from legacy_queue.ports.table import Change
from legacy_queue.stores import Dependent, Group, GroupStore, Storage
from legacy_queue.stores.table_rows import ExpiringRows
from tests.domain.sample_tasks import DAY, HOUR, NOW
from tests.memory_server import FakeClock, MemoryTable

from .conftest import Backend
from .paging import remove_all_expired

GROUP = slugid()


class MovingTable(MemoryTable):
    """A table in which another process changes the expiry of ``moved`` just before these rows are deleted."""

    moved: tuple[str, ...] = ()
    batches = 0

    def delete(self, partition: str, key: str, etag: str | None = None) -> None:
        for each in self.moved:
            self.merge(partition, each, {"expires": NOW + DAY})
        super().delete(partition, key, etag)

    def batch(self, partition: str, changes: Sequence[Change]) -> Sequence[str]:
        self.batches += 1
        for key in self.moved:
            self.merge(partition, key, {"expires": NOW + DAY})
        return super().batch(partition, changes)


def test_the_expired_rows_of_a_partition_are_removed_in_one_call() -> None:
    table = MovingTable()
    groups = GroupStore(table, FakeClock())
    members = [slugid() for _ in range(40)]
    for member in members:
        groups.join(member, Group(GROUP, "scheduler", NOW), "")
    table.batches = 0
    table.moved = ("group", f"member-{members[7]}")
    remove_all_expired(groups, NOW + HOUR)
    assert len(groups.members(GROUP, "", 100)) == 40
    table.moved = ()
    remove_all_expired(groups, NOW + HOUR)
    assert groups.members(GROUP, "", 100) == [members[7]]
    assert groups.load(GROUP)
    assert table.batches == 2


def test_a_row_whose_expiry_was_moved_by_another_process_is_not_removed() -> None:
    table = MovingTable()
    table.insert("alone in its partition", "key", {"expires": NOW})
    table.moved = ("key",)
    remove_all_expired(ExpiringRows(table), NOW + HOUR)
    (row,) = table.page([], "", 10).rows
    assert row.values == {"expires": NOW + DAY}
    table.moved = ()
    remove_all_expired(ExpiringRows(table), NOW + 2 * DAY)
    assert table.page([], "", 10).rows == []


def test_the_mark_that_a_task_has_dependents_is_removed_after_the_longest_deadline(
    storage: Storage, backend: Backend
) -> None:
    required_id, now = slugid(), backend.clock.now()
    storage.dependencies.add(required_id, Dependent(slugid(), "all-completed"), now + 30 * DAY)
    remove_all_expired(storage.dependencies, now + MAX_DEADLINE)
    assert storage.dependencies.has_any(required_id)
    remove_all_expired(storage.dependencies, now + MAX_DEADLINE + 2 * DAY)
    assert not storage.dependencies.has_any(required_id)
    assert len(storage.dependencies.dependents(required_id, "", 9)) == 1
