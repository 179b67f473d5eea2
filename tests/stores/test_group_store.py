from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from legacy_queue.domain.ids import slugid
from legacy_queue.stores import ActiveTask, Group, GroupStore, Sealed, Storage

from .conftest import Backend
from .paging import pages, remove_all_expired

EXPIRES = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def test_a_new_group_has_the_scheduler_of_its_founder(storage: Storage) -> None:
    group_id = slugid()
    theirs = storage.groups.join(slugid(), group_id, "scheduler", EXPIRES, lambda: "founder's")
    assert theirs.scheduler_id == "founder's"
    assert storage.groups.load(group_id) is None
    assert not storage.groups.members(group_id, "", 10)
    assert not all_active(storage)
    ours = storage.groups.join(slugid(), group_id, "founder's", EXPIRES, lambda: "founder's")
    assert ours == Group(group_id, "founder's", EXPIRES)


def test_a_sealed_group_takes_no_new_member(storage: Storage, other: Storage) -> None:
    group_id, first = slugid(), slugid()
    for store in (storage, other):  # both have seen it
        store.groups.join(first, group_id, "scheduler", EXPIRES)
    known = storage.groups.load(group_id)
    assert known
    sealed = storage.groups.seal(replace(known, expires=EXPIRES + DAY), EXPIRES - DAY)
    assert (sealed.sealed, sealed.expires) == (EXPIRES - DAY, EXPIRES + DAY)
    for store in (storage, other):
        with pytest.raises(Sealed):
            store.groups.join(slugid(), group_id, "scheduler", EXPIRES)
        assert store.groups.join(first, group_id, "scheduler", EXPIRES).sealed == EXPIRES - DAY
    assert other.groups.seal(known, EXPIRES) == other.groups.load(group_id) == sealed
    assert storage.groups.members(group_id, "", 9) == [first]


def test_a_group_that_has_lost_its_row_open_can_be_sealed(storage: Storage, backend: Backend) -> None:
    group = storage.groups.join(slugid(), slugid(), "scheduler", EXPIRES)
    storage.account.table(f"{backend.prefix}groups").delete(group.task_group_id, "open")
    assert storage.groups.seal(group, EXPIRES - DAY).sealed == EXPIRES - DAY


def test_a_group_without_a_row_can_be_sealed(storage: Storage, other: Storage) -> None:
    group = Group(slugid(), "scheduler", EXPIRES)
    sealed = storage.groups.seal(group, EXPIRES - DAY)
    assert sealed == replace(group, sealed=EXPIRES - DAY)
    assert other.groups.load(group.task_group_id) == sealed
    storage.groups.activate(slugid(), group, 1)  # a rerun is no new member
    with pytest.raises(Sealed):
        other.groups.join(slugid(), group.task_group_id, "scheduler", EXPIRES)


class LateStore(GroupStore):
    """Its first look at a group is from before another process made it."""

    looks = 0

    def load(self, task_group_id: str) -> Group | None:
        self.looks += 1
        return super().load(task_group_id) if self.looks > 1 else None


def test_of_two_that_seal_a_missing_group_at_once_one_does(storage: Storage, backend: Backend) -> None:
    group = Group(slugid(), "scheduler", EXPIRES)
    sealed = storage.groups.seal(group, EXPIRES - DAY)
    late = LateStore(storage.account.table(f"{backend.prefix}groups"), backend.clock)
    assert late.seal(group, EXPIRES) == sealed
    assert late.looks == 2


def test_a_process_that_knows_an_older_version_of_a_group_does_not_shorten_its_life(
    storage: Storage, other: Storage
) -> None:
    group_id = slugid()
    for store, days in ((storage, 0), (other, 9), (storage, 5)):
        store.groups.join(slugid(), group_id, "scheduler", EXPIRES + days * DAY)
    assert storage.groups.load(group_id) == Group(group_id, "scheduler", EXPIRES + 9 * DAY)


def test_a_task_enters_a_group_that_expired_after_this_process_saw_it(
    storage: Storage, other: Storage
) -> None:
    group, task_id, later = Group(slugid(), "scheduler", EXPIRES), slugid(), EXPIRES + 9 * DAY
    for enter in (
        lambda: storage.groups.join(task_id, group.task_group_id, "scheduler", later),
        lambda: storage.groups.activate(task_id, replace(group, expires=later), 0),
    ):
        storage.groups.join(slugid(), group.task_group_id, "scheduler", EXPIRES)
        remove_all_expired(other.groups, EXPIRES + DAY)
        enter()
        assert other.groups.load(group.task_group_id) == replace(group, expires=later)
        remove_all_expired(other.groups, later + DAY)


def all_active(storage: Storage) -> list[ActiveTask]:
    return [active for page in pages(lambda after: storage.groups.all_active(after, 100)) for active in page]


def test_active_tasks_are_found_by_their_state_but_those_of_old_rows_among_all(
    storage: Storage, backend: Backend
) -> None:
    group = Group(slugid(), "scheduler", EXPIRES)
    joined, activated, old = (slugid() for _ in range(3))
    for task_id in (joined, old):
        storage.groups.join(task_id, group.task_group_id, "scheduler", EXPIRES)
    storage.groups.activate(activated, group, 2)
    table = storage.account.table(f"{backend.prefix}groups")
    table.put(group.task_group_id, f"active-{old}-0000", {"since": EXPIRES, "expires": EXPIRES})
    for also_old, wanted in ((False, {joined, activated}), (True, {joined, activated, old})):
        found = pages(partial(storage.groups.all_active, limit=2, also_old=also_old))
        assert {active.task_id for page in found for active in page} == wanted


def test_a_group_expires_with_its_members_and_active_tasks(storage: Storage, other: Storage) -> None:
    group_id, kept_id = slugid(), slugid()
    for _ in range(3):
        storage.groups.join(slugid(), group_id, "scheduler", EXPIRES)
        other.groups.join(slugid(), kept_id, "scheduler", EXPIRES + DAY)
    remove_all_expired(storage.groups, EXPIRES, 2)
    assert storage.groups.load(group_id)
    remove_all_expired(storage.groups, EXPIRES + HOUR, 2)
    assert other.groups.load(group_id) is None
    assert other.groups.members(group_id, "", 10) == []
    assert storage.groups.load(kept_id) == Group(kept_id, "scheduler", EXPIRES + DAY)
    assert len(storage.groups.members(kept_id, "", 10)) == len(all_active(storage)) == 3
