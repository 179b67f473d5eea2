"""What only an account of Azure has: costs in operations, and what is missing or away."""

import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.storage.blob import BlobClient

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.local_processes.azurite import Azurite
from legacy_queue.ports.table import PARTITION, Change, Condition

NO_TIME, HOUR = timedelta(0), timedelta(hours=1)


@pytest.fixture
def prefix() -> str:
    return f"t{secrets.token_hex(4)}"


@pytest.fixture
def account(azurite: Azurite, prefix: str) -> AzureAccount:
    account = AzureAccount(azurite.connection_string, prefix)
    account.table(f"{prefix}tasks")
    account.check()
    return account


@pytest.fixture
def blob_url(account: AzureAccount) -> str:
    """That allows everything with the blob ``name``."""
    return account.container.upload_url("name", datetime.now(UTC), datetime.now(UTC) + HOUR)


def cost(account: AzureAccount, act: Callable[[], Any]) -> int:
    before = account.operations.total()
    act()
    return account.operations.total() - before


def test_each_operation_of_a_table_is_one_request(account: AzureAccount, prefix: str) -> None:
    table = account.table(f"{prefix}tasks")
    changes = [Change("put", str(number), {}) for number in range(100)]
    acts: dict[str, Callable[[], Any]] = {
        "insert": lambda: table.insert("p", "k", {}),
        "get": lambda: table.get("p", "k"),
        "get none": lambda: table.get("p", "none"),
        "put": lambda: table.put("p", "k", {}),
        "merge": lambda: table.merge("p", "k", {}),
        "batch": lambda: table.batch("p", changes),
        "page": lambda: table.page([Condition(PARTITION, "eq", "p")], "", 10),
        "delete": lambda: table.delete("p", "k"),
        "delete none": lambda: table.delete("p", "k"),
    }
    assert {name: cost(account, act) for name, act in acts.items()} == dict.fromkeys(acts, 1)
    assert account.operations["table", "PATCH"] == 1
    assert cost(account, lambda: table.page([Condition(PARTITION, "in", ())], "", 10)) == 0


@pytest.mark.parametrize("held", ["lease", "snapshot", "both"])
def test_a_leased_blob_or_one_with_snapshots_is_deleted(
    account: AzureAccount, blob_url: str, held: str
) -> None:
    """An upload URL is enough for that."""
    account.container.put("name", b"content", "text/plain", None)
    with BlobClient.from_blob_url(blob_url, api_version="2021-12-02") as client:
        if held != "lease":
            client.create_snapshot()
        if held != "snapshot":
            client.acquire_lease(-1)
    account.container.delete("name")
    assert account.container.properties("name") is None


def test_an_account_without_its_tables_and_container_is_unavailable(azurite: Azurite) -> None:
    bare = AzureAccount(azurite.connection_string, "bare")
    for act in (
        lambda: bare.table("never").get("p", "k"),
        lambda: bare.container.read("name"),
        lambda: bare.container.put_block("name", "id", b"."),
    ):
        with pytest.raises(ServiceUnavailable):
            act()


@pytest.mark.parametrize(
    "string",
    [
        "",
        "AccountName=acct",
        "AccountName=acct;AccountKey=no base64",
        "QueueEndpoint=http://q;TableEndpoint=http://t;BlobEndpoint=http://b;SharedAccessSignature=sig=secret",
    ],
)
def test_a_connection_string_without_a_key_is_refused(string: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        AzureAccount(string, "prefix")
    assert "secret" not in str(caught.value)
