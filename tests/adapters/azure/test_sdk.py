"""Conditions are written as the SDK writes them, and times are read in any precision."""

from datetime import UTC, datetime, timedelta

import pytest
from azure.data.tables._serialize import _parameter_filter_substitution
from hypothesis import given
from hypothesis import strategies as st

from legacy_queue.adapters.azure import azure_table
from legacy_queue.ports.table import Condition, Value

times = st.integers(0, 10**14).map(
    lambda number: datetime(1601, 1, 1, tzinfo=UTC) + timedelta(milliseconds=number)
)
text = st.text(st.characters(codec="utf-8"), max_size=40)


@given(
    st.one_of(
        text,
        st.integers(-(2**31), 2**31 - 1).filter(lambda one: one not in (0, 1)),
        st.booleans(),
        st.binary(max_size=20),
        times,
    )
)
def test_conditions_are_sent_as_the_sdk_sends_them(value: Value) -> None:
    theirs = _parameter_filter_substitution({"value": value}, "name ge @value")  # type: ignore[dict-item]
    assert azure_table.odata([Condition("name", "ge", value)]) == theirs


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("2026-01-02T03:04:05Z", 0),
        ("2026-01-02T03:04:05.678Z", 678000),
        ("2026-01-02T03:04:05.1234567Z", 123456),
    ],
)
def test_a_time_is_read_in_any_precision(text: str, microseconds: int) -> None:
    keys = {"PartitionKey": "p", "RowKey": "k", "odata.etag": "e"}
    row = azure_table.row({**keys, "a": text, "a@odata.type": "Edm.DateTime"})
    assert row.values == {"a": datetime(2026, 1, 2, 3, 4, 5, microseconds, tzinfo=UTC)}
