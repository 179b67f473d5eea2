"""Rows that this server never wrote: each is logged once and left out, and the other rows are served."""

import json
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from legacy_queue.domain.ids import slugid
from legacy_queue.domain.usage_key import Calls, UsageKey
from legacy_queue.domain.worker_record import WorkerRecord
from legacy_queue.ports import AlreadyExists, Corrupt
from legacy_queue.ports.table import Row, Table
from legacy_queue.stores import Dependent, JobLease, Storage
from tests.memory_server import FakeClock, memory_storage

from .paging import remove_all_expired
from .test_artifact_store import new_artifact
from .test_task_store import new_task

EXPIRES = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
DAY = timedelta(days=1)
RUN = b'[{"runId": %s, "state": "%s", "reasonCreated": "scheduled", "scheduled": "2030-01-02T03:04:05.678Z"}]'
SPOILED: dict[str, object] = {
    "provisionerId": "spoiled",
    "expires": "2030-01-02T03:04:05.678Z",
    "lastDateActive": "2030-01-02T03:04:05.678Z",
}
CORRUPT_FIELDS: Sequence[Mapping[str, object]] = [
    {"provisionerId": "other"},
    {"provisionerId": 1},
    {"lastDateActive": "x"},
    {"expires": 7},
    {"description": 7},
    {"stability": 7},
    {"actions": [7]},
    {"actions": [{}]},
    {"recentTasks": [7]},
]
ODD: Sequence[Any] = ["text", b"\xff\xfe", 7, True, 1.5, EXPIRES]
NO_JSON: Sequence[Any] = [b"{", b"\xff", b"[" * 60_000, b"9" * 5000, b"7", b"null", b'"x"', b"[1]", b"[{}]"]


@pytest.fixture
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as entries:
        yield entries


def other_than(*kinds: type) -> list[Any]:
    """Values of all other types."""
    return [value for value in ODD if not isinstance(value, kinds) or type(value) not in kinds]


@pytest.fixture
def storage() -> Storage:
    """What a table answers is the same for every adapter: see tests/contracts/ports."""
    return memory_storage(FakeClock(EXPIRES))


def table_of(storage: Storage, name: str) -> Table:
    return storage.account.table(f"q{name}")


def rows(table: Table) -> Sequence[Row]:
    return table.page([], "", 100).rows


def spoil(table: Table, name: str, values: Sequence[Any]) -> Iterator[Any]:
    """One row, whose property has one value after the other, and then is not there; at last as it was."""
    (row,) = rows(table)
    good = {key: value for key, value in row.values.items() if key != name}
    for value in [*values, None]:
        table.put(row.partition, row.key, good if value is None else {**good, name: value})
        yield value
    table.put(row.partition, row.key, row.values)


def fresh(storage: Storage) -> Storage:
    """Nothing is remembered; it is an hour later."""
    clock = FakeClock(EXPIRES + DAY / 24)
    return Storage(storage.account, "q", clock)


def logged(logs: list[MutableMapping[str, Any]]) -> int:
    """How many corrupt rows were logged since the last call."""
    count = [line["event"] for line in logs].count("row-corrupt")
    assert all(line["log_level"] == "error" for line in logs)
    logs.clear()
    return count


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("retriesLeft", other_than(int)),
        ("heldMessageId", other_than(str)),
        ("heldReceipt", other_than(str)),
        ("newestBlob", other_than(str)),
        ("runs", [*ODD, *NO_JSON, b"{}", b'[{"runId": 0}]', RUN % (b"1", b"failed"), RUN % (b"0", b"none")]),
        ("waitsFor", [*ODD, *NO_JSON, b"{}"]),
        ("definition0", [*ODD, *NO_JSON, b"{}", b'{"created": 1}']),
    ],
)
def test_a_corrupt_task_is_an_error_and_left_out_of_lists(
    storage: Storage, logs: list[MutableMapping[str, Any]], name: str, values: Sequence[Any]
) -> None:
    task = storage.tasks.insert(new_task()).task
    for _ in spoil(table_of(storage, "tasks"), name, values):
        for _ in range(2):
            with pytest.raises(Corrupt):
                fresh(storage).tasks.load(task.task_id)
            assert storage.tasks.unresolved("", 10)[0] == []
        assert logged(logs) == 1
        with pytest.raises(AlreadyExists):
            storage.tasks.insert(task)
    found = fresh(storage).tasks.load(task.task_id)
    assert found
    assert found.task == task
    storage.tasks.insert(new_task())
    assert len(storage.tasks.unresolved("", 10)[0]) == 2


def test_corrupt_rows_of_a_group_are_left_out(storage: Storage, logs: list[MutableMapping[str, Any]]) -> None:
    group, tasks = slugid(), sorted(slugid() for _ in range(3))
    for task_id in tasks:
        storage.groups.join(task_id, group, "scheduler", EXPIRES)
    table = table_of(storage, "groups")
    for key in ("member-", "member-a'b", "member-" + "x" * 400, "active-", "active-x-y", "active-a'b-0000"):
        table.insert(group, key, {"since": EXPIRES, "expires": EXPIRES})
    table.put(group, f"active-{tasks[0]}-0000", {"since": "x", "expires": EXPIRES})
    for _ in range(2):
        assert list(storage.groups.members(group, "", 10)) == tasks
        assert list(storage.groups.members(group, "", 3)) == tasks
        assert [row.task_id for row in storage.groups.all_active("", 100)[0]] == tasks[1:]
    assert logged(logs) == 5
    table.put(group, "group", {"expires": "x"})
    for _ in range(2):
        with pytest.raises(Corrupt):
            fresh(storage).groups.load(group)
    logs.clear()
    remove_all_expired(storage.groups, EXPIRES + DAY)
    assert [row.key for row in rows(table)] == ["group"]


def test_a_corrupt_dependent_is_left_out(storage: Storage, logs: list[MutableMapping[str, Any]]) -> None:
    required, waiting = slugid(), sorted(slugid() for _ in range(3))
    for task_id in waiting:
        storage.dependencies.add(required, Dependent(task_id, "all-completed"), EXPIRES)
    for key, requires in (
        ("-", "all-completed"),
        ("a'b", "all-completed"),
        (slugid(), 7),
        (slugid(), "none"),
    ):
        table_of(storage, "dependencies").insert(required, key, {"requires": requires, "expires": EXPIRES})
    for _ in range(2):
        found = storage.dependencies.dependents(required, "", 3)
        assert [one.task_id for one in found] == waiting
        assert storage.dependencies.dependents(required, waiting[-1], 3) == []
    assert logged(logs) == 4


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("runId", other_than(int)),
        ("name", other_than(str)),
        ("storageType", other_than(str)),
        ("contentType", other_than(str)),
        ("expires", other_than(datetime)),
        ("isComplete", other_than(bool)),
        ("details0", [*ODD, *NO_JSON]),
    ],
)
def test_a_corrupt_artifact_is_left_out(
    storage: Storage, logs: list[MutableMapping[str, Any]], name: str, values: Sequence[Any]
) -> None:
    artifact = new_artifact(slugid(), "b", is_complete=False)
    storage.artifacts.insert(artifact)
    for _ in spoil(table_of(storage, "artifacts"), name, values):
        for _ in range(2):
            with pytest.raises(Corrupt):
                storage.artifacts.load(artifact.task_id, 0, "b")
            assert storage.artifacts.list(artifact.task_id, 0, "", 10) == []
            assert storage.artifacts.incomplete(artifact.task_id, 0, EXPIRES - DAY) is None
            assert storage.artifacts.expired(EXPIRES + DAY, "", 10)[0] == []
        assert logged(logs) == 1
    assert list(storage.artifacts.list(artifact.task_id, 0, "", 10)) == [artifact]


@pytest.mark.parametrize(
    "record",
    [
        *ODD,
        *NO_JSON,
        b"{}",
        *(json.dumps({**SPOILED, **change}).encode() for change in CORRUPT_FIELDS),
    ],
)
def test_a_corrupt_provisioner_is_left_out(
    storage: Storage, logs: list[MutableMapping[str, Any]], record: Any
) -> None:
    storage.workers.insert(WorkerRecord.new(("good",), EXPIRES))
    values = {"expires": EXPIRES, "chunks": 1, "record0": record}
    table_of(storage, "workers").insert("record", "spoiled", values)
    for _ in range(2):
        assert [one.path for one in storage.workers.list((), (), 1)] == [("good",)]
        assert storage.workers.list((), ("good",), 1) == []
        with pytest.raises(Corrupt):
            storage.workers.load(("spoiled",))
    assert logged(logs) == 1


def test_a_corrupt_quarantine_is_left_out(storage: Storage, logs: list[MutableMapping[str, Any]]) -> None:
    worker = ("provisioner", "type", "group", "worker")
    storage.workers.quarantine(worker, EXPIRES)
    table_of(storage, "workers").insert("quarantined", "a!b!c!d", {"expires": "x"})
    table_of(storage, "workers").insert("quarantined", "a!b!c!e", {})
    for _ in range(2):
        assert storage.workers.quarantined() == {worker: EXPIRES}
    assert logged(logs) == 2


@pytest.mark.parametrize("name", ["until", "cursor", "since"])
def test_a_corrupt_lease_begins_anew(storage: Storage, name: str) -> None:
    now = EXPIRES
    lease = storage.leases.acquire("sweep", now)
    assert isinstance(lease, JobLease)
    storage.leases.renew(lease, now, "cursor", now)
    (row,) = rows(table_of(storage, "leases"))
    for value in ("text" if name != "cursor" else 7, b"\xff", True, 1.5):
        table_of(storage, "leases").put("sweep", row.key, {**row.values, name: value})
        taken = storage.leases.acquire("sweep", now + DAY)
        assert isinstance(taken, JobLease)
        assert (taken.cursor, taken.since) == ("", None)
        assert storage.leases.acquire("sweep", now + DAY) == now + DAY
    table_of(storage, "leases").put("sweep", row.key, {})
    assert isinstance(storage.leases.acquire("sweep", now + DAY), JobLease)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *((name, other_than(str)) for name in ("provisionerId", "workerType", "method", "caller")),
        ("count", other_than(int)),
        ("missing", [*ODD, "{", "[1]", "7", "[[]]"]),
    ],
)
def test_a_corrupt_usage_row_is_left_out(
    storage: Storage, logs: list[MutableMapping[str, Any]], name: str, values: Sequence[Any]
) -> None:
    use = UsageKey("p", "w", "claimTask", "g/w", ("receipt",))
    calls = Calls(1, EXPIRES, EXPIRES)
    list(storage.usage.add({use: calls}))
    for _ in spoil(table_of(storage, "usage"), name, values):
        for _ in range(2):
            assert storage.usage.since(EXPIRES - DAY, None, None) == []
        assert logged(logs) == 1
    assert storage.usage.since(EXPIRES - DAY, None, None) == [(use, calls)]
