import itertools
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from legacy_queue.domain.definition import MAX_DEADLINE
from legacy_queue.domain.ids import slugid
from legacy_queue.stores import Dependent, Storage

from .conftest import Backend
from .paging import keyed_pages, remove_all_expired

EXPIRES = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def dependents(storage: Storage, required_id: str) -> list[Dependent]:
    return list(storage.dependencies.dependents(required_id, "", 1000))


def test_a_task_has_no_dependents_before_any_is_added(storage: Storage) -> None:
    required_id = slugid()
    assert dependents(storage, required_id) == []
    assert not storage.dependencies.has_any(required_id)


@pytest.mark.parametrize("requires", ["all-completed", "all-resolved"])
def test_a_dependent_is_stored_with_what_it_requires(storage: Storage, other: Storage, requires: str) -> None:
    required_id, dependent = slugid(), Dependent(slugid(), requires)
    for _ in range(2):
        storage.dependencies.add(required_id, dependent, EXPIRES)
        assert dependents(other, required_id) == [dependent]
        assert other.dependencies.has_any(required_id)


def test_each_task_has_its_own_dependents(storage: Storage) -> None:
    required = [slugid() for _ in range(2)]
    dependent, other = (Dependent(slugid(), "all-completed") for _ in range(2))
    for required_id in required:
        storage.dependencies.add(required_id, dependent, EXPIRES)
    storage.dependencies.add(required[0], other, EXPIRES)
    both = sorted([dependent, other], key=lambda one: one.task_id)
    assert [dependents(storage, one) for one in (*required, dependent.task_id)] == [both, [dependent], []]


def test_dependents_are_listed_in_pages_ordered_by_id(storage: Storage, other: Storage) -> None:
    required_id = slugid()
    added = [Dependent(slugid(), "all-completed") for _ in range(25)]
    stores = itertools.cycle([storage, other])
    with ThreadPoolExecutor(4) as threads:
        for dependent in added:
            threads.submit(next(stores).dependencies.add, required_id, dependent, EXPIRES)
    found = keyed_pages(partial(storage.dependencies.dependents, required_id), 10, lambda one: one.task_id)
    assert [len(page) for page in found] == [10, 10, 5]
    in_order = sorted(added, key=lambda one: one.task_id.encode())
    assert [dependent for page in found for dependent in page] == in_order


def test_dependents_added_between_pages_do_not_shift_the_others(storage: Storage) -> None:
    required_id = slugid()
    before, first, second, third = (
        Dependent(task_id, "all-resolved") for task_id in sorted(slugid() for _ in range(4))
    )
    for dependent in (first, third):
        storage.dependencies.add(required_id, dependent, EXPIRES)
    assert storage.dependencies.dependents(required_id, "", 1) == [first]
    for dependent in (before, second):
        storage.dependencies.add(required_id, dependent, EXPIRES)
    assert storage.dependencies.dependents(required_id, first.task_id, 10) == [second, third]


def test_a_dependency_is_removed_once_it_has_expired(storage: Storage) -> None:
    required_id = slugid()
    early, late = (Dependent(slugid(), "all-completed") for _ in range(2))
    storage.dependencies.add(required_id, early, EXPIRES)
    storage.dependencies.add(required_id, late, EXPIRES + HOUR)
    remove_all_expired(storage.dependencies, EXPIRES, 1)
    assert len(dependents(storage, required_id)) == 2
    remove_all_expired(storage.dependencies, EXPIRES + HOUR, 1)
    assert dependents(storage, required_id) == [late]


def test_the_mark_of_dependents_is_removed_after_the_longest_deadline(
    storage: Storage, backend: Backend
) -> None:
    required_id, now = slugid(), backend.clock.now()
    storage.dependencies.add(required_id, Dependent(slugid(), "all-completed"), now + 30 * DAY)
    remove_all_expired(storage.dependencies, now + MAX_DEADLINE)
    assert storage.dependencies.has_any(required_id)
    remove_all_expired(storage.dependencies, now + MAX_DEADLINE + 2 * DAY)
    assert not storage.dependencies.has_any(required_id)
    assert len(dependents(storage, required_id)) == 1
