from dataclasses import replace
from datetime import datetime

from legacy_queue.domain.call_statistics import CallingClient, Calls, CallStatistics
from legacy_queue.domain.worker_record import (
    PoolPath,
    ProvisionerPath,
    RecordPath,
    RecordPlace,
    WorkerPath,
    WorkerRecord,
)
from legacy_queue.stores import ClientRow, Storage, WorkerRow, WorkerStore
from tests.domain.sample_tasks import DAY, HOUR, NOW
from tests.memory_server import MemoryTable

from .paging import remove_all_expired

PROVISIONER = ProvisionerPath("provisioner")
WORKER_TYPE = PoolPath("provisioner", "worker-Type_1")
WORKER = WorkerPath(*WORKER_TYPE, "group", "worker")
ACTION = {"name": "ä'\"\u0000", "context": "worker"}


def test_another_process_reads_the_stored_record_of_a_worker(storage: Storage, other: Storage) -> None:
    worker = WorkerRecord.new(WORKER, NOW).active(NOW + HOUR, [(f"task{n}", n) for n in range(20)])
    text = "ö\n\u0000💡" * 4096
    for known in (
        replace(WorkerRecord.new(PROVISIONER, NOW), description=text, actions=(ACTION,) * 32),
        replace(WorkerRecord.new(WORKER_TYPE, NOW), description="", stability="deprecated"),
        replace(worker, quarantine_until=NOW + DAY),
    ):
        inserted = storage.workers.insert(WorkerRow(known))
        assert inserted == other.workers.load(known.path) == WorkerRow(known)


def test_the_worker_types_of_all_provisioners_are_listed() -> None:
    store = WorkerStore(MemoryTable())
    provisioners = [f"p{number:03}" for number in range(101)]  # one more than fits on a page
    paths = [
        PoolPath(provisioner, worker_type) for provisioner in provisioners for worker_type in ("w0", "w1")
    ]
    known: list[RecordPath] = [*paths, *map(ProvisionerPath, provisioners)]
    for path in known:
        store.insert(WorkerRow.new(path, NOW))
    for limit in (3, 200, 202):
        found: list[RecordPlace] = []
        while page := store.worker_types(found[-1] if found else (), limit, NOW):
            found += [record.path for record in page]
        assert found == paths


def called(at: datetime, *missing: str) -> CallStatistics:
    return CallStatistics({("claimTask", missing): Calls(1, at, at)})


def test_the_calls_of_workers_and_clients_are_found_by_time_and_pool(
    storage: Storage, other: Storage
) -> None:
    client = CallingClient(*WORKER_TYPE, "a/clientId with ' / \\ # ? and %")
    elsewhere = WorkerPath("another", "worker-Type_1", "group", "worker")
    for path in (WORKER, elsewhere):
        storage.workers.insert(WorkerRow(WorkerRecord.new(path, NOW), called(NOW, "receipt")))
    storage.workers.insert(ClientRow(client, called(NOW + HOUR, "receipt")))
    storage.workers.insert(WorkerRow.new(WORKER_TYPE, NOW))
    found = {caller.name: caller for caller in other.workers.callers_since(NOW, *WORKER_TYPE)}
    assert {name: caller.statistics for name, caller in found.items()} == {
        client.name: called(NOW + HOUR, "receipt"),
        "group/worker": called(NOW, "receipt"),
    }
    assert (found[client.name].worker, found["group/worker"].worker) == (None, WorkerRecord.new(WORKER, NOW))
    assert len(other.workers.callers_since(NOW, None, "worker-Type_1")) == 3
    assert len(other.workers.callers_since(NOW, "another", None)) == 1
    assert [caller.name for caller in other.workers.callers_since(NOW + HOUR, None, None)] == [client.name]
    assert [known.path for known in other.workers.list(WORKER_TYPE, (), 9, NOW)] == [WORKER]
    stored = storage.workers.load_client(client)
    assert stored
    again = storage.workers.replace(replace(stored, statistics=called(NOW)))
    assert again == other.workers.load_client(client)


def test_an_expired_worker_is_not_listed_but_its_row_keeps_its_calls(storage: Storage) -> None:
    storage.workers.insert(WorkerRow(WorkerRecord.new(WORKER, NOW), called(NOW)))
    assert storage.workers.list(WORKER_TYPE, (), 9, NOW + DAY) == []
    remove_all_expired(storage.workers, NOW + 10 * DAY)
    assert storage.workers.load(WORKER)
    remove_all_expired(storage.workers, NOW + 10 * DAY + HOUR)
    assert storage.workers.load(WORKER) is None
