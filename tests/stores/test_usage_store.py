from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from legacy_queue.domain.usage_key import HOUR, KEPT, NOT_RECORDED, Calls, CountedUsage, UsageKey
from legacy_queue.stores import Storage

from .paging import remove_all_expired

ONE, TWO = "one", "two"  # processes
THEN = datetime(2030, 1, 2, 3, tzinfo=UTC)
LAST = THEN + timedelta(milliseconds=12_345)
BARE = UsageKey("provisioner", "type", "claimTask", "group/worker", ("messageId", "receipt", "signature"))
# they differ in one thing each
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


def counted(use: UsageKey = BARE, hour: datetime = THEN, count: int = 1) -> CountedUsage:
    return CountedUsage(hour, use, Calls(count, LAST))


def since(
    storage: Storage,
    hour: datetime = THEN,
    provisioner_id: str | None = None,
    worker_type: str | None = None,
) -> list[CountedUsage]:
    return [*storage.usage.since(hour, provisioner_id, worker_type)]


def same(found: Iterable[CountedUsage], expected: Sequence[CountedUsage]) -> bool:
    """Whether it is just that, in any order."""
    return Counter(found) == Counter(expected)


def test_what_was_put_is_found_by_another_process(storage: Storage, other: Storage) -> None:
    rows = [counted(use) for use in USES]
    storage.usage.put(ONE, rows)
    assert same(since(other), rows)


def test_nothing_is_there_before_something_was_put(storage: Storage) -> None:
    storage.usage.put(ONE, [])
    assert since(storage) == []


def test_what_is_put_again_is_in_the_place_of_what_was(storage: Storage) -> None:
    for count in (1, 5, 3):
        storage.usage.put(ONE, [counted(count=count)])
    assert since(storage) == [counted(count=3)]


def test_processes_and_hours_have_counts_of_their_own(storage: Storage, other: Storage) -> None:
    rows = [counted(hour=THEN + hours * HOUR) for hours in range(3)]
    storage.usage.put(ONE, rows)
    other.usage.put(TWO, rows)
    assert same(since(storage), [*rows, *rows])
    assert same(since(storage, THEN + HOUR), [*rows[1:], *rows[1:]])
    assert since(storage, THEN + 3 * HOUR) == []


def test_a_worker_type_is_looked_for_alone_but_for_what_was_not_recorded(storage: Storage) -> None:
    rows = [counted(use) for use in (*USES, NOT_RECORDED)]
    storage.usage.put(ONE, rows)
    assert same(since(storage, THEN, "provisioner"), [*rows[:7], rows[8]])
    assert same(since(storage, THEN, "provisioner", "type"), [*rows[:6], rows[8]])
    assert same(since(storage, THEN, None, "type"), [*rows[:6], *rows[7:]])
    assert since(storage, THEN, "none") == [rows[8]]


def test_more_than_a_batch_is_put_at_once(storage: Storage) -> None:
    rows = [counted(replace(BARE, caller=f"group/{number}")) for number in range(250)]
    storage.usage.put(ONE, rows)
    assert same(since(storage), rows)


def test_it_is_kept_for_ten_days_after_its_hour(storage: Storage) -> None:
    rows = [counted(), counted(hour=THEN + HOUR)]
    storage.usage.put(ONE, rows)
    for now, kept in ((THEN + HOUR + KEPT, rows), (THEN + HOUR + KEPT + HOUR, rows[1:])):
        remove_all_expired(storage.expiring["usage"], now, 1)
        assert same(since(storage), kept)


def test_a_hundred_rows_of_an_hour_cost_one_operation_and_so_does_a_page(azure: Storage) -> None:
    rows = [
        counted(replace(BARE, caller=f"group/{number}"), THEN + hours * HOUR)
        for number in range(100)
        for hours in range(2)
    ]
    before = azure.account.operations.total()
    azure.usage.put(ONE, rows)
    assert azure.account.operations.total() - before == 2
    assert len(since(azure)) == 200
    assert azure.account.operations.total() - before == 3
