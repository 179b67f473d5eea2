from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from legacy_queue.domain.worker_record import Activity, Path, WorkerRecord
from legacy_queue.ports import AlreadyExists, Changed
from legacy_queue.stores import Storage, StoredWorkerRecord, WorkerStore
from tests.memory_server import MemoryTable

from .paging import remove_all_expired

NOW = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
PROVISIONER: Path = ("provisioner",)
WORKER_TYPE: Path = ("provisioner", "worker-Type_1")
WORKER: Path = (*WORKER_TYPE, "group", "worker")
ACTION = dict.fromkeys(("name", "title", "url", "method", "description"), "ä'\"\u0000") | {
    "context": "worker"
}
KNOWN = [
    replace(
        WorkerRecord.new(PROVISIONER, NOW),
        description="ö\n\u0000💡" * 4096,
        stability="stable",
        actions=(ACTION,) * 32,
    ),
    replace(WorkerRecord.new(WORKER_TYPE, NOW), description="", stability="deprecated"),
    WorkerRecord.new(WORKER, NOW).after(Activity(NOW, NOW + HOUR, tuple((f"task{n}", n) for n in range(20)))),
    replace(WorkerRecord.new(WORKER, NOW), quarantine_until=NOW + DAY),
]
each_known = pytest.mark.parametrize(
    "known", KNOWN, ids=["provisioner", "worker type", "worker", "quarantined"]
)
each_kind = pytest.mark.parametrize("path", [PROVISIONER, WORKER_TYPE, WORKER], ids=["1", "2", "4"])


def stored(storage: Storage, path: Path = WORKER) -> StoredWorkerRecord:
    found = storage.workers.load(path)
    assert found
    return found


def paths(storage: Storage, parent: Path, limit: int = 1000) -> Iterator[list[Path]]:
    """Of those below the parent, page by page."""
    after: Path = ()
    while page := [known.path for known in storage.workers.list(parent, after, limit)]:
        yield page
        after = page[-1]


@each_kind
def test_there_is_no_worker_record_before_it_is_stored(storage: Storage, path: Path) -> None:
    assert storage.workers.load(path) is None
    assert list(storage.workers.list(path[:1], (), 9)) == []


@each_known
def test_another_process_finds_a_record_as_it_was_stored(
    storage: Storage, other: Storage, known: WorkerRecord
) -> None:
    inserted = storage.workers.insert(known)
    assert inserted == other.workers.load(known.path) == StoredWorkerRecord(known, inserted.etag)


@each_kind
def test_an_existing_record_is_not_inserted_again(storage: Storage, other: Storage, path: Path) -> None:
    known = WorkerRecord.new(path, NOW)
    storage.workers.insert(known)
    with pytest.raises(AlreadyExists):
        other.workers.insert(replace(known, description="another"))
    assert stored(storage, path).record == known


@each_kind
def test_the_first_of_two_changes_of_a_version_succeeds(storage: Storage, other: Storage, path: Path) -> None:
    inserted = storage.workers.insert(WorkerRecord.new(path, NOW))
    theirs, ours = (replace(inserted.record, expires=NOW + days * DAY) for days in (2, 3))
    replaced = other.workers.replace(inserted, theirs)
    assert replaced.record == theirs
    with pytest.raises(Changed):
        storage.workers.replace(inserted, ours)
    assert stored(storage, path) == replaced
    assert storage.workers.replace(replaced, ours).record == stored(other, path).record == ours


def test_a_shorter_record_replaces_a_longer_one_completely(storage: Storage) -> None:
    inserted = storage.workers.insert(replace(KNOWN[0], description="long" * 30_000))
    short = replace(inserted.record, description="", actions=())
    storage.workers.replace(inserted, short)
    assert stored(storage, PROVISIONER).record == short


def test_a_removed_record_cannot_be_changed(storage: Storage) -> None:
    inserted = storage.workers.insert(WorkerRecord.new(WORKER, NOW))
    remove_all_expired(storage.workers, NOW + 2 * DAY)
    with pytest.raises(Changed):
        storage.workers.replace(inserted, inserted.record)
    assert storage.workers.load(WORKER) is None


def test_one_of_many_concurrent_changes_of_a_record_succeeds(storage: Storage, other: Storage) -> None:
    inserted = storage.workers.insert(WorkerRecord.new(WORKER, NOW))

    def change(number: int) -> int:
        try:
            (storage, other)[number % 2].workers.replace(
                inserted, inserted.record.after(Activity(NOW, NOW, (("task", number),)))
            )
        except Changed:
            return 0
        return 1

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(change, range(8))) == 1


def test_a_list_holds_the_direct_children_in_the_order_of_their_paths(
    storage: Storage, other: Storage
) -> None:
    """The order of the parts, not that of a text of them: ``a-b`` comes behind ``a``."""
    names = ["-", "A", "Z", "_", "a", "a-", "a-b", "aa", "b", "0" * 22]
    types = [("p", name) for name in names]
    workers = [("p", "a", group, worker_id) for group in names for worker_id in names[:3]]
    for path in (*types, *workers, ("p",), ("p-",), ("p", "a-", "a", "a"), ("P", "a", "a", "a"), ("P", "a")):
        storage.workers.insert(WorkerRecord.new(path, NOW))
    assert list(paths(other, ())) == [[("p",), ("p-",)]]
    assert list(paths(other, ("p",))) == [sorted(types)]
    assert list(paths(other, ("p", "a"))) == [sorted(workers)]
    assert list(paths(other, ("p", "a-"))) == [[("p", "a-", "a", "a")]]
    assert list(paths(other, ("q",))) == list(paths(other, ("p-",))) == []
    pages = list(paths(other, ("p", "a"), 7))
    assert [len(page) for page in pages] == [7, 7, 7, 7, 2]
    assert [path for page in pages for path in page] == sorted(workers)


def test_a_list_holds_complete_records(storage: Storage) -> None:
    for known in (*KNOWN[:3], replace(KNOWN[3], path=(*WORKER_TYPE, "group", "z"))):
        storage.workers.insert(known)
    assert list(storage.workers.list((), (), 9)) == [KNOWN[0]]
    assert list(storage.workers.list(PROVISIONER, (), 9)) == [KNOWN[1]]
    assert [known.recent_claims for known in storage.workers.list(WORKER_TYPE, (), 9)] == [
        KNOWN[2].recent_claims,
        (),
    ]


def test_records_added_between_pages_do_not_shift_the_others(storage: Storage) -> None:
    before, first, between, last = ((name,) for name in "abcd")
    for path in (first, last):
        storage.workers.insert(WorkerRecord.new(path, NOW))
    assert [known.path for known in storage.workers.list((), (), 1)] == [first]
    for path in (before, between):
        storage.workers.insert(WorkerRecord.new(path, NOW))
    assert [known.path for known in storage.workers.list((), first, 9)] == [between, last]


def test_a_new_worker_is_not_quarantined(storage: Storage) -> None:
    storage.workers.insert(WorkerRecord.new(WORKER, NOW))
    assert dict(storage.workers.quarantined()) == {}


def test_the_last_quarantine_of_a_worker_counts(storage: Storage, other: Storage) -> None:
    another = (*WORKER_TYPE, "group", "another")
    for until in (NOW + DAY, NOW + DAY, NOW + HOUR, NOW + 2 * DAY):
        storage.workers.quarantine(WORKER, until)
        assert other.workers.quarantined() == {WORKER: until}
    other.workers.quarantine(another, NOW)
    assert storage.workers.quarantined() == {WORKER: NOW + 2 * DAY, another: NOW}
    assert storage.workers.load(WORKER) is None
    assert list(storage.workers.list((), (), 9)) == []


def test_more_than_a_thousand_quarantines_are_all_read(storage: Storage) -> None:
    workers = [(*WORKER_TYPE, "group", f"w{number}") for number in range(1001)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda worker: storage.workers.quarantine(worker, NOW), workers))
    assert set(storage.workers.quarantined()) == set(workers)


def test_a_record_is_removed_once_it_has_expired(storage: Storage) -> None:
    for path in (PROVISIONER, WORKER_TYPE, WORKER):
        storage.workers.insert(WorkerRecord.new(path, NOW))
    remove_all_expired(storage.expiring["workers"], NOW + DAY, 1)
    assert storage.workers.load(WORKER)
    remove_all_expired(storage.expiring["workers"], NOW + DAY + HOUR, 1)
    assert storage.workers.load(WORKER) is None
    assert storage.workers.load(WORKER_TYPE)
    remove_all_expired(storage.expiring["workers"], NOW + 5 * DAY + HOUR, 1)
    assert [storage.workers.load(path) for path in (PROVISIONER, WORKER_TYPE)] == [None, None]


def test_a_quarantined_worker_is_kept_as_long_as_its_quarantine_and_no_longer(storage: Storage) -> None:
    until = NOW + 10 * DAY
    inserted = storage.workers.insert(WorkerRecord.new(WORKER, NOW))
    storage.workers.replace(inserted, replace(inserted.record, quarantine_until=until))
    storage.workers.quarantine(WORKER, until)
    remove_all_expired(storage.workers, until)
    assert storage.workers.load(WORKER)
    assert WORKER in storage.workers.quarantined()
    remove_all_expired(storage.workers, until + HOUR)
    assert storage.workers.load(WORKER) is None
    assert dict(storage.workers.quarantined()) == {}


def test_a_worker_that_was_active_meanwhile_is_not_removed(storage: Storage, other: Storage) -> None:
    inserted = storage.workers.insert(WorkerRecord.new(WORKER, NOW))
    other.workers.replace(inserted, inserted.record.after(Activity(NOW, NOW + DAY)))
    remove_all_expired(storage.workers, NOW + DAY + HOUR)
    assert storage.workers.load(WORKER)


def test_worker_types_are_listed_across_provisioners() -> None:
    store = WorkerStore(MemoryTable())
    paths = [(f"p{number:03}", f"w{other}") for number in range(101) for other in range(2)]
    for path in (*paths, *((f"p{number:03}",) for number in range(101))):
        store.insert(WorkerRecord.new(path, NOW))
    for limit in (1, 3, 200, 202, 300):
        found: list[Path] = []
        while page := store.worker_types(found[-1] if found else (), limit):
            found += [known.path for known in page]
        assert found == paths


def test_a_record_may_shrink_and_grow(storage: Storage) -> None:
    small = WorkerRecord.new(PROVISIONER, NOW)
    large = replace(small, description="x" * 200_000)
    storage.workers.insert(large)
    for record in (small, large, small):
        storage.workers.replace(stored(storage, PROVISIONER), record)
        assert stored(storage, PROVISIONER).record == record
