"""Rows that this server cannot have written. It logs each once, leaves it out, and serves all other rows."""

import json
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from legacy_queue.domain.ids import slugid
from legacy_queue.ports import Corrupt
from legacy_queue.ports.table import Row, Table
from legacy_queue.stores import Dependent, Group, Storage
from tests.domain.sample_tasks import DAY, NOW
from tests.memory_server import FakeClock, memory_storage

from .paging import remove_all_expired
from .test_task_store import new_task

RUN_1 = b'[{"runId": 1, "state": "failed", "reasonCreated": "x", "scheduled": "2030-01-02T03:04:05.678Z"}]'
TIMES = dict.fromkeys(("created", "deadline", "expires"), "2030-01-02T03:04:05.678Z")
WITHOUT_POOL = json.dumps({**TIMES, "dependencies": []}).encode()
NO_JSON: Sequence[Any] = ["text", b"\xff", b"[" * 60_000, b"7"]
# wrong values of each property of a task; None means that the property is missing
SPOILED: Mapping[str, Sequence[Any]] = {
    "retriesLeft": ["text", True, None],
    "heldReceipt": [7, None],
    "written": ["p1", "p1/", "p1/x", "/1", 7],
    "runs": [*NO_JSON, b"{}", b'[{"runId": 0}]', RUN_1, None],
    "waitsFor": [*NO_JSON, b"{}", None],
    "definition0": [*NO_JSON, b"{}", WITHOUT_POOL, None],
}


@pytest.fixture
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as entries:
        yield entries


@pytest.fixture
def storage() -> Storage:
    """A storage in memory. tests/contracts/ports shows that every adapter answers the same."""
    return memory_storage(FakeClock(NOW))


def table_of(storage: Storage, name: str) -> Table:
    return storage.account.table(f"q{name}")


def rows(table: Table) -> Sequence[Row]:
    return table.page([], "", 100).rows


def fresh(storage: Storage) -> Storage:
    """The same storage with empty caches."""
    return Storage(storage.account, "q", FakeClock())


def logged(logs: list[MutableMapping[str, Any]]) -> int:
    """How many corrupt rows were logged since the last call."""
    count = [line["event"] for line in logs].count("row-corrupt")
    assert all(line["log_level"] == "error" for line in logs)
    logs.clear()
    return count


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in SPOILED.items() for value in values]
)
def test_loading_a_task_with_a_corrupt_or_missing_property_is_an_error_and_lists_leave_it_out(
    storage: Storage, logs: list[MutableMapping[str, Any]], name: str, value: Any
) -> None:
    task = storage.tasks.insert(new_task(), "").task
    table = table_of(storage, "tasks")
    (row,) = rows(table)
    values = {**row.values, name: value}
    if value is None:
        del values[name]
    table.put(row.partition, row.key, values)
    for _ in range(2):
        with pytest.raises(Corrupt):
            fresh(storage).tasks.load(task.task_id)
        assert storage.tasks.unresolved("", 10)[0] == []
    assert logged(logs) == 1


def test_corrupt_rows_of_a_group_are_left_out(storage: Storage, logs: list[MutableMapping[str, Any]]) -> None:
    group, tasks = slugid(), sorted(slugid() for _ in range(3))
    for task_id in tasks:
        storage.groups.join(task_id, Group(group, "scheduler", NOW), "")
    table = table_of(storage, "groups")
    for key in ("member-", "member-a'b", "active-x-y", "active-a'b-0000"):
        table.insert(group, key, {"since": NOW, "expires": NOW})
    table.put(group, f"active-{tasks[0]}-0000", {"since": "x", "expires": NOW})
    for _ in range(2):
        assert list(storage.groups.members(group, "", 10)) == tasks
        assert list(storage.groups.members(group, "", 3)) == tasks
        assert [row.task_id for row in storage.groups.all_active("", 100, also_old=True)[0]] == tasks[1:]
    assert logged(logs) == 5
    table.put(group, "group", {"expires": "x"})
    for _ in range(2):
        with pytest.raises(Corrupt):
            fresh(storage).groups.load(group)
    logs.clear()
    remove_all_expired(storage.groups, NOW + DAY)
    assert [row.key for row in rows(table)] == ["group"]


def test_a_task_can_leave_a_group_that_has_a_corrupt_row(storage: Storage) -> None:
    group, tasks = slugid(), [slugid() for _ in range(2)]
    for task_id in tasks:
        storage.groups.join(task_id, Group(group, "scheduler", NOW), "")
    table_of(storage, "groups").put(group, "group", {"expires": "x"})
    assert [fresh(storage).groups.end(task_id, group, {0}) for task_id in tasks] == [True, False]


def test_a_corrupt_dependent_is_left_out(storage: Storage, logs: list[MutableMapping[str, Any]]) -> None:
    required, waiting = slugid(), sorted(slugid() for _ in range(3))
    for task_id in waiting:
        storage.dependencies.add(required, Dependent(task_id, "all-completed"), NOW)
    for key, requires in (("a'b", "all-completed"), (slugid(), 7)):
        table_of(storage, "dependencies").insert(required, key, {"requires": requires, "expires": NOW})
    assert [one.task_id for one in storage.dependencies.dependents(required, "", 9)] == waiting
    assert logged(logs) == 2
