"""Frequent requests are answered without Azurite's Express application."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from legacy_queue.adapters.azurite import Azurite
from tests.adapters.azurite_patches.queue_calls import message
from tests.adapters.azurite_patches.table_calls import batch, create, entity, keys
from tests.adapters.azurite_patches.wire import Wire, quoted

MARK = Path(__file__).with_name("mark_long_way.js")


@pytest.fixture
def az(tmp_path: Path, azurite_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """A patched Azurite; answers of its Express application have the header ``x-long-way``."""
    monkeypatch.setenv("NODE_OPTIONS", f'--require="{MARK}"')
    with Azurite(tmp_path, azurite_dir) as azurite:
        wire = Wire(azurite.ports)
        yield wire
        wire.close()


def goes_the_long_way(az: Wire) -> bool:
    return "x-long-way" in dict(az.last.headers)


def test_the_frequent_operations_bypass_express_successful_or_refused(az: Wire) -> None:
    az.queue("PUT", "/short")
    assert goes_the_long_way(az)
    create(az, "short")
    for operation in (put, receive, update, delete, insert, get, merge, replace, remove, query, write_batch):
        operation(az)
        assert not goes_the_long_way(az), operation.__name__
        operation(az)  # now there is a conflict, a stale receipt, nothing to receive
        assert not goes_the_long_way(az), operation.__name__


def put(az: Wire) -> None:
    text = message("a &lt; b")
    az.queue(
        "POST",
        "/short/messages",
        "visibilitytimeout=0&messagettl=-1",
        text,
        headers={"x-ms-client-request-id": "x"},
    )


def receive(az: Wire) -> None:
    az.queue("GET", "/short/messages", "numofmessages=1&visibilitytimeout=3000")


def update(az: Wire) -> None:
    az.queue("PUT", "/short/messages/x", f"popreceipt={quoted('a+/=')}&visibilitytimeout=0", message("x"))
    az.queue("PUT", "/short/messages/x", "popreceipt=x&visibilitytimeout=0")


def delete(az: Wire) -> None:
    az.queue("DELETE", "/short/messages/x", "popreceipt=x")


def insert(az: Wire) -> None:
    az.table("POST", "/short", "", entity("p", "it's"), headers={"Prefer": "return-no-content"})


def get(az: Wire) -> None:
    az.table("GET", keys("short", "p", "it's"))


def merge(az: Wire) -> None:
    az.table("PATCH", keys("short", "p", "it's"), "", entity("p", "it's"), headers={"If-Match": 'W/"x"'})


def replace(az: Wire) -> None:
    az.table("PUT", keys("short", "p", "it's"), "", entity("p", "it's"), headers={"If-Match": "*"})


def remove(az: Wire) -> None:
    az.table("DELETE", keys("short", "p", "it's"), headers={"If-Match": "*"})


def query(az: Wire) -> None:
    az.table("GET", "/short()", f"$filter={quoted('''PartitionKey eq 'p' and RowKey ge 'a' ''')}&$top=10")


def write_batch(az: Wire) -> None:
    batch(az, [("POST", "/short", entity("p", "batch"), {})])
