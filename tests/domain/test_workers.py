from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from legacy_queue.domain.task import Worker
from legacy_queue.domain.times import format_time
from legacy_queue.domain.worker_record import (
    ACTIVE_EVERY,
    Activity,
    Path,
    WorkerRecord,
    parent_of,
    parents,
    worker_path,
)

NOW = datetime(2030, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)
PROVISIONER: Path = ("provisioner",)
WORKER_TYPE: Path = ("provisioner", "type")
WORKER: Path = ("provisioner", "type", "group", "worker")
ACTION = {
    "name": "kill",
    "title": "Kill it",
    "context": "worker",
    "url": "https://example.com/<workerId>",
    "method": "DELETE",
    "description": "Ends the machine",
}
each_kind = pytest.mark.parametrize(
    "path", [PROVISIONER, WORKER_TYPE, WORKER], ids=lambda path: str(len(path))
)


def active(time: datetime, *claims: str) -> Activity:
    return Activity(time, time, tuple((task_id, 0) for task_id in claims))


def claims(record: WorkerRecord) -> list[str]:
    return [task_id for task_id, _ in record.recent_claims]


def test_a_path_leads_from_the_provisioner_to_the_worker() -> None:
    assert worker_path("provisioner", "type", Worker("group", "worker")) == WORKER
    assert parents(WORKER) == [PROVISIONER, WORKER_TYPE]
    assert (parents(WORKER_TYPE), parents(PROVISIONER)) == ([PROVISIONER], [])
    assert [parent_of(path) for path in (PROVISIONER, WORKER_TYPE, WORKER)] == [(), PROVISIONER, WORKER_TYPE]


@pytest.mark.parametrize(("path", "life"), [(PROVISIONER, 5 * DAY), (WORKER_TYPE, 5 * DAY), (WORKER, DAY)])
def test_a_worker_expires_a_day_and_a_worker_type_five_days_after_the_last_activity(
    path: Path, life: timedelta
) -> None:
    record = WorkerRecord.new(path, NOW)
    assert (record.first_active, record.last_active, record.expires) == (NOW, NOW, NOW + life)
    later = record.after(active(NOW + DAY / 2))
    assert (later.first_active, later.last_active) == (NOW, NOW + DAY / 2)
    assert later.expires == later.kept_until == NOW + DAY / 2 + life


def test_activity_never_moves_expires_or_last_active_back() -> None:
    record = replace(WorkerRecord.new(WORKER, NOW), expires=NOW + 100 * DAY)
    assert record.after(active(NOW + DAY)).expires == NOW + 100 * DAY
    before = record.after(active(NOW - SECOND))
    assert (before.first_active, before.last_active) == (NOW - SECOND, NOW)


def test_the_last_20_claims_are_kept_once_each_and_the_oldest_first() -> None:
    record = WorkerRecord.new(WORKER, NOW).after(active(NOW, "a", "b"))
    assert claims(record.after(active(NOW, "b", "c"))) == ["a", "b", "c"]
    many = [f"t{number}" for number in range(25)]
    assert claims(record.after(active(NOW, *many))) == many[-20:]
    for task_id in many:
        record = record.after(active(NOW, task_id))
    assert claims(record) == many[-20:]
    assert claims(record.after(active(NOW, *many[-20:]))) == many[-20:]


def test_two_activities_are_combined() -> None:
    both = active(NOW, "a", "b").then(active(NOW + SECOND, "b", "c"))
    assert both == Activity(NOW, NOW + SECOND, (("a", 0), ("b", 0), ("c", 0)))
    assert len(both.then(active(NOW, *map(str, range(30)))).claims) == 20


@pytest.mark.parametrize(
    ("activity", "needs_write"),
    [
        (active(NOW), False),
        (active(NOW + ACTIVE_EVERY - SECOND), False),
        (active(NOW + ACTIVE_EVERY), True),
        (active(NOW, "old"), False),
        (active(NOW, "old", "new"), True),
        (Activity(NOW, NOW, (("old", 1),)), True),
    ],
)
def test_a_new_claim_needs_a_write_and_activity_alone_only_every_30_minutes(
    activity: Activity, needs_write: bool
) -> None:
    record = WorkerRecord.new(WORKER, NOW).after(active(NOW, "old"))
    assert record.needs_write(activity) == needs_write


def test_a_quarantine_ends_at_its_time() -> None:
    record = replace(WorkerRecord.new(WORKER, NOW), quarantine_until=NOW + DAY)
    assert record.is_quarantined(NOW + DAY - SECOND)
    assert not record.is_quarantined(NOW + DAY)
    assert not WorkerRecord.new(WORKER, NOW).is_quarantined(NOW)
    assert record.as_of(NOW) == record
    assert record.as_of(NOW + DAY).quarantine_until is None


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        ({}, {}),
        ({"description": "builds"}, {"description": "builds"}),
        ({"description": ""}, {"description": ""}),
        ({"stability": "deprecated"}, {"stability": "deprecated"}),
        ({"actions": [ACTION]}, {"actions": (ACTION,)}),
        ({"actions": []}, {"actions": ()}),
        ({"expires": format_time(NOW + 99 * DAY)}, {"expires": NOW + 99 * DAY}),
        ({"expires": format_time(NOW - DAY)}, {"expires": NOW}),
        ({"expires": "0001-01-01T00:00:00Z"}, {"expires": NOW}),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_a_declaration_changes_only_the_fields_that_it_gives(
    body: dict[str, Any], changed: dict[str, Any]
) -> None:
    record = replace(WorkerRecord.new(PROVISIONER, NOW - DAY), description="old", actions=(ACTION, ACTION))
    assert record.declared(body, NOW) == replace(record, **changed)


@each_kind
def test_a_record_is_read_as_written(path: Path) -> None:
    record = WorkerRecord.new(path, NOW).after(active(NOW + SECOND))
    assert WorkerRecord.from_wire(record.to_wire()) == (
        record if record.is_worker else replace(record, first_active=NOW + SECOND)
    )


def test_a_provisioner_shows_its_actions() -> None:
    record = replace(
        WorkerRecord.new(PROVISIONER, NOW), description="d", stability="stable", actions=(ACTION,)
    )
    assert record.to_wire() == {
        "provisionerId": "provisioner",
        "description": "d",
        "stability": "stable",
        "lastDateActive": "2030-01-02T03:04:05.678Z",
        "expires": "2030-01-07T03:04:05.678Z",
        "actions": [ACTION],
    }
    assert WorkerRecord.from_wire(record.to_wire()) == record


def test_a_worker_type_has_no_actions_of_its_own() -> None:
    assert WorkerRecord.new(WORKER_TYPE, NOW).to_wire() == {
        "provisionerId": "provisioner",
        "workerType": "type",
        "taskQueueId": "provisioner/type",
        "description": "",
        "stability": "experimental",
        "lastDateActive": "2030-01-02T03:04:05.678Z",
        "expires": "2030-01-07T03:04:05.678Z",
    }


def test_a_worker_shows_its_claims_and_its_quarantine() -> None:
    record = replace(
        WorkerRecord.new(WORKER, NOW).after(active(NOW + SECOND, "a", "b")), quarantine_until=NOW + DAY
    )
    assert record.to_wire() == {
        "provisionerId": "provisioner",
        "workerType": "type",
        "taskQueueId": "provisioner/type",
        "workerGroup": "group",
        "workerId": "worker",
        "firstClaim": "2030-01-02T03:04:05.678Z",
        "lastDateActive": "2030-01-02T03:04:06.678Z",
        "expires": "2030-01-03T03:04:06.678Z",
        "recentTasks": [{"taskId": "a", "runId": 0}, {"taskId": "b", "runId": 0}],
        "quarantineUntil": "2030-01-03T03:04:05.678Z",
    }
    assert WorkerRecord.from_wire(record.to_wire()) == record


def test_the_last_20_changes_of_a_quarantine_are_kept() -> None:
    record = WorkerRecord.new(WORKER, NOW)
    for number in range(21):
        record = record.quarantined(NOW + DAY, NOW, "client", f"reason {number}")
    assert [change["quarantineInfo"] for change in record.quarantine_details] == [
        f"reason {number}" for number in range(1, 21)
    ]
    assert WorkerRecord.from_wire(record.to_wire()) == record
