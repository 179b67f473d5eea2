"""Rows that no server of this kind has written: each is logged once, and in nobody's way."""

import json
from collections.abc import Iterator, MutableMapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.data.tables import EdmType, TableClient, UpdateMode
from structlog.testing import capture_logs

from legacy_queue.adapters.azure import AzureStorage
from legacy_queue.domain.events import Event
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.usage import Calls, CountedUse, Use
from legacy_queue.domain.workers import Known
from legacy_queue.ports import AlreadyExists, Corrupt
from legacy_queue.stores import Dependent, Storage, Turn

from .conftest import azure_backend
from .paging import remove_all_expired
from .test_artifact_store import new_artifact
from .test_task_store import new_task

EXPIRES = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
DAY = timedelta(days=1)
RUN = b'[{"runId": %s, "state": "%s", "reasonCreated": "scheduled", "scheduled": "2030-01-02T03:04:05.678Z"}]'
SPOILED = {
    "provisionerId": "spoiled",
    "expires": "2030-01-02T03:04:05.678Z",
    "lastDateActive": "2030-01-02T03:04:05.678Z",
}
HUGE = 2**40, EdmType.INT64
ODD: Sequence[Any] = ["text", b"\xff\xfe", 7, True, HUGE, EXPIRES]
NO_JSON: Sequence[Any] = [b"{", b"\xff", b"[" * 60_000, b"9" * 5000, b"7", b"null", b'"x"', b"[1]", b"[{}]"]


@pytest.fixture
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as entries:
        yield entries


def other_than(*kinds: type) -> list[Any]:
    """Values of all other types."""
    return [value for value in ODD if not isinstance(value, kinds) or type(value) not in kinds]


def spoil(table: TableClient, name: str, values: Sequence[Any]) -> Iterator[Any]:
    """One row, whose property has one value after the other, and then is not there; at last as it was."""
    (row,) = table.list_entities()
    for value in [*values, None]:
        table.update_entity({**row, name: value}, mode=UpdateMode.REPLACE)
        yield value
    table.update_entity(row, mode=UpdateMode.REPLACE)


def fresh(storage: AzureStorage) -> AzureStorage:
    """Nothing is remembered."""
    storage.tasks._recent._entries.clear()
    storage.groups._recent._entries.clear()
    return storage


def logged(logs: list[MutableMapping[str, Any]]) -> int:
    """How many rows were told of since the last look."""
    count = sum(one["event"] == "row-corrupt" for one in logs)
    assert all(one["log_level"] == "error" for one in logs)
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
def test_a_corrupt_task_is_told_apart_and_left_out(
    azure: AzureStorage, logs: list[MutableMapping[str, Any]], name: str, values: Sequence[Any]
) -> None:
    task = azure.tasks.insert(new_task()).task
    for value in spoil(azure.tasks._table, name, values):
        if value is None and name in ("waitsFor", "newestBlob"):
            continue  # a task of before there were any
        for _ in range(2):
            with pytest.raises(Corrupt):
                fresh(azure).tasks.load(task.task_id)
            assert azure.tasks.unresolved("", 10).tasks == []
        assert logged(logs) == 1
        with pytest.raises(AlreadyExists):
            azure.tasks.insert(task)
    found = fresh(azure).tasks.load(task.task_id)
    assert found
    assert found.task == task
    azure.tasks.insert(new_task())
    assert len(azure.tasks.unresolved("", 10).tasks) == 2


def test_a_corrupt_row_of_a_group_is_left_out(
    azure: AzureStorage, logs: list[MutableMapping[str, Any]]
) -> None:
    group, tasks = slugid(), sorted(slugid() for _ in range(3))
    for task_id in tasks:
        azure.groups.join(task_id, group, "scheduler", EXPIRES)
    table = azure.groups._table
    for key in ("member-", "member-a'b", "member-" + "x" * 400, "active-", "active-x-y", "active-a'b-0000"):
        table.create_entity({"PartitionKey": group, "RowKey": key, "since": EXPIRES, "expires": EXPIRES})
    table.upsert_entity(
        {"PartitionKey": group, "RowKey": f"active-{tasks[0]}-0000", "since": "x", "expires": EXPIRES},
        mode=UpdateMode.REPLACE,
    )
    for _ in range(2):
        assert list(azure.groups.members(group, "", 10)) == tasks
        assert list(azure.groups.members(group, "", 3)) == tasks
        assert [one.task_id for one in azure.groups.all_active("", 100).active] == tasks[1:]
    assert logged(logs) == 5
    for task_id in tasks:
        azure.groups.deactivate(task_id, group, 0)
    assert not azure.groups.has_active(group)
    table.upsert_entity({"PartitionKey": group, "RowKey": "group", "expires": "x"}, mode=UpdateMode.REPLACE)
    for _ in range(2):
        with pytest.raises(Corrupt):
            fresh(azure).groups.load(group)
    logs.clear()
    remove_all_expired(azure.groups, EXPIRES + DAY)
    assert [row["RowKey"] for row in table.list_entities()] == ["group"]


def test_a_corrupt_dependent_is_left_out(azure: AzureStorage, logs: list[MutableMapping[str, Any]]) -> None:
    required, waiting = slugid(), sorted(slugid() for _ in range(3))
    for task_id in waiting:
        azure.dependencies.add(required, Dependent(task_id, "all-completed"), EXPIRES)
    for key, requires in (
        ("-", "all-completed"),
        ("a'b", "all-completed"),
        (slugid(), 7),
        (slugid(), "none"),
    ):
        azure.dependencies._table.create_entity(
            {"PartitionKey": required, "RowKey": key, "requires": requires, "expires": EXPIRES}
        )
    for _ in range(2):
        found = azure.dependencies.dependents(required, "", 3)
        assert [one.task_id for one in found] == waiting
        assert azure.dependencies.dependents(required, waiting[-1], 3) == []
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
    azure: AzureStorage, logs: list[MutableMapping[str, Any]], name: str, values: Sequence[Any]
) -> None:
    artifact = new_artifact(slugid(), "b", is_complete=False)
    azure.artifacts.insert(artifact)
    for _ in spoil(azure.artifacts._table, name, values):
        for _ in range(2):
            with pytest.raises(Corrupt):
                azure.artifacts.load(artifact.task_id, 0, "b")
            assert azure.artifacts.list(artifact.task_id, 0, "", 10) == []
            assert azure.artifacts.incomplete(artifact.task_id, 0, EXPIRES - DAY) is None
            assert azure.artifacts.expired(EXPIRES + DAY, "", 10).artifacts == []
        assert logged(logs) == 1
    assert list(azure.artifacts.list(artifact.task_id, 0, "", 10)) == [artifact]


@pytest.mark.parametrize(
    "known",
    [
        *ODD,
        *NO_JSON,
        b"{}",
        *(
            json.dumps({**SPOILED, **change}).encode()
            for change in (
                {"provisionerId": "other"},
                {"provisionerId": 1},
                {"lastDateActive": "x"},
                {"expires": 7},
                {"description": 7},
                {"stability": 7},
                {"actions": [7]},
                {"actions": [{}]},
                {"recentTasks": [7]},
            )
        ),
    ],
)
def test_a_corrupt_provisioner_is_left_out(
    azure: AzureStorage, logs: list[MutableMapping[str, Any]], known: Any
) -> None:
    azure.workers.insert(Known.new(("good",), EXPIRES))
    row = {"PartitionKey": "known", "RowKey": "spoiled", "expires": EXPIRES, "known0": known}
    azure.workers._table.create_entity(row)
    for _ in range(2):
        assert [one.path for one in azure.workers.list((), (), 1)] == [("good",)]
        assert azure.workers.list((), ("good",), 1) == []
        with pytest.raises(Corrupt):
            azure.workers.load(("spoiled",))
    assert logged(logs) == 1


def test_a_corrupt_quarantine_is_left_out(azure: AzureStorage, logs: list[MutableMapping[str, Any]]) -> None:
    worker = ("provisioner", "type", "group", "worker")
    azure.workers.quarantine(worker, EXPIRES)
    azure.workers._table.create_entity({"PartitionKey": "quarantined", "RowKey": "a!b!c!d", "expires": "x"})
    azure.workers._table.create_entity({"PartitionKey": "quarantined", "RowKey": "a!b!c!e"})
    for _ in range(2):
        assert azure.workers.quarantined() == {worker: EXPIRES}
    assert logged(logs) == 2


@pytest.mark.parametrize("name", ["until", "cursor", "since"])
def test_a_corrupt_turn_is_taken_from_the_beginning(azure: AzureStorage, name: str) -> None:
    now = azure.turns._clock.now()
    turn = azure.turns.take("sweep", now)
    assert isinstance(turn, Turn)
    azure.turns.keep(turn, now, "cursor", now)
    (row,) = azure.turns._table.list_entities()
    for value in ("text" if name != "cursor" else 7, b"\xff", True, HUGE):
        azure.turns._table.update_entity({**row, name: value}, mode=UpdateMode.REPLACE)
        taken = azure.turns.take("sweep", now + DAY)
        assert isinstance(taken, Turn)
        assert (taken.cursor, taken.since) == ("", None)
        assert azure.turns.take("sweep", now + DAY) == now + DAY
    azure.turns._table.update_entity({key: row[key] for key in ("PartitionKey", "RowKey")}, mode="replace")
    assert isinstance(azure.turns.take("sweep", now + DAY), Turn)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *((name, other_than(str)) for name in ("process", "provisionerId", "workerType", "method", "caller")),
        *((name, other_than(datetime)) for name in ("hour", "last")),
        ("count", other_than(int)),
        ("missing", [*ODD, "{", "[1]", "7", "[[]]"]),
    ],
)
def test_a_corrupt_count_is_left_out(
    azure: AzureStorage, logs: list[MutableMapping[str, Any]], name: str, values: Sequence[Any]
) -> None:
    use = Use("p", "w", "claimTask", "g/w", ("receipt",))
    counted = CountedUse("one", EXPIRES, use, Calls(1, EXPIRES))
    azure.usage.put([counted])
    for _ in spoil(azure.usage._table, name, values):
        for _ in range(2):
            assert azure.usage.since(EXPIRES - DAY, None, None, "", 10).counted == []
        assert logged(logs) == 1
    assert azure.usage.since(EXPIRES - DAY, None, None, "", 10).counted == [counted]


def test_a_corrupt_event_is_left_out_and_removed_in_time(
    azure: AzureStorage, logs: list[MutableMapping[str, Any]]
) -> None:
    event = Event("task-pending", "primary", ("route",), {})
    log, table = azure.event_log, azure.event_log._table
    log.append([event] * 12)
    rows = [row for row in table.list_entities() if row["RowKey"] != "head"]
    texts = [
        *NO_JSON,
        b'{"exchange": "none", "routingKey": "x", "routes": [], "payload": {}}',
        b'{"exchange": "task-pending", "routingKey": 1, "routes": [], "payload": {}}',
    ]
    for row, text in zip(rows, texts, strict=False):
        table.update_entity({**row, "event0": text, "at": "x"}, mode=UpdateMode.REPLACE)
    table.create_entity({"PartitionKey": "log", "RowKey": "0a", "event0": b"{}"})
    for _ in range(2):
        assert list(log.read("", 1)) == [(rows[-1]["RowKey"], event)]
    assert logged(logs) == 12
    log.trim(datetime.now(UTC) - DAY)
    assert [row["RowKey"] for row in table.list_entities()] == [rows[-1]["RowKey"], "head"]


@pytest.mark.parametrize("last", ["x", 7, b"\xff", None])
def test_the_log_goes_on_behind_a_corrupt_head(
    azurite_storages: tuple[AzureStorage, Storage], last: Any
) -> None:
    azure, other = azurite_storages
    event = Event("task-pending", "primary", (), {})
    azure.event_log.append([event])
    azure.event_log._table.update_entity(
        {"PartitionKey": "log", "RowKey": "head", "last": last}, mode=UpdateMode.REPLACE
    )
    other.event_log.append([event] * 2)
    azure.event_log.append([event])
    ids = [one for one, _ in azure.event_log.read("", 10)]
    assert len(ids) == 4
    assert azure.event_log.last() == ids[-1]


@pytest.fixture
def azurite_storages(request: pytest.FixtureRequest) -> Iterator[tuple[AzureStorage, Storage]]:
    with azure_backend(request) as ready:
        assert isinstance(ready.storage, AzureStorage)
        yield ready.storage, ready.other
