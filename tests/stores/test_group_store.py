import itertools
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from legacy_queue.domain.ids import slugid
from legacy_queue.stores import ActiveTask, Group, Storage

from .conftest import Backend
from .paging import keyed_pages, pages, remove_all_expired

EXPIRES = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def test_the_first_task_makes_the_group(storage: Storage) -> None:
    group_id = slugid()
    assert storage.groups.join(slugid(), group_id, "scheduler", EXPIRES) == Group(
        group_id, "scheduler", EXPIRES
    )


def test_a_group_lives_as_long_as_the_longest_of_its_tasks(storage: Storage) -> None:
    group_id = slugid()
    storage.groups.join(slugid(), group_id, "scheduler", EXPIRES)
    assert storage.groups.join(slugid(), group_id, "scheduler", EXPIRES + DAY).expires == EXPIRES + DAY
    assert storage.groups.join(slugid(), group_id, "scheduler", EXPIRES - DAY).expires == EXPIRES + DAY


def test_joining_again_gives_the_same_group(storage: Storage) -> None:
    task_id, group_id = slugid(), slugid()
    first = storage.groups.join(task_id, group_id, "scheduler", EXPIRES)
    assert storage.groups.join(task_id, group_id, "scheduler", EXPIRES) == first


def test_another_scheduler_is_shown_the_group_and_changes_nothing(storage: Storage) -> None:
    group_id = slugid()
    ours = storage.groups.join(slugid(), group_id, "scheduler", EXPIRES)
    assert storage.groups.join(slugid(), group_id, "other", EXPIRES + DAY) == ours
    assert storage.groups.join(slugid(), group_id, "scheduler", EXPIRES) == ours


def test_groups_are_apart(storage: Storage) -> None:
    storage.groups.join(slugid(), slugid(), "scheduler", EXPIRES)
    assert storage.groups.join(slugid(), slugid(), "other", EXPIRES).scheduler_id == "other"


def test_a_group_that_many_join_at_once_has_the_latest_expiry(storage: Storage) -> None:
    group_id = slugid()
    latest = EXPIRES + 7 * DAY

    def join(number: int) -> Group:
        return storage.groups.join(slugid(), group_id, "scheduler", latest - number * DAY)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(join, range(8)))
    assert storage.groups.join(slugid(), group_id, "scheduler", EXPIRES).expires == latest


def test_of_several_schedulers_at_once_one_has_the_group(storage: Storage) -> None:
    group_id = slugid()

    def join(number: int) -> Group:
        return storage.groups.join(slugid(), group_id, f"scheduler-{number}", EXPIRES)

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(join, range(8)))) == 1


def test_a_group_is_loaded_as_it_was_joined(storage: Storage, other: Storage) -> None:
    group_id = slugid()
    assert storage.groups.load(group_id) is None
    storage.groups.join(slugid(), group_id, "scheduler", EXPIRES)
    other.groups.join(slugid(), group_id, "scheduler", EXPIRES + DAY)
    assert storage.groups.load(group_id) == Group(group_id, "scheduler", EXPIRES + DAY)


def test_processes_that_join_a_group_at_once_lose_no_member_and_no_expiry(
    storage: Storage, other: Storage
) -> None:
    group_id, task_ids = slugid(), [slugid() for _ in range(16)]
    for round_ in range(2):  # the first makes the group, the second moves its expiry

        def join(number: int, start: int = round_ * 8) -> Group:
            store = (storage, other)[number % 2].groups
            return store.join(
                task_ids[start + number], group_id, "scheduler", EXPIRES + (start + number) * DAY
            )

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(join, range(8)))
    assert storage.groups.load(group_id) == Group(group_id, "scheduler", EXPIRES + 15 * DAY)
    assert storage.groups.members(group_id, "", 100) == sorted(task_ids)
    assert {active.task_id for active in all_active(other)} == set(task_ids)


def test_of_two_schedulers_in_two_processes_one_has_the_group(storage: Storage, other: Storage) -> None:
    for _ in range(8):
        group_id = slugid()

        def join(number: int, group_id: str = group_id) -> Group:
            return (storage, other)[number].groups.join(slugid(), group_id, f"scheduler-{number}", EXPIRES)

        with ThreadPoolExecutor(2) as threads:
            assert len(set(threads.map(join, range(2)))) == 1
        assert len(storage.groups.members(group_id, "", 10)) == 1


def test_a_scheduler_that_is_refused_leaves_no_member(storage: Storage, other: Storage) -> None:
    group_id, ours = slugid(), slugid()
    storage.groups.join(ours, group_id, "scheduler", EXPIRES)
    for store in (storage, other):
        store.groups.join(slugid(), group_id, "other", EXPIRES)
    assert storage.groups.members(group_id, "", 10) == [ours]
    assert [active.task_id for active in all_active(storage)] == [ours]


def test_what_a_process_remembers_of_a_group_that_is_gone_refuses_nobody(
    storage: Storage, other: Storage
) -> None:
    group_id = slugid()
    storage.groups.join(slugid(), group_id, "old", EXPIRES)
    remove_all_expired(other.groups, EXPIRES + DAY)
    later = EXPIRES + 9 * DAY
    assert storage.groups.join(slugid(), group_id, "new", later) == Group(group_id, "new", later)


def test_members_come_in_pages_in_the_order_of_their_ids(storage: Storage, other: Storage) -> None:
    group_id, task_ids = slugid(), [slugid() for _ in range(25)]

    def join(number: int) -> None:
        (storage, other)[number % 2].groups.join(task_ids[number], group_id, "scheduler", EXPIRES)
        storage.groups.join(slugid(), slugid(), "scheduler", EXPIRES)  # is not among them

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(join, range(25)))
    found = keyed_pages(partial(storage.groups.members, group_id), 10)
    assert [len(page) for page in found] == [10, 10, 5]
    assert [task_id for page in found for task_id in page] == sorted(task_ids, key=str.encode)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4])
def test_a_page_is_short_at_the_end_only(storage: Storage, count: int) -> None:
    group_id = slugid()
    for _ in range(count):
        storage.groups.join(slugid(), group_id, "scheduler", EXPIRES)
    found = keyed_pages(partial(storage.groups.members, group_id), 2)
    assert sum(map(len, found)) == count


def test_members_that_come_and_go_between_pages_move_no_other(storage: Storage) -> None:
    group_id, task_ids = slugid(), sorted(slugid() for _ in range(8))
    there, before, behind, gone = task_ids[2:7], task_ids[:2], task_ids[7], task_ids[4]
    for task_id in there:
        storage.groups.join(task_id, group_id, "scheduler", EXPIRES)
    first = storage.groups.members(group_id, "", 2)
    for task_id in (*before, behind):
        storage.groups.join(task_id, group_id, "scheduler", EXPIRES)
    storage.groups.leave(first[-1], group_id)
    storage.groups.leave(gone, group_id)
    assert first == there[:2]
    assert storage.groups.members(group_id, first[-1], 10) == [there[3], there[4], behind]


def test_a_task_that_leaves_is_no_member_and_not_active_and_the_group_stays(storage: Storage) -> None:
    task_id, group_id = slugid(), slugid()
    group = storage.groups.join(task_id, group_id, "scheduler", EXPIRES)
    for _ in range(2):
        storage.groups.leave(task_id, group_id)
        assert storage.groups.members(group_id, "", 10) == []
        assert not storage.groups.has_active(group_id)
        assert storage.groups.load(group_id) == group


def test_a_task_is_active_from_when_it_joined_until_it_is_not(storage: Storage, backend: Backend) -> None:
    task_id, group_id = slugid(), slugid()
    earliest = backend.clock.now()
    storage.groups.join(task_id, group_id, "scheduler", EXPIRES)
    (active,) = all_active(storage)
    assert (active.task_group_id, active.task_id, active.activation) == (group_id, task_id, 0)
    assert earliest <= active.since <= backend.clock.now()
    assert storage.groups.has_active(group_id)
    for _ in range(2):
        storage.groups.deactivate(task_id, group_id, 0)
        assert not storage.groups.has_active(group_id)
        assert all_active(storage) == []


def test_a_task_that_is_activated_again_is_active_once(storage: Storage, backend: Backend) -> None:
    task_id, group_id = slugid(), slugid()
    storage.groups.join(task_id, group_id, "scheduler", EXPIRES)
    storage.groups.deactivate(task_id, group_id, 0)
    backend.clock.advance(HOUR)
    earliest = backend.clock.now()
    for _ in range(2):
        storage.groups.activate(task_id, group_id, 3, EXPIRES)
        (active,) = all_active(storage)
        assert (active.task_group_id, active.task_id, active.activation) == (group_id, task_id, 3)
        assert active.since >= earliest


@pytest.mark.parametrize(("later", "earlier"), [(1, 0), (10, 9), (49, 10)])
def test_the_end_of_an_activation_ends_no_later_one(
    storage: Storage, other: Storage, later: int, earlier: int
) -> None:
    task_id, group_id = slugid(), slugid()
    storage.groups.activate(task_id, group_id, earlier, EXPIRES)
    with ThreadPoolExecutor(2) as threads:
        threads.submit(storage.groups.activate, task_id, group_id, later, EXPIRES)
        threads.submit(other.groups.deactivate, task_id, group_id, earlier)
    assert [active.activation for active in all_active(storage)] == [later]
    other.groups.deactivate(task_id, group_id, later)
    assert not storage.groups.has_active(group_id)


def test_a_group_is_active_while_any_of_its_tasks_is(storage: Storage) -> None:
    task_ids, group_id = [slugid() for _ in range(3)], slugid()
    for task_id in task_ids:
        storage.groups.join(task_id, group_id, "scheduler", EXPIRES)
        storage.groups.join(slugid(), slugid(), "scheduler", EXPIRES)
    seen = []
    for task_id in task_ids:
        seen.append(storage.groups.has_active(group_id))
        storage.groups.deactivate(task_id, group_id, 0)
    assert [*seen, storage.groups.has_active(group_id)] == [True, True, True, False]
    assert len(storage.groups.members(group_id, "", 10)) == 3


def test_all_groups_active_tasks_come_in_pages_that_any_process_continues(
    storage: Storage, other: Storage
) -> None:
    wanted = set()
    for _ in range(3):
        group_id = slugid()
        for _ in range(3):
            task_id = slugid()
            storage.groups.join(task_id, group_id, "scheduler", EXPIRES)
            wanted.add((group_id, task_id))
    turns = itertools.cycle([storage, other])
    found = list(pages(lambda after: next(turns).groups.all_active(after, 2)))
    assert all(len(page.active) <= 2 for page in found)
    listed = [(active.task_group_id, active.task_id) for page in found for active in page.active]
    assert sorted(listed) == sorted(wanted)


def all_active(storage: Storage) -> list[ActiveTask]:
    return [
        active
        for page in pages(lambda after: storage.groups.all_active(after, 100))
        for active in page.active
    ]


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
    assert not other.groups.has_active(group_id)
    assert storage.groups.load(kept_id) == Group(kept_id, "scheduler", EXPIRES + DAY)
    assert len(storage.groups.members(kept_id, "", 10)) == len(all_active(storage)) == 3


def test_a_group_outlives_the_members_that_expire_before_it(storage: Storage) -> None:
    group_id, early, late = slugid(), slugid(), slugid()
    storage.groups.join(early, group_id, "scheduler", EXPIRES)
    storage.groups.join(late, group_id, "scheduler", EXPIRES + DAY)
    remove_all_expired(storage.groups, EXPIRES + HOUR)
    assert storage.groups.members(group_id, "", 10) == [late]
    assert storage.groups.load(group_id) == Group(group_id, "scheduler", EXPIRES + DAY)


def test_a_rerun_is_active_for_as_long_as_its_task_lives(storage: Storage) -> None:
    task_id, group_id = slugid(), slugid()
    storage.groups.activate(task_id, group_id, 1, EXPIRES)
    remove_all_expired(storage.groups, EXPIRES)
    assert storage.groups.has_active(group_id)
    remove_all_expired(storage.groups, EXPIRES + HOUR)
    assert not storage.groups.has_active(group_id)
