from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from legacy_queue.domain.ids import slugid
from legacy_queue.ports.table import RowPage
from legacy_queue.stores import ActiveTask, Group, GroupStore, Sealed, Storage
from tests.domain.sample_tasks import DAY, HOUR, NOW
from tests.memory_server import FakeClock, MemoryTable

from .conftest import Backend
from .paging import pages, remove_all_expired


def test_a_sealed_group_accepts_no_new_member(storage: Storage, other: Storage) -> None:
    group_id, first = slugid(), slugid()
    for store in (storage, other):  # both processes have it in their cache
        store.groups.join(first, Group(group_id, "scheduler", NOW), "")
    sealed = storage.groups.seal(group_id, NOW - DAY)
    assert sealed == Group(group_id, "scheduler", NOW, sealed=NOW - DAY)
    for store in (storage, other):
        with pytest.raises(Sealed):
            store.groups.join(slugid(), Group(group_id, "scheduler", NOW), "")
        assert store.groups.join(first, Group(group_id, "scheduler", NOW), "").sealed == NOW - DAY
    assert other.groups.seal(group_id, NOW) == other.groups.load(group_id) == sealed
    assert storage.groups.members(group_id, "", 9) == [first]


def test_a_group_that_is_about_to_expire_can_be_sealed(storage: Storage, backend: Backend) -> None:
    group = storage.groups.join(slugid(), Group(slugid(), "scheduler", NOW), "")
    storage.account.table(f"{backend.prefix}groups").delete(group.task_group_id, "open")
    assert storage.groups.seal(group.task_group_id, NOW - DAY) == replace(group, sealed=NOW - DAY)


def test_sealing_a_group_that_does_not_exist_does_nothing(storage: Storage) -> None:
    assert storage.groups.seal(slugid(), NOW) is None


def test_a_rerun_of_a_member_is_allowed_in_a_sealed_group(storage: Storage, other: Storage) -> None:
    group = storage.groups.join(slugid(), Group(slugid(), "scheduler", NOW), "")
    assert other.groups.seal(group.task_group_id, NOW - DAY)
    again = slugid()
    storage.groups.activate(again, group, 1)
    assert again in [active.task_id for active in storage.groups.active(group.task_group_id, "", 9)]
    with pytest.raises(Sealed):
        storage.groups.join(slugid(), group, "")


def test_a_process_with_an_outdated_group_in_its_cache_does_not_shorten_the_groups_expiry(
    storage: Storage, other: Storage
) -> None:
    group_id = slugid()
    for store, days in ((storage, 0), (other, 9), (storage, 5)):
        store.groups.join(slugid(), Group(group_id, "scheduler", NOW + days * DAY), "")
    assert storage.groups.load(group_id) == Group(group_id, "scheduler", NOW + 9 * DAY)


def test_a_task_can_join_a_group_that_expired_after_this_process_cached_it(
    storage: Storage, other: Storage
) -> None:
    group, task_id, later = Group(slugid(), "scheduler", NOW), slugid(), NOW + 9 * DAY
    for enter in (
        lambda: storage.groups.join(task_id, Group(group.task_group_id, "scheduler", later), ""),
        lambda: storage.groups.activate(task_id, replace(group, expires=later), 0),
    ):
        storage.groups.join(slugid(), Group(group.task_group_id, "scheduler", NOW), "")
        remove_all_expired(other.groups, NOW + DAY)
        enter()
        assert other.groups.load(group.task_group_id) == replace(group, expires=later)
        remove_all_expired(other.groups, later + DAY)


def test_when_the_first_member_is_resolved_a_member_that_another_process_added_stays_active(
    storage: Storage, other: Storage
) -> None:
    group, first, second = Group(slugid(), "scheduler", NOW), slugid(), slugid()
    storage.groups.join(first, group, "process/7")
    other.groups.join(second, group, "process/8")
    assert storage.groups.end(first, group.task_group_id, {0})
    assert [active.task_id for active in storage.groups.active(group.task_group_id, "", 9)] == [second]
    assert not other.groups.end(second, group.task_group_id, {0})
    assert storage.groups.members(group.task_group_id, "", 9) == sorted([first, second])


class JoinedMeanwhile(MemoryTable):
    """A table in which another task joins the group just after a page was read."""

    def __init__(self) -> None:
        super().__init__()
        self.join: Callable[[], object] | None = None

    def page(self, *asked: Any, **named: Any) -> RowPage:
        found = super().page(*asked, **named)
        join, self.join = self.join, None
        if join:
            join()
        return found


def test_a_member_is_listed_while_another_task_joins() -> None:
    table = JoinedMeanwhile()
    groups, group, first = GroupStore(table, FakeClock()), Group(slugid(), "scheduler", NOW), slugid()
    groups.join(first, group, "")
    table.join = lambda: groups.join(slugid(), group, "")
    assert groups.members(group.task_group_id, "", 9) == [first]
    assert len(groups.members(group.task_group_id, "", 9)) == 2


def test_the_only_member_of_a_group_can_join_again_after_it_was_resolved(
    storage: Storage, other: Storage
) -> None:
    group, task_id = Group(slugid(), "scheduler", NOW), slugid()
    storage.groups.join(task_id, group, "")
    for _ in range(2):  # repeating the call is safe
        assert not other.groups.end(task_id, group.task_group_id, {0})
    assert storage.groups.active(group.task_group_id, "", 9) == []
    storage.groups.join(task_id, group, "process/9")
    assert storage.groups.is_active(group.task_group_id)
    assert other.groups.members(group.task_group_id, "", 9) == [task_id]


def all_active(storage: Storage) -> list[ActiveTask]:
    return [active for page in pages(lambda after: storage.groups.all_active(after, 100)) for active in page]


def test_each_active_task_says_which_write_made_it_a_member(storage: Storage) -> None:
    group = Group(slugid(), "scheduler", NOW)
    joined, activated = slugid(), slugid()
    storage.groups.join(joined, group, "process/7")
    storage.groups.activate(activated, group, 2)
    written = {active.task_id: active.written for active in all_active(storage)}
    assert written == {joined: "process/7", activated: ""}


def test_a_group_expires_with_its_members_and_active_tasks(storage: Storage, other: Storage) -> None:
    group_id, kept_id = slugid(), slugid()
    for _ in range(3):
        storage.groups.join(slugid(), Group(group_id, "scheduler", NOW), "")
        other.groups.join(slugid(), Group(kept_id, "scheduler", NOW + DAY), "")
    remove_all_expired(storage.groups, NOW, 2)
    assert storage.groups.load(group_id)
    remove_all_expired(storage.groups, NOW + HOUR, 2)
    assert other.groups.load(group_id) is None
    assert other.groups.members(group_id, "", 10) == []
    assert storage.groups.load(kept_id) == Group(kept_id, "scheduler", NOW + DAY)
    assert len(storage.groups.members(kept_id, "", 10)) == len(all_active(storage)) == 3


def test_the_only_member_is_resolved_in_a_group_whose_id_belonged_to_an_expired_group(
    storage: Storage, other: Storage, backend: Backend
) -> None:
    group_id, task_id = slugid(), slugid()
    for _ in range(2):
        storage.groups.join(slugid(), Group(group_id, "scheduler", NOW), "")
    backend.clock.jump(NOW + DAY - backend.clock.now())
    remove_all_expired(other.groups, NOW + DAY)
    other.groups.join(task_id, Group(group_id, "scheduler", NOW + 9 * DAY), "")
    assert not storage.groups.end(task_id, group_id, {0})
    assert other.groups.active(group_id, "", 9) == []
