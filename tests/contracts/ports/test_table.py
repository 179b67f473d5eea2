"""What a table promises. Source: legacy_queue/ports/table.py."""

import operator
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from legacy_queue.ports import AlreadyExists, Changed, InvalidPosition
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.table import KEY, PARTITION, Change, Condition, Row, Table, Value

TIME = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
VALUES: dict[str, Value] = {
    "text": "it's ünicode \U0001f600 & <more>\r\n\t\x00",
    "empty": "",
    "number": -(2**31),
    "yes": True,
    "no": False,
    "bytes": bytes(range(256)),
    "nothing": b"",
    "time": TIME,
}
KIB = 1024


def keys(rows: Sequence[Row]) -> list[tuple[str, str]]:
    return [(row.partition, row.key) for row in rows]


def all_rows(
    table: Table, conditions: Sequence[Condition] = (), limit: int = 1000, *, newest_first: bool = False
) -> list[Row]:
    rows: list[Row] = []
    after: str | None = ""
    while after is not None:
        page = table.page(conditions, after, limit, newest_first=newest_first)
        assert len(page.rows) <= limit
        rows += page.rows
        after = page.after
    return rows


def fill(table: Table, keys: Mapping[str, Sequence[str]]) -> None:
    for partition, names in keys.items():
        table.batch(partition, [Change("insert", name, {"name": name}) for name in names])


def test_an_inserted_row_is_read_unchanged(table: Table) -> None:
    there = TIME.astimezone(timezone(timedelta(hours=5)))
    etag = table.insert("partition", "key", {**VALUES, "time": there})
    row = table.get("partition", "key")
    assert row
    assert row == Row("partition", "key", VALUES, etag)
    assert {name: type(value) for name, value in row.values.items()} == {
        name: type(value) for name, value in VALUES.items()
    }


@pytest.mark.parametrize(
    "key",
    ["a'b''c", "ä\U0001f600\N{CJK UNIFIED IDEOGRAPH-4E2D}", "a b", "100%", "%2F", "a+b&c=d;e,f", "k" * 512],
)
def test_a_key_can_have_unusual_characters(table: Table, key: str) -> None:
    table.insert(key, key, {"a": 1})
    etag = table.merge(key, key, {"b": 2})
    assert table.get(key, key) == Row(key, key, {"a": 1, "b": 2}, etag)
    assert keys(all_rows(table, [Condition(PARTITION, "eq", key), Condition(KEY, "eq", key)])) == [(key, key)]
    assert keys(all_rows(table)) == [(key, key)]
    table.delete(key, key, etag)
    assert table.get(key, key) is None


@pytest.mark.parametrize("key", ["", "k" * 513, "a/b", "a\\b", "a#b", "a?b", "\x00", "\x7f", "\x85", "\n"])
def test_a_key_that_is_too_long_or_has_forbidden_characters_is_refused(table: Table, key: str) -> None:
    for partition, name in ((key, "k"), ("p", key)):
        for act in (table.insert, table.put):
            with pytest.raises(ValueError, match="key"):
                act(partition, name, {})
        with pytest.raises(ValueError, match="key"):
            table.batch(partition, [Change("insert", name, {})])


def test_a_value_can_have_up_to_64_kib_and_a_row_up_to_1_mib(table: Table) -> None:
    largest: dict[str, Value] = {f"v{number}": b"." * (64 * KIB) for number in range(14)}
    largest |= {f"t{number}": "x" * (32 * KIB) for number in range(2)}
    table.insert("p", "k", largest)
    row = table.get("p", "k")
    assert row
    assert row.values == largest
    one: dict[str, Value] = {"one": b"."}
    for values in ({"v": b"." * (64 * KIB + 1)}, {"t": "x" * (32 * KIB + 1)}, largest | one):
        with pytest.raises(ValueError, match=r"up to 1 MiB|more than 64 KiB"):
            table.insert("p", "larger", values)
    assert keys(all_rows(table)) == [("p", "k")]


def test_a_merge_keeps_the_properties_that_it_does_not_name_and_never_creates_a_row(table: Table) -> None:
    first = table.insert("p", "k", {"a": 1, "b": 1})
    second = table.merge("p", "k", {"b": 2, "c": "new"}, first)
    assert first != second
    assert table.get("p", "k") == Row("p", "k", {"a": 1, "b": 2, "c": "new"}, second)
    table.delete("p", "k")
    for version in (second, None):
        with pytest.raises(Changed):
            table.merge("p", "k", {"a": 2}, version)
        assert table.get("p", "k") is None


@pytest.mark.parametrize("change", ["insert", "merge"])
def test_only_one_of_many_concurrent_inserts_or_merges_of_a_version_succeeds(
    table: Table, other: StorageAccount, table_name: str, change: str
) -> None:
    etag = table.insert("p", "k", {"number": -1}) if change == "merge" else None

    def write(number: int) -> str | None:
        one, values = other.table(table_name) if number % 2 else table, {"number": number}
        try:
            return one.merge("p", "k", values, etag) if etag else one.insert("p", "k", values)
        except (AlreadyExists, Changed):
            return None

    with ThreadPoolExecutor(8) as threads:
        etags = list(threads.map(write, range(16)))
    (done,) = filter(None, etags)
    assert table.get("p", "k") == Row("p", "k", {"number": etags.index(done)}, done)


def test_a_delete_can_be_repeated_but_does_not_delete_another_version(table: Table) -> None:
    stale = table.insert("p", "k", {"a": 1})
    etag = table.put("p", "k", {"a": 2})
    with pytest.raises(Changed):
        table.delete("p", "k", stale)
    assert table.get("p", "k") == Row("p", "k", {"a": 2}, etag)
    for version in (etag, etag, None):
        table.delete("p", "k", version)
        assert table.get("p", "k") is None


def test_a_batch_makes_all_its_changes(table: Table) -> None:
    fill(table, {"p": ["merged", "put", "any", "deleted", "deleted too"]})
    merged = table.get("p", "merged")
    assert merged
    etags = table.batch(
        "p",
        [
            Change("insert", "it's new", VALUES),
            Change("put", "put", {"a": 2}),
            Change("put", "not there", {"a": 3}),
            Change("merge", "merged", {"a": 4}, merged.etag),
            Change("merge", "any", {"a": 5}),
            Change("delete", "deleted", {}),
            Change("delete", "deleted too", {}, None),
        ],
    )
    rows = [
        Row("p", "any", {"name": "any", "a": 5}, etags[4]),
        Row("p", "it's new", VALUES, etags[0]),
        Row("p", "merged", {"name": "merged", "a": 4}, etags[3]),
        Row("p", "not there", {"a": 3}, etags[2]),
        Row("p", "put", {"a": 2}, etags[1]),
    ]
    assert all(etags[:5])
    assert list(etags[5:]) == ["", ""]
    assert all_rows(table) == rows


@pytest.mark.parametrize(
    "change",
    [
        Change("insert", "there", {}),
        Change("merge", "gone", {}),
        Change("merge", "there", {}, "stale"),
        Change("delete", "gone", {}),
        Change("delete", "there", {}, "stale"),
    ],
)
def test_a_batch_with_an_impossible_change_changes_nothing(table: Table, change: Change) -> None:
    stale = table.insert("p", "there", {"a": 1})
    fill(table, {"p": ["second", "third"]})
    table.put("p", "there", {"a": 2})
    before = all_rows(table)
    others = [Change("insert", "new", {}), Change("merge", "second", {"a": 3}), Change("delete", "third", {})]
    if change.etag:
        change = Change(change.kind, change.key, change.values, stale)
    with pytest.raises(Changed):
        table.batch("p", [*others, change])
    assert all_rows(table) == before


def test_a_batch_can_have_1_to_100_changes_of_different_rows_and_4_mib(table: Table) -> None:
    values: dict[str, Value] = dict.fromkeys(("a", "b"), "x" * (19 * KIB))  # together almost 4 MiB
    changes = [Change("insert", f"{number:03}", values) for number in range(100)]
    assert len(table.batch("p", changes)) == 100
    assert [row.values for row in all_rows(table)] == [values] * 100
    for wrong in ([], [*changes, Change("put", "100", {})], [changes[0], Change("delete", "000", {})]):
        with pytest.raises(ValueError, match="batch"):
            table.batch("p", wrong)


def test_rows_are_listed_in_the_order_of_partition_and_key(table: Table) -> None:
    names = ["!", "0", "10", "2", "A", "B", "_", "a", "b", "~", "ä", "\N{CJK UNIFIED IDEOGRAPH-4E2D}"]
    for partition in reversed(names):
        fill(table, {partition: names[::-1]})
    expected = [(partition, key) for partition in names for key in names]
    assert keys(all_rows(table)) == expected
    assert keys(all_rows(table, limit=5)) == expected
    assert keys(all_rows(table, [Condition(PARTITION, "eq", "a")], limit=2)) == [("a", key) for key in names]


@pytest.mark.parametrize("limit", [2, 100])
@pytest.mark.parametrize("states", [("pending", "failed"), ("pending", "running")])
def test_the_newest_rows_are_listed_first_if_the_table_knows_their_age(
    table: Table, other: StorageAccount, table_name: str, limit: int, states: tuple[str, str]
) -> None:
    another = other.table(f"{table_name}x")
    other.check()
    inserted = ["c", "a", "e", "b", "d"]
    for number, partition in enumerate(inserted):
        table.insert(partition, "k", {"state": states[number % 2], "number": number})
        another.put(partition, "k", {"state": states[0], "number": number})
    table.merge("c", "k", {"number": 0})
    for condition, chosen in (
        (Condition("state", "in", states), inserted),
        (Condition("state", "eq", states[1]), inserted[1::2]),
        (Condition("number", "lt", 3), inserted[:3]),
    ):
        found = [row.partition for row in all_rows(table, [condition], limit, newest_first=True)]
        assert found == (chosen[::-1] if table.knows_age else sorted(chosen))


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_the_next_page_can_be_read_in_another_process_even_if_rows_were_removed(
    table: Table, other: StorageAccount, table_name: str, limit: int
) -> None:
    fill(table, {"p": ["a", "b'", "c"], "q": ["a", "ä", "c"]})
    tables, found = [table, other.table(table_name)], []
    after: str | None = ""
    while after is not None:
        tables.reverse()
        page = tables[0].page([Condition(KEY, "ge", "b")], after, limit)
        found += keys(page.rows)
        for partition, key in found:  # so the row at which the next page would begin may be gone
            table.delete(partition, key)
        after = page.after
    assert found == [("p", "b'"), ("p", "c"), ("q", "c"), ("q", "ä")]


ORDERED: dict[str, list[Any]] = {
    "text": ["", "a", "a'b", "b", "ä"],
    "number": [-5, 0, 1, 7, 2**31 - 1],
    "time": [TIME, TIME + timedelta(milliseconds=1), TIME + timedelta(days=365)],
}


@pytest.mark.parametrize("name", ORDERED)
def test_conditions_select_rows_by_comparing_their_values(table: Table, name: str) -> None:
    values = ORDERED[name]
    for number, value in enumerate(values):
        table.insert("p", str(number), {name: value})
    table.insert("p", "without", {"other": 1})
    for compares in (operator.lt, operator.le, operator.eq, operator.ge, operator.gt):
        kind: Any = compares.__name__
        for value in values:
            rows = all_rows(table, [Condition(name, kind, value)])
            assert [row.values[name] for row in rows] == [each for each in values if compares(each, value)]


def test_a_condition_can_select_rows_with_any_of_several_values(table: Table) -> None:
    fill(table, {"p": ["a", "b'", "c"], "q": ["a", "d"]})
    wanted = ("b'", "a", "none")
    assert keys(all_rows(table, [Condition("name", "in", wanted)])) == [("p", "a"), ("p", "b'"), ("q", "a")]
    both = [Condition(PARTITION, "eq", "p"), Condition(KEY, "in", wanted)]
    assert keys(all_rows(table, both)) == [("p", "a"), ("p", "b'")]
    for name in ("name", KEY):
        assert all_rows(table, [Condition(name, "in", ())]) == []


def test_a_page_can_have_only_some_of_the_properties(table: Table) -> None:
    etag = table.insert("p", "k", VALUES)
    names = ["text", "number", "bytes", "time", "missing"]
    (row,) = table.page([], "", 10, names).rows
    assert row == Row("p", "k", {name: VALUES[name] for name in names[:-1]}, etag)
    assert table.page([], "", 10, []).rows[0] == Row("p", "k", {}, etag)


_OF_ANOTHER_FORM = (
    *("[]", "{}", "[1.0]", "[true]", "[null]", "[1, 2]", "[ 1]", "1", "NaN", '"[1]"', "[", " "),
    *("[9223372036854775808]", "[1e400]", f"[{'9' * 5000}]", "[" * 3000, '["a"]', '["a","b","c"]', '["a",1]'),
    *('["a","\\ud800"]', '[9223372036854775808,"a","b"]', '{"PartitionKey": 1, "RowKey": "k"}'),
    *('{"PartitionKey": "p"}', '{"PartitionKey": "p", "RowKey": "\\ud800"}'),
    '{"PartitionKey": "p", "RowKey": "k", "x": ""}',
)


def test_a_malformed_position_is_refused(table: Table) -> None:
    for after in _OF_ANOTHER_FORM:
        for conditions in ([], [Condition("expires", "lt", TIME)]):
            for newest_first in (False, True):
                with pytest.raises(InvalidPosition):
                    table.page(conditions, after, 1, newest_first=newest_first)
