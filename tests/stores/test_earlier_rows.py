"""Rows as earlier versions of this server have written them are read, and changed, as if they were new."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from legacy_queue.domain.ids import slugid
from legacy_queue.domain.worker_record import WorkerRecord
from legacy_queue.ports.table import Row
from legacy_queue.stores import ArtifactStore, JobLease, LeaseStore, WorkerStore
from legacy_queue.stores.rows import json_values
from legacy_queue.stores.task_store import new_values, task_in
from tests.memory_server import FakeClock, MemoryTable

from .test_artifact_store import new_artifact
from .test_task_store import new_task
from .test_worker_store import PROVISIONER

NOW = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def table() -> MemoryTable:
    return MemoryTable()


def test_a_task_row_without_waits_for_waits_for_none() -> None:
    task = new_task()
    values = {name: value for name, value in new_values(task).items() if name != "waitsFor"}
    assert task_in(Row(task.task_id, "task", values, "etag")).waits_for == ()


def test_a_task_row_without_priority_changes_has_the_priority_of_its_definition() -> None:
    task = new_task()
    values = {name: value for name, value in new_values(task).items() if name != "priorityChanges"}
    assert task_in(Row(task.task_id, "task", values, "etag")).priority == "lowest"


def test_a_task_row_without_a_project_equals_the_task_created_again() -> None:
    task = new_task()
    written = {
        "provisionerId": "provisioner",
        "workerType": "worker-Type_1",
        "schedulerId": "-",
        "created": "2030-01-02T03:04:05.678Z",
        "deadline": "2030-01-03T03:04:05.678Z",
        "expires": "2031-01-03T03:04:05.678Z",
        "taskGroupId": task.task_id,
        "dependencies": [],
        "requires": "all-completed",
        "routes": [],
        "priority": "lowest",
        "retries": 5,
        "scopes": [],
        "tags": {},
        "extra": {},
        "payload": {},
        "metadata": {
            "name": "n",
            "description": "d",
            "owner": "o@example.com",
            "source": "https://example.com",
        },
    }
    values = {**new_values(task), **json_values("definition", written)}
    found = task_in(Row(task.task_id, "task", values, "etag")).definition
    assert found.differences(task.definition) == task.definition.differences(found) == []
    assert found.to_wire() == task.definition.to_wire()
    assert (found.project_id, found.to_wire()["taskQueueId"]) == ("none", "provisioner/worker-Type_1")


def test_a_worker_record_may_shrink_and_grow(table: MemoryTable) -> None:
    store, small = WorkerStore(table), WorkerRecord.new(PROVISIONER, NOW)
    large = replace(small, description="x" * 200_000)
    wire = json.dumps(large.to_wire(), ensure_ascii=False).encode()
    values = {f"known{number}": wire[number * 65536 :][:65536] for number in range(4)}
    assert len(values) > 2
    table.insert("known", "provisioner", {"expires": NOW, **values})
    for known in (small, large, small):
        stored = store.load(PROVISIONER)
        assert stored
        assert stored.record in (large, small)
        store.replace(stored, known)
        found = store.load(PROVISIONER)
        assert found
        assert found.record == known


def test_the_details_of_an_artifact_may_shrink_and_grow(table: MemoryTable) -> None:
    store, task_id = ArtifactStore(table), slugid()
    large, small = (new_artifact(task_id, details={"message": "x" * length}) for length in (200_000, 1))
    store.insert(large)
    (row,) = table.page([], "", 1).rows
    table.put(row.partition, row.key, {name: one for name, one in row.values.items() if name != "chunks"})
    for artifact in (small, large, small):
        stored = store.load(task_id, 0, large.name)
        assert stored
        assert stored.artifact in (small, large)
        store.replace(stored, artifact)
        assert [*store.list(task_id, 0, "", 9)] == [artifact]


def test_a_lease_row_without_a_time_has_no_time(table: MemoryTable) -> None:
    clock = FakeClock(NOW)
    table.insert("sweeping", "turn", {"until": NOW - MINUTE, "cursor": "here"})
    leases = LeaseStore(table, clock)
    lease = leases.acquire("sweeping", NOW + MINUTE)
    assert isinstance(lease, JobLease)
    assert (lease.cursor, lease.since) == ("here", None)
    done = leases.renew(lease, NOW, "", NOW)
    leases.renew(done, NOW, "there", None)
    again = leases.acquire("sweeping", NOW + MINUTE)
    assert isinstance(again, JobLease)
    assert (again.cursor, again.since) == ("there", None)
