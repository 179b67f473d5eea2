"""What a table in memory costs. What it promises is in tests/contracts/ports."""

import pytest

from legacy_queue.adapters.memory.memory_table import MemoryTable
from legacy_queue.ports.table import KEY, PARTITION, Condition

LARGE = [str(number) for number in range(10_001)]


@pytest.fixture(scope="module")
def table() -> MemoryTable:
    """Many rows of the partition ``m``, and one in a partition before and behind it."""
    table = MemoryTable()
    for key in LARGE:
        table.put("m", key, {"state": "done"})
    for partition in ("a", "z"):
        table.put(partition, "key", {"state": "new"})
    return table


def test_a_page_scans_at_most_ten_thousand_rows_and_may_be_empty(table: MemoryTable) -> None:
    wanted = [Condition("state", "eq", "new"), Condition(PARTITION, "ge", "m")]
    first = table.page(wanted, "", 10)
    assert first.rows == []
    assert first.after
    second = table.page(wanted, first.after, 10)
    assert [row.partition for row in second.rows] == ["z"]
    assert second.after is None


@pytest.mark.parametrize(
    "conditions",
    [
        [Condition(PARTITION, "eq", "z")],
        [Condition(PARTITION, "gt", "m")],
        [Condition(PARTITION, "in", ("z", "zz"))],
        [Condition(PARTITION, "eq", "m"), Condition(KEY, "eq", max(LARGE))],
        [Condition(PARTITION, "eq", "m"), Condition(KEY, "in", (max(LARGE), "a"))],
        [Condition(PARTITION, "eq", "m"), Condition(KEY, "ge", max(LARGE)), Condition(KEY, "lt", "~")],
    ],
)
def test_a_page_scans_no_row_outside_its_keys(table: MemoryTable, conditions: list[Condition]) -> None:
    """It would not come to them: there are too many before."""
    assert len(table.page([*conditions, Condition("state", "in", ("new", "done"))], "", 1).rows) == 1
    nothing = table.page([*conditions, Condition("state", "eq", "none")], "", 1)
    assert (nothing.rows, nothing.after) == ([], None)
