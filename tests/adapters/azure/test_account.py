"""What only an Azure account has: leases and snapshots of blobs, and a connection string."""

import secrets
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from azure.storage.blob import BlobClient
from structlog.testing import capture_logs

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.local_processes.azurite import Azurite
from tests.domain.sample_tasks import HOUR


def test_a_blob_with_a_lease_and_snapshots_can_be_deleted(azurite: Azurite) -> None:
    """A client with an upload URL can create a lease and snapshots."""
    account = AzureAccount(azurite.connection_string, f"t{secrets.token_hex(4)}")
    account.check()
    account.container.put("name", b"content", "text/plain", None)
    url = account.container.upload_url("name", datetime.now(UTC), datetime.now(UTC) + HOUR)
    with BlobClient.from_blob_url(url, api_version="2021-12-02") as client:
        client.create_snapshot()
        client.acquire_lease(-1)
    account.container.delete("name")
    assert account.container.properties("name") is None


def test_if_the_storage_is_emptied_while_in_use_its_tables_are_created_again_and_the_log_says_so(
    azurite: Azurite,
) -> None:
    """This happens without a check, at the first operation that fails."""
    account, other = (AzureAccount(azurite.connection_string, "emptied") for _ in range(2))
    tables = [one.table("emptied") for one in (account, other)]
    with capture_logs() as logs:
        account.check()
    assert not logs, "at the first start, creating the tables is normal"
    acts: list[Callable[[], object]] = [
        lambda: account.table("emptied").insert("p", "k", {}),
        lambda: account.container.put("name", b"content", "text/plain", None),
    ]
    for act in acts:
        other.empty()
        with capture_logs() as logs, pytest.raises(ServiceUnavailable):
            act()
        act()
        tables[0].get("p", "k")
        [line] = logs
        assert (line["event"], line["log_level"]) == ("storage-emptied", "error")
        assert line["missing"] == ["emptied-artifacts", "emptied"]
    assert account.warning().startswith("The storage was emptied before 20")


def test_a_connection_string_without_a_key_is_refused() -> None:
    endpoints = "QueueEndpoint=http://q;TableEndpoint=http://t;BlobEndpoint=http://b;"
    for string in ("AccountKey=secret", "AccountName=a", f"{endpoints}SharedAccessSignature=sig=secret"):
        with pytest.raises(ValueError, match=r".") as caught:
            AzureAccount(string, "prefix")
        assert "secret" not in str(caught.value)
