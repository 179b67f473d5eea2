"""What only Azure has: costs in operations, rows of other writers, and a storage that is away."""

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import requests
from azure.storage.blob import BlobClient

from legacy_queue.adapters.azurite import Azurite
from legacy_queue.adapters.memory.table import MemoryTable
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import Event
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.messages import Lease
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.usage import NOT_RECORDED, Calls, CountedUse
from legacy_queue.ports.table import Row
from legacy_queue.stores import Dependent, GroupStore, Storage, StoredArtifact, StoredTask, Turn
from legacy_queue.stores.blobs import BLOCK
from legacy_queue.stores.task_rows import new_values, task_in
from tests.memory_server import HandClock

from .conftest import RealClock, azure_storage
from .paging import remove_all_expired
from .test_artifact_store import new_artifact
from .test_task_store import new_task

EXPIRES = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
NO_TIME, HOUR, DAY = timedelta(0), timedelta(hours=1), timedelta(days=1)
GROUP, TASK = slugid(), slugid()
EVENT = Event("task-pending", "primary", (), {})
USED = CountedUse("process", EXPIRES, NOT_RECORDED, Calls(1, EXPIRES))
ARTIFACT = StoredArtifact(new_artifact(TASK), 'W/"etag"')
ETAG = "W/\"datetime'2026-01-01T00%3A00%3A00.0000000Z'\""
EXPIRING = ["tasks", "groups", "dependencies", "workers", "work-queues", "usage"]


def cost(storage: Storage, act: Callable[[], Any]) -> int:
    before = storage.account.operations.total()
    act()
    return storage.account.operations.total() - before


def join(storage: Storage, expires: datetime = EXPIRES) -> int:
    return cost(storage, lambda: storage.groups.join(slugid(), GROUP, "scheduler", expires))


def test_a_task_that_another_process_wrote_is_not_ones_own(azure_pair: tuple[Storage, Storage]) -> None:
    azure, other = azure_pair
    stored = azure.tasks.insert(new_task())
    seen = other.tasks.load(stored.task.task_id)
    assert seen
    assert not seen.is_own
    changed = other.tasks.replace(seen, seen.task.with_last_run(state="failed"))
    assert changed.is_own
    back = azure.tasks.load(stored.task.task_id)
    assert back
    assert not back.is_own


def test_a_task_joins_its_group_with_one_operation(azure: Storage) -> None:
    assert [join(azure), join(azure), join(azure, EXPIRES + DAY), join(azure)] == [1, 1, 1, 1]


def test_a_process_that_has_not_seen_a_group_learns_of_it_once(azure_pair: tuple[Storage, Storage]) -> None:
    azure, cold = azure_pair
    join(azure)
    assert [join(cold), join(cold)] == [3, 1]


@pytest.mark.parametrize("count", [1, 120])
def test_whether_a_group_is_active_costs_one_operation(azure: Storage, count: int) -> None:
    for _ in range(count):
        azure.groups.activate(slugid(), GROUP, 0, EXPIRES)
    assert cost(azure, lambda: azure.groups.has_active(GROUP)) == 1


def test_a_page_costs_one_operation(azure: Storage) -> None:
    for _ in range(10):
        join(azure)
        azure.dependencies.add(TASK, Dependent(slugid(), "all-completed"), EXPIRES)
        azure.tasks.insert(new_task())
    azure.event_log.append([EVENT] * 10)
    for ask in (
        partial(azure.groups.members, GROUP, ""),
        partial(azure.groups.all_active, ""),
        partial(azure.dependencies.dependents, TASK, ""),
        partial(azure.tasks.unresolved, ""),
        partial(azure.event_log.read, ""),
        partial(azure.event_log.read, azure.event_log.last()),
        partial(azure.expiring["workers"].remove_expired, EXPIRES, ""),
    ):
        assert [cost(azure, partial(ask, limit)) for limit in (3, 10, 100)] == [1, 1, 1], ask


def test_own_messages_and_turns_cost_what_they_do(azure: Storage) -> None:
    queues, turns = azure.own_queues, azure.turns
    queues.put("claims", "first", NO_TIME)
    assert cost(azure, lambda: queues.put("claims", "text", NO_TIME)) == 1
    assert cost(azure, lambda: queues.receive("claims", 32, HOUR)) == 1
    assert cost(azure, lambda: queues.receive("claims", 32, HOUR)) == 1
    assert cost(azure, lambda: queues.receive("never-used", 32, HOUR)) == 1
    assert cost(azure, lambda: queues.peek("claims", 32)) == 1
    assert cost(azure, lambda: turns.take("sweeping", EXPIRES)) == 2
    assert cost(azure, lambda: turns.take("sweeping", EXPIRES)) == 1


def test_events_cost_one_operation_for_a_batch(azure: Storage) -> None:
    azure.event_log.append([EVENT])
    assert cost(azure, lambda: azure.event_log.append([EVENT] * 99)) == 1
    assert cost(azure, lambda: azure.event_log.append([EVENT] * 100)) == 2
    assert cost(azure, lambda: azure.event_log.trim(EXPIRES - 10_000 * DAY)) == 1


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
    assert cost(azure, lambda: store.replace(stored, stored.artifact)) == 1
    stored = store.load(task_id, 0, stored.artifact.name)
    assert stored
    assert cost(azure, lambda: store.remove(stored)) == 1


def test_a_blob_costs_one_operation_or_one_for_each_block(azure: Storage) -> None:
    blobs, in_blocks = azure.blobs, [b"." * BLOCK, b"."]
    acts: dict[str, tuple[Callable[[], Any], int]] = {
        "properties of none": (lambda: blobs.properties("name"), 1),
        "write": (lambda: blobs.write("name", in_blocks[:1], "text/plain", None), 1),
        "write in blocks": (lambda: blobs.write("name", in_blocks, "text/plain", None), 3),
        "properties": (lambda: blobs.properties("name"), 1),
        "read": (lambda: list(blobs.read("name")), 2),
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


@pytest.mark.parametrize("held", ["lease", "snapshot", "both"])
def test_a_blob_that_its_uploader_holds_fast_is_removed(azure: Storage, held: str) -> None:
    """An upload URL is enough for that."""
    blobs = azure.blobs
    blobs.write("name", [b"content"], "text/plain", None)
    with BlobClient.from_blob_url(blobs.upload_url("name", datetime.now(UTC) + HOUR)) as client:
        if held != "lease":
            client.create_snapshot()
        if held != "snapshot":
            client.acquire_lease(-1)
    blobs.remove("name")
    assert blobs.properties("name") is None


def test_who_reads_a_blob_that_changes_is_not_told_to_try_again(azure: Storage) -> None:
    for change in (
        lambda: azure.blobs.write("name", [b"."], "text/plain", None),
        lambda: azure.blobs.remove("name"),
    ):
        azure.blobs.write("name", [b"." * BLOCK] * 3, "text/plain", None)
        chunks = azure.blobs.read("name")
        next(chunks)
        change()
        with pytest.raises(ServiceUnavailable):
            list(chunks)


def test_chunks_of_any_size_are_sent_in_blocks_of_one_size(azure: Storage) -> None:
    for chunks in ([b"." * (3 * BLOCK)], [b"." * 1000] * (3 * BLOCK // 1000)):
        assert cost(azure, lambda chunks=chunks: azure.blobs.write("name", chunks, "text/plain", None)) == 4


def test_a_container_that_another_process_makes_is_no_error(azurite: Azurite) -> None:
    storages = [azure_storage(azurite.connection_string, "together", RealClock()) for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        for checked in [threads.submit(storage.account.check) for storage in storages]:
            checked.result()
    assert cost(storages[0], storages[0].account.check) == 3


def test_nobody_reads_a_blob_without_a_signature(azure: Storage) -> None:
    azure.blobs.write("name", [b"content"], "text/plain", None)
    url = azure.blobs.download_url("name", EXPIRES)
    assert requests.get(url, timeout=30).content == b"content"
    assert requests.get(url.partition("?")[0], timeout=30).status_code in (401, 403, 404)
    container = url.partition("?")[0].rpartition("/")[0]
    assert requests.get(f"{container}?restype=container&comp=list", timeout=30).status_code in (401, 403, 404)


def test_what_expires_is_looked_through_in_this_order(azure: Storage) -> None:
    assert list(azure.expiring) == EXPIRING


class MovingTable(MemoryTable):
    """Somebody else moves the expiry of each row just before it is deleted."""

    moves = False

    def delete(self, partition: str, key: str, etag: str | None = None) -> None:
        if self.moves:
            self.merge(partition, key, {"expires": EXPIRES + DAY})
        super().delete(partition, key, etag)


def test_what_lives_longer_meanwhile_is_not_removed() -> None:
    table = MovingTable()
    groups = GroupStore(table, HandClock())
    groups.join(slugid(), GROUP, "scheduler", EXPIRES)
    table.moves = True
    remove_all_expired(groups, EXPIRES + HOUR)
    group = groups.load(GROUP)
    assert group
    assert group.expires == EXPIRES + DAY
    assert len(groups.members(GROUP, "", 10)) == 1
    table.moves = False
    remove_all_expired(groups, EXPIRES + 2 * DAY)
    assert groups.load(GROUP) is None


def test_other_queues_are_never_taken_for_unused_work_queues(storage: Storage) -> None:
    names = queue_names(storage)
    storage.own_queues.put("claims", "text", NO_TIME)
    storage.own_queues.receive("claims", 1, HOUR)
    queue = WorkQueue("provisioner", "type", "high")
    used = {"provisioner_id": "provisioner", "worker_type": "type", "last_used": "2020-01-01"}
    prefix = storage.own_queues._prefix
    for name, metadata in {
        f"{prefix}-plain": {},
        f"{prefix}-foreign": used,  # of a server with a longer prefix
        f"{prefix}-{'x' * 24}-{'y' * 24}-5": used,
        queue.name(prefix): {**used, "last_used": "the day before"},
        f"{prefix}x-other": used,
    }.items():
        storage.account.queue(name).create(metadata)
    before = queue_names(storage) - names
    remove_all_expired(storage.work_queues, EXPIRES, 2)
    assert queue_names(storage) - names == before
    storage.account.queue(queue.name(prefix)).create(used)
    remove_all_expired(storage.work_queues, EXPIRES, 2)
    assert before - queue_names(storage) == {queue.name(prefix)}


def queue_names(storage: Storage) -> set[str]:
    return {name for name, _ in storage.account.queues("")}


def test_a_task_that_was_stored_before_there_were_dependencies_waits_for_none() -> None:
    task = new_task()
    values = {name: value for name, value in new_values(task).items() if name != "waitsFor"}
    assert task_in(Row(task.task_id, "task", values, "etag")).waits_for == ()


ACTS: dict[str, Callable[[Storage], Any]] = {
    "load a task": lambda storage: storage.tasks.load(TASK),
    "insert": lambda storage: storage.tasks.insert(new_task()),
    "replace": lambda storage: storage.tasks.replace(StoredTask(new_task(), ETAG), new_task()),
    "unresolved": lambda storage: storage.tasks.unresolved("", 10),
    "join": lambda storage: storage.groups.join(TASK, GROUP, "scheduler", EXPIRES),
    "load a group": lambda storage: storage.groups.load(GROUP),
    "members": lambda storage: storage.groups.members(GROUP, "", 10),
    "activate": lambda storage: storage.groups.activate(TASK, GROUP, 0, EXPIRES),
    "has_active": lambda storage: storage.groups.has_active(GROUP),
    "all_active": lambda storage: storage.groups.all_active("", 10),
    "add": lambda storage: storage.dependencies.add(TASK, Dependent(GROUP, "all-completed"), EXPIRES),
    "dependents": lambda storage: storage.dependencies.dependents(TASK, "", 10),
    "take": lambda storage: storage.turns.take("sweeping", EXPIRES),
    "keep": lambda storage: storage.turns.keep(Turn("sweeping", "", None, ETAG), EXPIRES, "", None),
    "append": lambda storage: storage.event_log.append([EVENT]),
    "read": lambda storage: storage.event_log.read("", 10),
    "last": lambda storage: storage.event_log.last(),
    "trim": lambda storage: storage.event_log.trim(EXPIRES),
    "put usage": lambda storage: storage.usage.put([USED]),
    "usage": lambda storage: storage.usage.since(EXPIRES, None, None, "", 10),
    "load an artifact": lambda storage: storage.artifacts.load(TASK, 0, "name"),
    "insert an artifact": lambda storage: storage.artifacts.insert(new_artifact(TASK)),
    "replace an artifact": lambda storage: storage.artifacts.replace(ARTIFACT, new_artifact(TASK)),
    "list artifacts": lambda storage: storage.artifacts.list(TASK, 0, "", 10),
    "incomplete": lambda storage: storage.artifacts.incomplete(TASK, 0, EXPIRES),
    "expired": lambda storage: storage.artifacts.expired(EXPIRES, "", 10),
    "write": lambda storage: storage.blobs.write("name", [b"content"], "text/plain", None),
    "write in blocks": lambda storage: storage.blobs.write("name", [b"." * BLOCK] * 2, "text/plain", None),
    "write a part": lambda storage: storage.blobs.write_part("name", 1, [b"content"]),
    "join parts": lambda storage: storage.blobs.join_parts("name", 1, "text/plain", None),
    "properties": lambda storage: storage.blobs.properties("name"),
    "read a blob": lambda storage: storage.blobs.read("name"),
    "remove a blob": lambda storage: storage.blobs.remove("name"),
    "remove expired rows": lambda storage: storage.expiring["groups"].remove_expired(EXPIRES, "", 10),
}
# of tables that are not there, nothing can be removed
MORE_ACTS: dict[str, Callable[[Storage], Any]] = {
    "remove an artifact": lambda storage: storage.artifacts.remove(ARTIFACT),
    "leave": lambda storage: storage.groups.leave(TASK, GROUP),
    "deactivate": lambda storage: storage.groups.deactivate(TASK, GROUP, 0),
    "put": lambda storage: storage.own_queues.put("claims", "text", NO_TIME),
    "receive": lambda storage: storage.own_queues.receive("claims", 1, HOUR),
    "peek": lambda storage: storage.own_queues.peek("claims", 1),
    "hide": lambda storage: storage.own_queues.hide("claims", Lease("id", "receipt"), "text", HOUR),
    "remove a message": lambda storage: storage.own_queues.remove("claims", Lease("id", "receipt")),
    "remove expired queues": lambda storage: storage.work_queues.remove_expired(EXPIRES, "", 10),
}


@pytest.fixture(scope="module")
def away(azurite: Azurite) -> Storage:
    """Nobody listens where it should be."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{bound.getsockname()[1]}/devstoreaccount1;"
    words = azurite.connection_string.split(";")[:3]
    endpoints = "".join(f"{service}Endpoint={nowhere}" for service in ("Blob", "Queue", "Table"))
    return azure_storage(";".join(words) + ";" + endpoints, "away", HandClock())


@pytest.mark.parametrize("act", (ACTS | MORE_ACTS).values(), ids=ACTS | MORE_ACTS)
def test_a_storage_that_is_away_is_unavailable(away: Storage, act: Callable[[Storage], Any]) -> None:
    with pytest.raises(ServiceUnavailable):
        act(away)


@pytest.fixture(scope="module")
def bare(azurite: Azurite) -> Storage:
    """Its tables were never made."""
    return azure_storage(azurite.connection_string, "bare", HandClock())


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_a_storage_without_its_tables_is_unavailable(bare: Storage, act: Callable[[Storage], Any]) -> None:
    with pytest.raises(ServiceUnavailable):
        act(bare)
