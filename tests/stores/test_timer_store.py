"""Timers in rows of a table: found by any process when they are due, taken by one, gone when removed."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from legacy_queue.domain.ids import slugid
from legacy_queue.domain.timer import Timer
from legacy_queue.ports.table import PARTITION, Condition, Table, Value
from legacy_queue.stores import Storage
from legacy_queue.stores.timer_store import TimerRow, TimerStore
from tests.domain.tasks import HOUR, SECOND, TASK_ID
from tests.services.ports import CallRecorder, intercept_port

from .conftest import Backend


@pytest.fixture
def table(backend: Backend) -> Table:
    return backend.storage.account.table(f"{backend.prefix}timers")


def timers(backend: Backend, wait: timedelta = 15 * SECOND, count: int = 1, **more: Any) -> list[Timer]:
    """Of so many tasks whose effects are missing, due after that time."""
    now = backend.clock.now()
    return [Timer(slugid(), now + wait, **{"since": now, **more}) for _ in range(count)]


Pairs = Sequence[tuple[TimerRow, Timer]]


def take(store: TimerStore, found: Pairs) -> list[tuple[TimerRow, TimerRow]]:
    return [pair for pairs in store.take(found) for pair in pairs]


def due(storage: Storage) -> set[Timer]:
    return {row.timer for row in storage.timers.due(1000)}


def test_any_process_finds_a_timer_as_it_was_inserted_when_it_is_due(
    storage: Storage, other: Storage, backend: Backend
) -> None:
    of_group = timers(backend, task_group_id=slugid())
    stored = [*timers(backend), *of_group, *timers(backend, HOUR, since=None)]
    assert [row.timer for row in storage.timers.put(stored)] == stored
    for passed, found in ((14, 0), (15, 2), (3600, 2), (3601, 3)):  # who inserted the last has a second
        backend.clock.advance(stored[0].due + (passed - 15) * SECOND - backend.clock.now())
        for each in (storage, other):
            assert due(each) == {*stored[:found]}


def test_timers_of_a_bucket_share_operations(table: Table, backend: Backend) -> None:
    calls = CallRecorder()
    store = TimerStore(intercept_port(table, calls), backend.clock)
    rows = store.put(timers(backend, count=150) + timers(backend, HOUR))
    backend.clock.advance(15 * SECOND)
    found = store.due(1000)
    taken = take(store, [(row, row.timer) for row in found])
    store.remove([new for _, new in taken] + rows[150:])
    names = [name for name in calls.names if name != "now"]
    assert names == ["batch", "batch", "put", "page", *["batch"] * 3, *["batch"] * 2, "delete"]
    assert table.page([], "", 10).rows == []


def test_only_one_process_takes_a_row(storage: Storage, other: Storage, backend: Backend) -> None:
    """Another leaves its whole batch out, and finds the rest of it at its next look."""
    storage.timers.put(timers(backend, count=3))
    backend.clock.advance(15 * SECOND)
    found = other.timers.due(9)
    first, *rest = taken = [(row, replace(row.timer, due=row.timer.due + HOUR)) for row in found]
    ((_, own),) = take(storage.timers, [first])
    assert take(other.timers, taken) == []
    assert other.timers.due(9) == found[1:]
    assert [old for old, _ in take(other.timers, rest)] == found[1:]
    storage.timers.remove([own, *found])
    backend.clock.advance(HOUR)
    assert due(storage) == {timer for _, timer in rest}


def test_a_copy_of_a_store_that_a_fork_makes_names_its_rows_otherwise(table: Table, backend: Backend) -> None:
    before = TimerStore(table, backend.clock)
    of_one = timers(backend)
    rows = [row for store in (before, copy.copy(before)) for row in store.put(of_one)]
    assert len({row.partition.partition("-")[2] for row in rows}) == 2


def test_rows_of_which_another_process_has_taken_one_are_removed_by_halves(
    table: Table, backend: Backend
) -> None:
    calls = CallRecorder()
    store = TimerStore(intercept_port(table, calls), backend.clock)
    rows = store.put(timers(backend, count=64))
    store.remove(rows[:1])
    calls.names.clear()
    store.remove(rows)
    assert len(calls.names) <= 13  # of 64, 32, 16, 8, 4, 2 and 1, and the other half of each
    assert table.page([], "", 10).rows == []


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("no-task.0", {"taskGroupId": ""}),
        (f"{TASK_ID}.0", {}),
        (f"{TASK_ID}.0", {"taskGroupId": "no group"}),
        (f"{TASK_ID}.0", {"taskGroupId": "", "since": "yesterday"}),
        (f"{TASK_ID}.0", {"taskGroupId": "", "due": 1}),
        (f"{TASK_ID}.{'x' * 470}", {}),
    ],
)
def test_an_unreadable_row_is_set_aside_and_not_read_again(
    storage: Storage, other: Storage, table: Table, backend: Backend, key: str, values: Mapping[str, Value]
) -> None:
    good = storage.timers.put(timers(backend))
    times = {"inserted": backend.clock.now(), "due": backend.clock.now()}
    table.insert("0000000001-another", key, {**times, **values})
    backend.clock.advance(15 * SECOND)
    with capture_logs() as logs:
        for each in (storage, other, storage):
            assert due(each) == {row.timer for row in good}
    assert [entry["event"] for entry in logs] == ["row-corrupt"]
    (aside,) = table.page([Condition(PARTITION, "eq", "unreadable")], "", 10).rows
    assert str(aside.values["was"]).startswith(f"0000000001-another/{key} {{")
    assert len(table.page([], "", 10).rows) == 2
