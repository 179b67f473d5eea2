"""Data written here are read by the SDK, and the other way round."""

import json
import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import ResourceModifiedError
from azure.data.tables import EdmType, EntityProperty, TableClient, TableEntity, UpdateMode
from azure.data.tables._serialize import _add_entity_properties, _parameter_filter_substitution
from azure.storage.queue import QueueClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from legacy_queue.adapters.azure import AzureAccount, azure_table
from legacy_queue.adapters.azure.azure_table import Foreign
from legacy_queue.adapters.azure.rest import QUEUE
from legacy_queue.domain.messages import MessageLease
from legacy_queue.local_processes.azurite import Azurite
from legacy_queue.ports import Changed
from legacy_queue.ports.queue import Queue
from legacy_queue.ports.table import Change, Condition, Row, Table, Value, check_changes

quickly = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])

times = st.integers(0, 10**14).map(
    lambda number: datetime(1601, 1, 1, tzinfo=UTC) + timedelta(milliseconds=number)
)
text = st.text(st.characters(codec="utf-8"), max_size=40)
kinds = (
    text,
    st.integers(-(2**31), 2**31 - 1),
    st.booleans(),
    st.floats(allow_nan=False),
    st.binary(max_size=100),
    times,
)
RESERVED = {"partitionkey", "rowkey", "timestamp", "etag"}
values = st.dictionaries(
    st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,10}", fullmatch=True), st.one_of(kinds), max_size=8
).map(lambda found: {name: value for name, value in found.items() if name.lower() not in RESERVED})
keys = st.text(
    st.characters(codec="utf-8", exclude_characters="/\\#?", exclude_categories=["Cc"]),
    min_size=1,
    max_size=30,
)


@pytest.fixture(scope="module")
def account(azurite: Azurite) -> AzureAccount:
    account = AzureAccount(azurite.connection_string, f"t{secrets.token_hex(4)}")
    account.table("sdk")
    account.check()
    return account


@pytest.fixture(scope="module")
def table(account: AzureAccount) -> Table:
    return account.table("sdk")


@pytest.fixture(scope="module")
def sdk(azurite: Azurite) -> TableClient:
    return TableClient.from_connection_string(azurite.connection_string, "sdk")


@pytest.fixture
def queue(account: AzureAccount) -> Queue:
    queue = account.queue(f"q{secrets.token_hex(8)}")
    queue.create({})
    return queue


@pytest.fixture
def queue_sdk(azurite: Azurite, queue: Queue) -> QueueClient:
    return QueueClient.from_connection_string(
        azurite.connection_string, queue.name, api_version=QUEUE.version
    )


def of_sdk(entity: TableEntity) -> Row:
    """A row as the SDK sees it."""
    values = {name: value for name, value in entity.items() if name not in ("PartitionKey", "RowKey")}
    return Row(entity["PartitionKey"], entity["RowKey"], values, str(entity.metadata["etag"]))


def fresh(key: str) -> str:
    return f"{secrets.token_hex(4)}{key}"


@quickly
@given(partition=keys, key=keys, values=values, merged=values)
def test_the_sdk_reads_rows_written_here(
    table: Table,
    sdk: TableClient,
    partition: str,
    key: str,
    values: dict[str, Value],
    merged: dict[str, Value],
) -> None:
    partition = fresh(partition)
    etag = table.insert(partition, key, values)
    assert of_sdk(sdk.get_entity(partition, key)) == Row(partition, key, values, etag)
    etag = table.merge(partition, key, merged, etag)
    row = of_sdk(sdk.get_entity(partition, key))
    assert row == Row(partition, key, {**values, **merged}, etag) == table.get(partition, key)
    etag = table.put(partition, key, merged)
    assert of_sdk(sdk.get_entity(partition, key)) == Row(partition, key, merged, etag)
    if key.startswith(",") or "'," in key:  # which Azurite's batches take for another row
        return
    (etag,) = table.batch(partition, [Change("put", key, values, None)])
    assert of_sdk(sdk.get_entity(partition, key)) == Row(partition, key, values, etag)
    table.delete(partition, key, etag)
    assert list(sdk.query_entities("PartitionKey eq @p", parameters={"p": partition})) == []


@quickly
@given(partition=keys, key=keys, values=values, merged=values)
def test_rows_written_by_the_sdk_are_read(
    table: Table,
    sdk: TableClient,
    partition: str,
    key: str,
    values: dict[str, Value],
    merged: dict[str, Value],
) -> None:
    partition = fresh(partition)
    names = {"PartitionKey": partition, "RowKey": key}
    etag = sdk.create_entity({**names, **values})["etag"]
    row = Row(partition, key, values, etag)
    assert table.get(partition, key) == row
    assert table.page([Condition("PartitionKey", "eq", partition)], "", 10).rows == [row]
    etag = sdk.update_entity({**names, **merged}, mode=UpdateMode.MERGE)["etag"]
    assert table.get(partition, key) == Row(partition, key, {**values, **merged}, etag)
    table.delete(partition, key, etag)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), 5e-324, 1.7976931348623157e308, 1e22, -0.0])
def test_any_float_is_exchanged_with_the_sdk(table: Table, sdk: TableClient, value: float) -> None:
    partition = fresh("floats")
    table.insert(partition, "lean", {"value": value})
    sdk.create_entity({"PartitionKey": partition, "RowKey": "sdk", "value": value})
    for key in ("lean", "sdk"):
        assert sdk.get_entity(partition, key)["value"] == value
        row = table.get(partition, key)
        assert row
        assert (row.values["value"], type(row.values["value"])) == (value, float)


def test_nan_is_exchanged_with_the_sdk(table: Table, sdk: TableClient) -> None:
    partition = fresh("nan")
    table.insert(partition, "lean", {"value": float("nan")})
    assert str(sdk.get_entity(partition, "lean")["value"]) == "nan"
    row = table.get(partition, "lean")
    assert row
    assert str(row.values["value"]) == "nan"


@given(values)
def test_properties_are_sent_as_the_sdk_sends_them(values: dict[str, Value]) -> None:
    """But for the types of strings, which need none."""
    theirs = _add_entity_properties({"PartitionKey": "p", "RowKey": "k", **values})
    without = {name: value for name, value in theirs.items() if value != "Edm.String" or name in values}
    assert json.loads(azure_table.entity("p", "k", values)) == json.loads(json.dumps(without))


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


def test_conditions_are_joined_as_odata_requires() -> None:
    conditions = [Condition("a", "in", ("x'y", 5)), Condition("b", "lt", -7), Condition("c", "eq", 1.5)]
    assert azure_table.odata(conditions) == "(a eq 'x''y' or a eq 5) and b lt -7 and c eq 1.5"
    assert azure_table.odata([]) == ""


def test_cursors_are_exchanged_with_the_sdk(table: Table, sdk: TableClient) -> None:
    partition = fresh("it's \u00e4")
    conditions = [Condition("PartitionKey", "eq", partition)]
    table.batch(partition, [Change("insert", f"ä{number}", {}) for number in range(6)])
    asked = sdk.query_entities("PartitionKey eq @p", parameters={"p": partition}, results_per_page=2)

    def sdk_page(after: str) -> tuple[list[str], str]:
        pages: Any = asked.by_page(json.loads(after) if after else None)
        return [row["RowKey"] for row in next(pages)], json.dumps(pages.continuation_token)

    first, after = sdk_page("")
    ours = table.page(conditions, "", 2)
    assert json.loads(ours.after or "") == json.loads(after)
    second = table.page(conditions, after, 2)
    third, _ = sdk_page(second.after or "")
    assert first + [row.key for row in second.rows] + third == [f"ä{number}" for number in range(6)]


def test_etags_are_exchanged_with_the_sdk(table: Table, sdk: TableClient) -> None:
    partition = fresh("etags")
    names = {"PartitionKey": partition, "RowKey": "k"}
    first = table.insert(partition, "k", {})

    def merge(number: int, etag: str) -> str:
        condition = MatchConditions.IfNotModified
        entity = {**names, "a": number}
        merged = sdk.update_entity(entity, mode=UpdateMode.MERGE, etag=etag, match_condition=condition)
        return str(merged["etag"])

    second = merge(1, first)
    table.merge(partition, "k", {"a": 2}, second)
    with pytest.raises(ResourceModifiedError):
        merge(3, second)
    with pytest.raises(Changed):
        table.merge(partition, "k", {"a": 3}, second)


def test_a_value_of_an_unsupported_type_is_read_as_foreign(table: Table, sdk: TableClient) -> None:
    partition = fresh("foreign")
    values = {
        "guid": EntityProperty("c9da6455-213d-42c9-9a79-3e9149a57833", EdmType.GUID),
        "large": EntityProperty(2**40, EdmType.INT64),
        "small": EntityProperty(7, EdmType.INT64),
        "number": EntityProperty(7, EdmType.INT32),
        "text": EntityProperty("text", EdmType.STRING),
    }
    sdk.create_entity({"PartitionKey": partition, "RowKey": "k", **values})
    row = table.get(partition, "k")
    assert row
    assert row.values == {
        "guid": Foreign("Edm.Guid", "c9da6455-213d-42c9-9a79-3e9149a57833"),
        "large": Foreign("Edm.Int64", "1099511627776"),
        "small": Foreign("Edm.Int64", "7"),
        "number": 7,
        "text": "text",
    }


@pytest.mark.parametrize(
    ("kind", "text"), [("DateTime", "no time"), ("DateTime", "+12345-01-01T00:00:00Z"), ("Binary", "a")]
)
def test_an_unreadable_value_is_read_as_foreign(kind: str, text: str) -> None:
    """So that one row keeps no caller from the others."""
    properties = {
        "PartitionKey": "p",
        "RowKey": "k",
        "odata.etag": "e",
        "a": text,
        "a@odata.type": f"Edm.{kind}",
    }
    assert azure_table.row(properties).values == {"a": Foreign(f"Edm.{kind}", text)}


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05.678Z", datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)),
        ("2026-01-02T03:04:05.6780000Z", datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)),
        ("2026-01-02T03:04:05.1234567Z", datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)),
        ("2026-01-02T03:04:05", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ],
)
def test_a_time_is_read_in_any_precision(text: str, time: datetime) -> None:
    properties = {
        "PartitionKey": "p",
        "RowKey": "k",
        "odata.etag": "e",
        "a": text,
        "a@odata.type": "Edm.DateTime",
    }
    assert azure_table.row(properties).values == {"a": time}


def test_a_missing_selected_property_is_left_out() -> None:
    properties = {"PartitionKey": "p", "RowKey": "k", "odata.etag": "e", "a": None, "Timestamp": "2026"}
    assert azure_table.row(properties) == Row("p", "k", {}, "e")


@pytest.mark.parametrize("value", [None, ["list"], 2**31, -(2**31) - 1, object()])
def test_a_value_of_an_unsupported_type_is_not_written(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        check_changes("p", [Change("insert", "k", {"value": value})])


TEXTS = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=100)


@quickly
@given(text=TEXTS)
def test_the_sdk_receives_messages_put_here(queue: Queue, queue_sdk: QueueClient, text: str) -> None:
    lease = queue.put(text, timedelta(0), timedelta(hours=1))
    (theirs,) = queue_sdk.peek_messages(max_messages=1)
    assert (theirs.id, theirs.content or "") == (lease.message_id, text)
    (received,) = list(queue_sdk.receive_messages(max_messages=1))
    updated = queue_sdk.update_message(received, content=text[::-1], visibility_timeout=0)
    (ours,) = queue.peek()
    assert (ours.lease.message_id, ours.text) == (lease.message_id, text[::-1])
    queue.delete(MessageLease(updated.id, str(updated.pop_receipt)))


@quickly
@given(text=TEXTS)
def test_messages_put_by_the_sdk_are_received(queue: Queue, queue_sdk: QueueClient, text: str) -> None:
    theirs = queue_sdk.send_message(text, time_to_live=3600)
    (ours,) = queue.receive(1, timedelta(minutes=1))
    assert (ours.lease.message_id, ours.text, ours.dequeue_count) == (theirs.id, text, 1)
    assert (ours.inserted, ours.expires) == (theirs.inserted_on, theirs.expires_on)
    lease = queue.update(ours.lease, text[::-1], timedelta(minutes=1))
    queue_sdk.delete_message(lease.message_id, lease.receipt)
    assert queue.count() == 0
