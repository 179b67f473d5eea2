from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from legacy_queue.domain.ids import slugid
from legacy_queue.ports import Group, Storage

EXPIRES = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
DAY = timedelta(days=1)


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
