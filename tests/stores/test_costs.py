"""How many storage operations each call of a store costs."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.timer import Timer
from legacy_queue.stores import Dependent, Storage
from legacy_queue.stores.blobs import BLOCK

from .test_artifact_store import new_artifact
from .test_task_store import new_task

EXPIRES = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
NO_TIME, HOUR, DAY = timedelta(0), timedelta(hours=1), timedelta(days=1)
GROUP, TASK = slugid(), slugid()


def cost(storage: Storage, act: Callable[[], Any]) -> int:
    account = storage.account
    assert isinstance(account, AzureAccount)
    before = account.operations.total()
    act()
    return account.operations.total() - before


def join(storage: Storage, expires: datetime = EXPIRES) -> int:
    return cost(storage, lambda: storage.groups.join(slugid(), GROUP, "scheduler", expires))


def test_joining_an_existing_group_costs_one_operation(azure: Storage) -> None:
    assert [join(azure), join(azure), join(azure, EXPIRES + DAY)] == [2, 1, 1]


def test_a_process_reads_a_group_only_once(azure_pair: tuple[Storage, Storage]) -> None:
    azure, cold = azure_pair
    join(azure)
    assert [join(cold), join(cold)] == [2, 1]


def test_ending_a_member_and_asking_for_others_cost_one_operation_each(azure: Storage) -> None:
    tasks = [slugid() for _ in range(2)]
    for task_id in tasks:
        azure.groups.join(task_id, GROUP, "scheduler", EXPIRES)
    for task_id in tasks:
        assert cost(azure, partial(azure.groups.end, task_id, GROUP, 0)) == 1
        assert cost(azure, partial(azure.groups.is_active, GROUP)) == 1


def test_a_page_costs_one_operation(azure: Storage) -> None:
    for _ in range(10):
        join(azure)
        azure.dependencies.add(TASK, Dependent(slugid(), "all-completed"), EXPIRES)
        azure.tasks.insert(new_task())
    for ask in (
        lambda _: azure.dependencies.has_any(TASK),
        partial(azure.groups.members, GROUP, ""),
        partial(azure.groups.all_active, ""),
        partial(azure.dependencies.dependents, TASK, ""),
        partial(azure.tasks.unresolved, ""),
        partial(azure.expiring["workers"].remove_expired, EXPIRES, ""),
    ):
        assert [cost(azure, partial(ask, limit)) for limit in (3, 10, 100)] == [1, 1, 1], ask


def test_timer_calls_cost_one_operation_and_a_new_lease_two(azure: Storage) -> None:
    timers, leases = azure.timers, azure.leases
    some = [Timer(slugid(), EXPIRES) for _ in range(100)]
    list(timers.put(some, NO_TIME))  # makes the queue
    assert cost(azure, lambda: list(timers.put(some, NO_TIME))) == 1
    assert cost(azure, lambda: timers.receive(HOUR)) == 1
    (message,) = timers.put(some, HOUR)
    assert cost(azure, lambda: timers.remove(message.lease)) == 1
    assert cost(azure, lambda: leases.acquire("sweeping", EXPIRES)) == 2
    assert cost(azure, lambda: leases.acquire("sweeping", EXPIRES)) == 1


def test_each_call_for_an_artifact_costs_one_operation(azure: Storage) -> None:
    store, task_id = azure.artifacts, slugid()
    acts: dict[str, Callable[[], Any]] = {
        "insert": lambda: store.insert(new_artifact(task_id)),
        "load": lambda: store.load(task_id, 0, new_artifact(task_id).name),
        "load nothing": lambda: store.load(task_id, 1, "name"),
        "list": lambda: store.list(task_id, 0, "", 10),
        "incomplete": lambda: store.incomplete(task_id, 0, EXPIRES),
        "expired": lambda: store.expired(EXPIRES, "", 10),
    }
    assert {name: cost(azure, act) for name, act in acts.items()} == dict.fromkeys(acts, 1)
    stored = store.load(task_id, 0, new_artifact(task_id).name)
    assert stored
    assert cost(azure, partial(store.replace, stored, stored.artifact)) == 1
    stored = store.load(task_id, 0, stored.artifact.name)
    assert stored
    assert cost(azure, partial(store.remove, stored)) == 1


def test_blob_calls_cost_one_operation_for_each_block_read_mib_and_list(azure: Storage) -> None:
    blobs, in_blocks = azure.blobs, [b"." * BLOCK, b"."]
    acts: dict[str, tuple[Callable[[], Any], int]] = {
        "properties of none": (lambda: blobs.properties("name"), 1),
        "write": (lambda: blobs.write("name", in_blocks[:1], "text/plain", None), 1),
        "write in blocks": (lambda: blobs.write("name", in_blocks, "text/plain", None), 3),
        "properties": (lambda: blobs.properties("name"), 1),
        "read": (lambda: list(blobs.read("name")), 5),  # a MiB each
        "write a part": (lambda: blobs.write_part("other", 1, in_blocks), 2),
        "write a small part": (lambda: blobs.write_part("other", 2, in_blocks[:1]), 1),
        "join": (lambda: blobs.join_parts("other", 2, "text/plain", None), 2),
        "join again": (lambda: blobs.join_parts("other", 2, "text/plain", None), 1),
        "remove": (lambda: blobs.remove("name"), 1),
        "remove none": (lambda: blobs.remove("name"), 1),
        "upload URL": (lambda: blobs.upload_url("name", EXPIRES), 0),
        "download URL": (lambda: blobs.download_url("name", EXPIRES), 0),
    }
    assert {name: cost(azure, act) for name, (act, _) in acts.items()} == {
        name: expected for name, (_, expected) in acts.items()
    }
