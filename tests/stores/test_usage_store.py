"""What is on record of callers: one row for each way of calling, which all processes add to."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from legacy_queue.domain.usage_key import HOUR, KEPT, NOT_RECORDED, Calls, UsageKey
from legacy_queue.ports.table import Table
from legacy_queue.stores import Storage, UsageStore
from tests.memory_server import MemoryTable
from tests.services.harness import FaultAt
from tests.services.ports import intercept_port

from .paging import remove_all_expired
from .test_costs import cost

THEN = datetime(2030, 1, 2, 3, tzinfo=UTC)
LAST = THEN + timedelta(milliseconds=12_345)
BARE = UsageKey("provisioner", "type", "claimTask", "group/worker", ("messageId", "receipt", "signature"))
# each differs from BARE in one field
USES = [
    BARE,
    replace(BARE, missing=()),
    replace(BARE, missing=("signature",)),
    replace(BARE, caller="group/Worker"),
    replace(BARE, caller="a/clientId with ' / \\ # ? and %"),
    replace(BARE, method="claimWork", missing=()),
    replace(BARE, worker_type="another"),
    replace(BARE, provisioner_id="another"),
]


ONCE = Calls(1, THEN, LAST)


def add(storage: Storage, counted: Mapping[UsageKey, Calls]) -> None:
    written = [use for batch in storage.usage.add(counted) for use in batch]
    assert sorted(written, key=str) == sorted(counted, key=str)


def since(
    storage: Storage,
    time: datetime = THEN,
    provisioner_id: str | None = None,
    worker_type: str | None = None,
) -> dict[UsageKey, Calls]:
    rows = storage.usage.since(time, provisioner_id, worker_type)
    assert len(rows) == len(dict(rows))
    return dict(rows)


def test_another_process_reads_the_calls(storage: Storage, other: Storage) -> None:
    counted = {use: Calls(number, THEN, LAST) for number, use in enumerate(USES)}
    add(storage, counted)
    assert since(other) == counted


def test_nothing_is_on_record_at_first(storage: Storage) -> None:
    add(storage, {})
    assert since(storage) == {}


def test_all_processes_add_to_the_same_row(storage: Storage, other: Storage) -> None:
    add(storage, {BARE: Calls(2, THEN + HOUR, LAST + HOUR)})
    add(other, {BARE: Calls(3, THEN, LAST), USES[1]: ONCE})
    assert since(storage) == {BARE: Calls(5, THEN, LAST + HOUR), USES[1]: ONCE}


def test_a_count_goes_no_higher_than_32_bits(storage: Storage) -> None:
    for _ in range(2):
        add(storage, {BARE: Calls(2**31 - 2, THEN, LAST)})
    assert since(storage)[BARE].count == 2**31 - 1


def test_calls_that_two_processes_write_at_the_same_time_are_all_counted() -> None:
    table = MemoryTable()
    second = UsageStore(table)
    race = FaultAt(0, of="batch", before=lambda: list(second.add({BARE: ONCE})))
    first = UsageStore(intercept_port(Table, table, race))
    assert list(first.add({BARE: ONCE, USES[1]: ONCE})) == [
        sorted([BARE, USES[1]], key=lambda use: use.missing)
    ]
    assert dict(second.since(THEN, None, None)) == {BARE: Calls(2, THEN, LAST), USES[1]: ONCE}


def test_callers_are_found_by_the_time_of_their_last_call(storage: Storage) -> None:
    add(storage, {BARE: ONCE, USES[1]: Calls(1, THEN, LAST + HOUR)})
    assert since(storage, LAST) == {BARE: ONCE, USES[1]: Calls(1, THEN, LAST + HOUR)}
    assert list(since(storage, LAST + HOUR)) == [USES[1]]
    assert since(storage, LAST + 2 * HOUR) == {}


def test_callers_are_found_by_worker_type_with_the_calls_that_are_not_recorded(storage: Storage) -> None:
    uses = [*USES, NOT_RECORDED]
    add(storage, dict.fromkeys(uses, ONCE))
    assert {*since(storage, THEN, "provisioner")} == {*uses[:7], uses[8]}
    assert {*since(storage, THEN, "provisioner", "type")} == {*uses[:6], uses[8]}
    assert {*since(storage, THEN, None, "type")} == {*uses[:6], *uses[7:]}
    assert {*since(storage, THEN, "none")} == {uses[8]}


def test_a_row_expires_ten_days_after_the_last_call(storage: Storage) -> None:
    add(storage, {BARE: ONCE, USES[1]: Calls(1, THEN, LAST + HOUR)})
    for now, kept in ((LAST + KEPT, {*USES[:2]}), (LAST + KEPT + HOUR, {USES[1]})):
        remove_all_expired(storage.expiring["usage"], now, 1)
        assert {*since(storage)} == kept


def test_a_hundred_callers_of_a_worker_type_cost_two_operations(azure: Storage) -> None:
    counted = {replace(BARE, caller=f"group/{number}"): ONCE for number in range(100)}
    assert [cost(azure, lambda: add(azure, counted)) for _ in range(2)] == [2, 2]
    assert len(since(azure)) == 100


def test_more_callers_than_a_batch_takes_are_all_written(storage: Storage) -> None:
    counted = {replace(BARE, caller=f"group/{number}"): ONCE for number in range(250)}
    add(storage, counted)
    assert since(storage) == counted
