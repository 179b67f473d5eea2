from dataclasses import replace
from datetime import datetime
from typing import Any

from legacy_queue.domain.times import format_time
from legacy_queue.domain.worker_record import PoolPath, ProvisionerPath, RecordPath, WorkerPath, WorkerRecord
from tests.domain.sample_tasks import DAY, HOUR, NOW, SECOND

PROVISIONER = ProvisionerPath("provisioner")
WORKER_TYPE = PoolPath("provisioner", "type")
WORKER = WorkerPath("provisioner", "type", "group", "worker")
ACTION = {"name": "kill", "title": "Kill it"}


def claimed(record: WorkerRecord, *task_ids: str, at: datetime = NOW) -> WorkerRecord:
    return record.active(at, [(task_id, 0) for task_id in task_ids])


def claims(record: WorkerRecord) -> list[str]:
    return [task_id for task_id, _ in record.recent_claims]


def test_the_last_20_claims_are_kept_without_duplicates_the_oldest_first() -> None:
    record = claimed(WorkerRecord.new(WORKER, NOW), "a", "b")
    assert claims(claimed(record, "b", "c")) == ["a", "b", "c"]
    many = [f"t{number}" for number in range(25)]
    assert claims(claimed(record, *many)) == many[-20:]
    for task_id in many:
        record = claimed(record, task_id)
    assert claims(record) == many[-20:]
    assert claims(claimed(record, *many[-20:])) == many[-20:]


def test_a_declaration_changes_only_the_fields_that_it_gives() -> None:
    record = replace(WorkerRecord.new(PROVISIONER, NOW - DAY), description="old", actions=(ACTION, ACTION))
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        ({"description": "builds"}, {"description": "builds"}),
        ({"stability": "deprecated"}, {"stability": "deprecated"}),
        ({"actions": [ACTION]}, {"actions": (ACTION,)}),
        ({"expires": format_time(NOW + 99 * DAY)}, {"expires": NOW + 99 * DAY}),
        ({"expires": format_time(NOW - DAY)}, {"expires": NOW}),
    ]
    for body, changed in cases:
        assert record.declared(body, NOW) == replace(record, **changed)


def test_a_worker_keeps_the_last_20_changes_of_its_quarantine() -> None:
    record = WorkerRecord.new(WORKER, NOW)
    for number in range(21):
        record = record.quarantined(NOW + DAY, NOW, "client", f"reason {number}")
    assert [change["quarantineInfo"] for change in record.quarantine_details] == [
        f"reason {number}" for number in range(1, 21)
    ]
    assert WorkerRecord.from_wire(record.to_wire()) == record


def test_activity_never_sets_expires_or_last_active_back_and_a_declaration_counts_as_activity() -> None:
    kept = replace(WorkerRecord.new(WORKER, NOW), expires=NOW + 100 * DAY)
    assert kept.active(NOW + DAY).expires == NOW + 100 * DAY
    assert kept.active(NOW - SECOND).last_active == NOW
    paths: tuple[RecordPath, ...] = (PROVISIONER, WORKER_TYPE, WORKER)
    # a declaration makes a worker active immediately, but a provisioner or workerType only after six hours
    for path in paths:
        record = WorkerRecord.new(path, NOW)
        soon, later = NOW + 6 * HOUR, NOW + 6 * HOUR + SECOND
        assert record.active_by_declaration(soon) == (record.active(soon) if path == WORKER else record)
        assert record.active_by_declaration(later) == record.active(later)


def test_activity_is_recorded_in_each_half_hour_of_the_day() -> None:
    record = WorkerRecord.new(WORKER, NOW.replace(minute=30, second=0, microsecond=0))
    seconds = {-1: False, 0: True, 30 * 60 - 1: True, 30 * 60: False}
    assert {it: record.is_active_in(record.last_active + it * SECOND) for it in seconds} == seconds


def test_a_worker_that_returns_after_its_record_expired_gets_a_new_one() -> None:
    record = replace(WorkerRecord.new(WORKER_TYPE, NOW), description="old")
    assert record.alive(record.expires - SECOND) == record
    assert record.alive(record.expires) == WorkerRecord.new(WORKER_TYPE, record.expires)
