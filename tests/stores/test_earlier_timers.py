"""An account of an earlier version, with other timers, is taken over once its tasks are resolved."""

import pytest

from legacy_queue.ports.account import StorageAccount
from legacy_queue.stores import Storage
from legacy_queue.stores.earlier_timers import take_over
from tests.domain.tasks import with_last_run
from tests.memory_server import FakeClock, memory_storage

from .test_task_store import new_task

QUEUES = ("q-claims", "q-resolved", "q-deadlines")


@pytest.fixture
def storage() -> Storage:
    return memory_storage(FakeClock())


@pytest.fixture
def earlier(storage: Storage) -> Storage:
    """With the queues of that version, and another's."""
    for name in (*QUEUES, "q-timers", "other-deadlines"):
        storage.account.queue(name).create({})
    return storage


def names(account: StorageAccount) -> set[str]:
    return {name for name, _ in account.queues("")}


def test_an_account_without_timers_of_an_earlier_version_is_usable(storage: Storage) -> None:
    storage.tasks.insert(new_task())
    assert take_over(storage, "q")
    assert names(storage.account) == set()


def test_an_account_whose_tasks_are_resolved_is_taken_over(earlier: Storage) -> None:
    task = new_task()
    stored = earlier.tasks.insert(task)
    earlier.tasks.replace(stored, with_last_run(task, state="completed", reason_resolved="completed"))
    assert take_over(earlier, "q")
    assert names(earlier.account) == {"q-timers", "other-deadlines"}
    assert take_over(earlier, "q")


def test_an_account_with_an_unresolved_task_is_not_taken_over(earlier: Storage) -> None:
    for _ in range(3):
        earlier.tasks.insert(new_task())
    assert not take_over(earlier, "q")
    assert names(earlier.account) == {*QUEUES, "q-timers", "other-deadlines"}
