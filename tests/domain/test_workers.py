from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from legacy_queue.domain.errors import InputError
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


def claims(known: WorkerRecord) -> list[str]:
    return [task_id for task_id, _ in known.recent_claims]


def test_a_path_leads_from_the_provisioner_to_the_worker() -> None:
    assert worker_path("provisioner", "type", Worker("group", "worker")) == WORKER
    assert parents(WORKER) == [PROVISIONER, WORKER_TYPE]
    assert (parents(WORKER_TYPE), parents(PROVISIONER)) == ([PROVISIONER], [])
    assert [parent_of(path) for path in (PROVISIONER, WORKER_TYPE, WORKER)] == [(), PROVISIONER, WORKER_TYPE]


@pytest.mark.parametrize(("path", "life"), [(PROVISIONER, 5 * DAY), (WORKER_TYPE, 5 * DAY), (WORKER, DAY)])
def test_each_is_known_for_so_long_after_it_was_last_active(path: Path, life: timedelta) -> None:
    known = WorkerRecord.new(path, NOW)
    assert (known.first_active, known.last_active, known.expires) == (NOW, NOW, NOW + life)
    later = known.after(active(NOW + DAY / 2))
    assert (later.first_active, later.last_active) == (NOW, NOW + DAY / 2)
    assert later.expires == later.kept_until == NOW + DAY / 2 + life


def test_activity_makes_nobody_expire_earlier_or_be_seen_last_before_they_were() -> None:
    known = replace(WorkerRecord.new(WORKER, NOW), expires=NOW + 100 * DAY)
    assert known.after(active(NOW + DAY)).expires == NOW + 100 * DAY
    before = known.after(active(NOW - SECOND))
    assert (before.first_active, before.last_active) == (NOW - SECOND, NOW)


def test_the_last_20_claims_are_kept_each_once_and_the_oldest_first() -> None:
    known = WorkerRecord.new(WORKER, NOW).after(active(NOW, "a", "b"))
    assert claims(known.after(active(NOW, "b", "c"))) == ["a", "b", "c"]
    many = [f"t{number}" for number in range(25)]
    assert claims(known.after(active(NOW, *many))) == many[-20:]
    for task_id in many:
        known = known.after(active(NOW, task_id))
    assert claims(known) == many[-20:]
    assert claims(known.after(active(NOW, *many[-20:]))) == many[-20:]


def test_the_runs_of_a_task_are_several_claims() -> None:
    known = WorkerRecord.new(WORKER, NOW).after(Activity(NOW, NOW, (("task", 0), ("task", 1))))
    assert known.recent_claims == (("task", 0), ("task", 1))


def test_activities_one_after_the_other_are_one() -> None:
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
def test_new_claims_are_written_down_at_once_and_mere_activity_now_and_then(
    activity: Activity, needs_write: bool
) -> None:
    known = WorkerRecord.new(WORKER, NOW).after(active(NOW, "old"))
    assert known.needs_write(activity) == needs_write


def test_a_quarantined_worker_is_kept_until_its_quarantine_ends_and_does_not_expire_later() -> None:
    known = replace(WorkerRecord.new(WORKER, NOW), quarantine_until=NOW + 30 * DAY)
    assert known.kept_until == NOW + 30 * DAY
    assert known.expires == NOW + DAY
    assert replace(known, quarantine_until=NOW).kept_until == NOW + DAY


def test_a_quarantine_is_over_when_its_time_has_come() -> None:
    known = replace(WorkerRecord.new(WORKER, NOW), quarantine_until=NOW + DAY)
    assert known.is_quarantined(NOW + DAY - SECOND)
    assert not known.is_quarantined(NOW + DAY)
    assert not WorkerRecord.new(WORKER, NOW).is_quarantined(NOW)
    assert known.as_of(NOW) == known
    assert known.as_of(NOW + DAY).quarantine_until is None


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
def test_a_declaration_changes_what_it_gives_and_nothing_else(
    body: dict[str, Any], changed: dict[str, Any]
) -> None:
    known = replace(WorkerRecord.new(PROVISIONER, NOW - DAY), description="old", actions=(ACTION, ACTION))
    assert known.declared(body, NOW) == replace(known, **changed)


@pytest.mark.parametrize(
    "time", ["0000-01-01T00:00:00Z", "2030-02-30T00:00:00Z", "9999-12-31T23:59:59-10:00"]
)
def test_a_time_that_does_not_exist_is_not_declared(time: str) -> None:
    with pytest.raises(InputError, match=f"expires: '{time}'"):
        WorkerRecord.new(WORKER, NOW).declared({"expires": time}, NOW)


@each_kind
def test_what_is_written_is_read_again(path: Path) -> None:
    known = WorkerRecord.new(path, NOW).after(active(NOW + SECOND))
    assert WorkerRecord.from_wire(known.to_wire()) == (
        known if known.is_worker else replace(known, first_active=NOW + SECOND)
    )


def test_a_provisioner_shows_its_actions() -> None:
    known = replace(
        WorkerRecord.new(PROVISIONER, NOW), description="d", stability="stable", actions=(ACTION,)
    )
    assert known.to_wire() == {
        "provisionerId": "provisioner",
        "description": "d",
        "stability": "stable",
        "lastDateActive": "2030-01-02T03:04:05.678Z",
        "expires": "2030-01-07T03:04:05.678Z",
        "actions": [ACTION],
    }
    assert WorkerRecord.from_wire(known.to_wire()) == known


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
    known = replace(
        WorkerRecord.new(WORKER, NOW).after(active(NOW + SECOND, "a", "b")), quarantine_until=NOW + DAY
    )
    assert known.to_wire() == {
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
    assert WorkerRecord.from_wire(known.to_wire()) == known


def test_of_a_quarantine_the_last_20_changes_are_kept() -> None:
    known = WorkerRecord.new(WORKER, NOW)
    for number in range(21):
        known = known.quarantined(NOW + DAY, NOW, "client", f"reason {number}")
    assert [one["quarantineInfo"] for one in known.quarantine_details] == [
        f"reason {number}" for number in range(1, 21)
    ]
    assert WorkerRecord.from_wire(known.to_wire()) == known
