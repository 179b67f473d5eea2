"""The server that settings make. What it answers is tested in tests/http; nothing is sent to storage here."""

from dataclasses import replace

import pytest

from legacy_queue.adapters.azure import AzureStorage
from legacy_queue.adapters.memory import MemoryStorage
from legacy_queue.config import Settings, SettingsError
from legacy_queue.domain.credentials import Client
from legacy_queue.wiring import build

SETTINGS = Settings(
    storage="memory",
    clients=(Client("a/client", "an-access-token-of-some-length", ("*",)),),
    signing_secrets=("a-signing-secret-of-some-length",),
)
CONNECTION = (
    "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=UzNDUkVU;EndpointSuffix=core.windows.net"
)
AZURE = replace(SETTINGS, storage="azure", connection_string=CONNECTION)


def test_memory_is_polled_somewhere_else_than_at_the_server() -> None:
    storage = build(SETTINGS, "http://h:1").storage
    assert isinstance(storage, MemoryStorage)
    assert storage.endpoints["queue"] == "http://h:1/azure/memorystore1"


def test_memory_is_polled_somewhere_else_than_the_operator_says() -> None:
    storage = build(replace(SETTINGS, public_queue_url="https://poll.example.com"), "http://h:1").storage
    assert storage.endpoints["queue"] == "https://poll.example.com/memorystore1"


def test_an_account_is_not_used() -> None:
    storage = build(AZURE, "http://h:1").storage
    assert isinstance(storage, AzureStorage)
    assert "acc.queue.core.windows.net" in (storage.endpoints["queue"] or "")


def test_only_memory_is_answered_for_by_the_server_itself() -> None:
    rules = {
        name: [rule.rule for rule in build(settings, "http://h:1").app.url_map.iter_rules()]
        for name, settings in {"memory": SETTINGS, "azure": AZURE}.items()
    }
    assert [rule for rule in rules["memory"] if rule.startswith("/azure")]
    assert not [rule for rule in rules["azure"] if rule.startswith("/azure")]


@pytest.mark.parametrize(
    "connection",
    [
        "S3CRET",
        "AccountName=acc",
        "AccountKey=S3CRET;x",
        "AccountKey=S3CRET",
        "QueueEndpoint=https://h/;SharedAccessSignature=sig=S3CRET",
        "=;=",
        ";",
    ],
)
def test_a_connection_string_that_cannot_be_used_is(connection: str) -> None:
    with pytest.raises(SettingsError, match="connection string cannot be used") as error:
        build(replace(AZURE, connection_string=connection), "http://h:1")
    assert "S3CRET" not in str(error.value)
