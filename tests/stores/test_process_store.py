"""Each process writes a row of its own, and other processes read it."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from legacy_queue.domain.ids import slugid
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.ports import Changed, Corrupt
from legacy_queue.ports.table import Table
from legacy_queue.stores import ProcessRow, ProcessStore, Storage
from legacy_queue.stores.process_store import NamedTask
from tests.domain.sample_tasks import NOW, SECOND
from tests.memory_server import FakeClock

from .conftest import Backend


@pytest.fixture
def table(backend: Backend) -> Table:
    return backend.storage.account.table(f"{backend.prefix}processes")


def test_other_processes_read_the_last_version_of_a_row(
    storage: Storage, other: Storage, queue: WorkQueue
) -> None:
    names = [
        NamedTask(slugid(), NOW + number * SECOND, slugid() if number % 2 else "") for number in range(2000)
    ]
    name = storage.processes.process
    row = ProcessRow(name, names, 7, {"dead": 3}, {queue: 12}, has_ended=True)
    for written in (replace(row, settled=6), row):
        storage.processes.write(written)
        assert [*other.processes.others()] == [written]
        assert other.processes.load(name) == written
    assert [*storage.processes.others()] == []
    assert other.processes.load("another") is None


def test_a_row_is_removed_unless_its_process_has_written_it_since(storage: Storage, other: Storage) -> None:
    storage.processes.write(ProcessRow(storage.processes.process))
    [seen] = other.processes.others()
    storage.processes.write(ProcessRow(storage.processes.process))
    with pytest.raises(Changed):
        other.processes.remove(seen)
    [seen] = other.processes.others()
    other.processes.remove(seen)
    assert [*other.processes.others()] == []
    storage.processes.write(ProcessRow(storage.processes.process, settled=1))
    assert [row.settled for row in other.processes.others()] == [1]


def test_each_fork_of_a_process_has_a_name_of_its_own_and_earlier_forks_sort_first(table: Table) -> None:
    clock = FakeClock(NOW)
    before = ProcessStore(table, clock)
    forks = []
    for store in (before, copy.copy(before)):
        forks.append(store.process)
        clock.advance(SECOND)
    assert forks == sorted(forks)
    assert len({*forks}) == 2
    assert before.process == forks[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("owed0", None),
        ("owed0", b"{"),
        ("owed0", b'{"names": [["no task", "2030-01-02T03:04:05.678Z", ""]]}'),
        ("owed0", b'{"names": [], "settled": "1"}'),
        ("owed0", b'{"names": [], "settled": 1, "inherited": {"p1": "1"}, "offers": []}'),
        ("owed0", b'{"names": [], "settled": 1, "inherited": {}, "offers": [["a", "b", "low", "1"]]}'),
        ("hasEnded", 7),
    ],
)
def test_a_corrupt_row_still_shows_that_its_process_exists_and_loading_it_is_an_error(
    storage: Storage, other: Storage, table: Table, name: str, value: Any
) -> None:
    storage.processes.write(ProcessRow(storage.processes.process))
    [row] = table.page([], "", 9).rows
    values = {**row.values, name: value}
    if value is None:
        del values[name]
    table.put(row.partition, row.key, values)
    assert [*other.processes.others()] == [ProcessRow(row.partition)]
    with pytest.raises(Corrupt):
        other.processes.load(row.partition)
