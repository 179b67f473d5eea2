from dataclasses import replace

from legacy_queue.domain.call_statistics import Calls
from legacy_queue.domain.worker_record import RecordPath, WorkerRecord
from legacy_queue.stores import Storage, StoredWorkerRecord, WorkerStore
from tests.domain.tasks import DAY, HOUR, NOW
from tests.memory_server import MemoryTable

from .paging import remove_all_expired

PROVISIONER: RecordPath = ("provisioner",)
WORKER_TYPE: RecordPath = ("provisioner", "worker-Type_1")
WORKER: RecordPath = (*WORKER_TYPE, "group", "worker")
ACTION = {"name": "ä'\"\u0000", "context": "worker"}


def test_another_process_finds_a_record_as_it_was_stored(storage: Storage, other: Storage) -> None:
    worker = WorkerRecord.new(WORKER, NOW).active(NOW + HOUR, [(f"task{n}", n) for n in range(20)])
    text = "ö\n\u0000💡" * 4096
    for known in (
        replace(WorkerRecord.new(PROVISIONER, NOW), description=text, actions=(ACTION,) * 32),
        replace(WorkerRecord.new(WORKER_TYPE, NOW), description="", stability="deprecated"),
        replace(worker, quarantine_until=NOW + DAY),
    ):
        inserted = storage.workers.insert(known)
        assert inserted == other.workers.load(known.path) == StoredWorkerRecord(known, inserted.etag)


def test_worker_types_are_listed_across_provisioners() -> None:
    store = WorkerStore(MemoryTable())
    provisioners = [f"p{number:03}" for number in range(101)]  # a page has 100
    paths = [(provisioner, worker_type) for provisioner in provisioners for worker_type in ("w0", "w1")]
    for path in (*paths, *((provisioner,) for provisioner in provisioners)):
        store.insert(WorkerRecord.new(path, NOW))
    for limit in (3, 200, 202):
        found: list[RecordPath] = []
        while page := store.worker_types(found[-1] if found else (), limit, NOW):
            found += [known.path for known in page]
        assert found == paths


def test_the_calls_of_workers_and_clients_are_found_by_time_and_pool(
    storage: Storage, other: Storage
) -> None:
    client = (*WORKER_TYPE, "a/clientId with ' / \\ # ? and %")
    elsewhere = ("another", "worker-Type_1", "group", "worker")
    for path, last in ((WORKER, NOW), (client, NOW + HOUR), (elsewhere, NOW)):
        storage.workers.insert(WorkerRecord.new(path, NOW).called(("claimTask", ("receipt",)), last))
    storage.workers.insert(WorkerRecord.new(WORKER_TYPE, NOW))
    found = other.workers.callers_since(NOW, *WORKER_TYPE)
    assert {record.path: record.calls for record in found} == {
        client: {("claimTask", ("receipt",)): Calls(1, NOW + HOUR, NOW + HOUR)},
        WORKER: {("claimTask", ("receipt",)): Calls(1, NOW, NOW)},
    }
    assert len(other.workers.callers_since(NOW, None, "worker-Type_1")) == 3
    assert len(other.workers.callers_since(NOW, "another", None)) == 1
    assert [record.path for record in other.workers.callers_since(NOW + HOUR, None, None)] == [client]
    assert [known.path for known in other.workers.list(WORKER_TYPE, (), 9, NOW)] == [WORKER]
    stored = storage.workers.load(client)
    assert stored
    again = storage.workers.replace(stored, stored.record.called(("claimTask", ()), NOW))
    assert again == other.workers.load(client)


def test_an_expired_worker_is_not_listed_and_its_row_is_kept_for_its_calls(storage: Storage) -> None:
    storage.workers.insert(WorkerRecord.new(WORKER, NOW).called(("claimWork", ()), NOW))
    assert storage.workers.list(WORKER_TYPE, (), 9, NOW + DAY) == []
    remove_all_expired(storage.workers, NOW + 10 * DAY)
    assert storage.workers.load(WORKER)
    remove_all_expired(storage.workers, NOW + 10 * DAY + HOUR)
    assert storage.workers.load(WORKER) is None
