"""An account that is reached with a Microsoft Entra identity: Azurite over https, with --oauth basic."""

import json
import secrets
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs

import pytest
import requests
from azure.core.exceptions import ClientAuthenticationError
from structlog.testing import capture_logs

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.adapters.azure.entra import EntraAccess, Renewed, default_access
from legacy_queue.adapters.clock import SystemClock
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.local_processes.azurite import ACCOUNT
from legacy_queue.ports.account import UnusableStorage
from legacy_queue.ports.table import Change
from legacy_queue.stores import Blobs

from .secure_azurite import SECRET, SecureAzurite, StaticCredential
from .stub import Stub, answer

HOUR = timedelta(hours=1)
NO_TIME = timedelta(0)


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[SecureAzurite]:
    with SecureAzurite(tmp_path_factory.mktemp("secure"), certificate) as running:
        yield running


@pytest.fixture
def account(azurite: SecureAzurite, trusting: ssl.SSLContext) -> AzureAccount:
    account = AzureAccount(azurite.access(StaticCredential()), f"t{secrets.token_hex(4)}", context=trusting)
    account.table("entra")
    account.check()
    return account


def test_rows_messages_and_blobs_are_reached_with_a_token(account: AzureAccount) -> None:
    account.table("entra").batch(secrets.token_hex(4), [Change("put", "k", {})])
    queue = account.queue("entra")
    queue.create({"made": "yes"})
    queue.delete(queue.put("text", NO_TIME))
    account.container.put("name", b"content", "text/plain", None)
    found = account.container.read("name")
    assert found
    assert [*found[1]] == [b"content"]


def test_blob_urls_are_signed_with_a_user_delegation_key(account: AzureAccount, certificate: Path) -> None:
    blobs, expiry = Blobs(account.container, SystemClock()), datetime.now(UTC) + HOUR
    url, verify = blobs.upload_url("name", expiry), str(certificate)
    uploaded = requests.put(
        url, b"content", headers={"x-ms-blob-type": "BlockBlob"}, timeout=30, verify=verify
    )
    assert uploaded.status_code == 201
    before = account.operations.total()
    assert requests.get(blobs.download_url("name", expiry), timeout=30, verify=verify).content == b"content"
    assert account.operations.total() == before, "the key is kept"
    assert requests.get(url, timeout=30, verify=verify).status_code == 403
    assert parse_qs(url)["skoid"] == ["an-object-id"]


def test_an_account_without_delegation_keys_for_queues_is_refused_at_the_start(account: AzureAccount) -> None:
    """Azurite has them for blobs only."""
    with pytest.raises(UnusableStorage, match="must have user delegation keys for queues") as caught:
        account.check_access()
    assert str(account.endpoints["queue"]) in str(caught.value)


FIELDS = {
    "SignedOid": "an-object-id",
    "SignedTid": "a-tenant-id",
    "SignedStart": "2026-11-22T01:02:03Z",
    "SignedExpiry": "2026-11-29T01:02:03Z",
    "SignedService": "q",
    "SignedVersion": "2026-02-06",
    "Value": "bXkta2V5",
}


@pytest.fixture
def keys(serving: ssl.SSLContext) -> Iterator[Stub]:
    """A storage that answers with a user delegation key."""
    fields = "".join(f"<{name}>{value}</{name}>" for name, value in FIELDS.items())
    body = f'<?xml version="1.0"?><UserDelegationKey>{fields}</UserDelegationKey>'
    with Stub(answer(200, body.encode()), context=serving) as stub:
        yield stub


@pytest.fixture
def keyed(keys: Stub, trusting: ssl.SSLContext) -> AzureAccount:
    return AzureAccount(EntraAccess("acct", (keys.url,) * 3, StaticCredential()), "t", context=trusting)


def test_poll_urls_are_signed_with_a_user_delegation_key_of_queues(keyed: AzureAccount, keys: Stub) -> None:
    now = datetime.now(UTC)
    for _ in range(2):
        sas = parse_qs(keyed.queue("lq-queue").signed_urls(now, now + HOUR, HOUR).poll)
    (request,) = keys.heard
    head, _, body = request.decode().partition("\r\n\r\n")
    assert head.startswith("POST /devstoreaccount1/?comp=userdelegationkey&restype=service HTTP/1.1\r\n")
    assert "x-ms-version: 2026-02-06\r\n" in head
    expiry = body.partition("<Expiry>")[2].partition("</Expiry>")[0]
    assert timedelta(days=6) < datetime.fromisoformat(expiry) - now < timedelta(days=7)
    expected = {"skoid": "an-object-id", "sktid": "a-tenant-id", "sks": "q", "skv": "2026-02-06", "sp": "p"}
    assert {name: sas[name][0] for name in expected} == expected
    assert sas["sig"]


class Source:
    """A value that is fetched: its number. It expires after an hour."""

    def __init__(self) -> None:
        self.now, self.fetched, self.fails = 1_000_000.0, 0, False
        self.value = Renewed("value", self._fetch, timedelta(minutes=5), lambda: self.now)

    def _fetch(self) -> tuple[int, float]:
        self.fetched += 1
        if self.fails:
            raise ClientAuthenticationError(f"no value, {SECRET}")
        return self.fetched, self.now + 3600


def test_a_value_that_cannot_be_renewed_serves_until_it_expires() -> None:
    source = Source()
    source.value.get()
    source.fails = True
    source.now += 3400
    with capture_logs() as logs:
        assert [source.value.get() for _ in range(3)] == [1, 1, 1]
        assert source.fetched == 2, "no call waits for a fetch that just failed"
        source.now += 200
        with pytest.raises(ServiceUnavailable, match="no value"):
            source.value.get()
    assert source.fetched == 3
    assert {line["error"] for line in logs} == {"ClientAuthenticationError"}
    assert SECRET not in str(logs)
    source.fails = False
    with pytest.raises(ServiceUnavailable):
        source.value.get()
    source.now += 5
    assert source.value.get() == 4


def test_no_token_is_logged_or_shown(azurite: SecureAzurite, trusting: ssl.SSLContext) -> None:
    account = AzureAccount(azurite.access(StaticCredential(audience="https://other")), "t", context=trusting)
    with capture_logs() as logs, pytest.raises(ServiceUnavailable) as caught:
        account.table("entra").get("p", "k")
    with pytest.raises(ServiceUnavailable):
        account.check()
    shown = [str(logs), repr(account.public_queues), *map(repr, (caught.value, caught.value.__cause__))]
    assert logs
    assert not [text for text in shown if SECRET in text]


def test_the_identity_of_the_machine_is_found_by_azure_identity(
    azurite: SecureAzurite, trusting: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an App Service, whose variables name an endpoint that hands out tokens."""
    token = StaticCredential().get_token()
    body = {"access_token": token.token, "expires_on": str(token.expires_on), "token_type": "Bearer"}
    with Stub(answer(200, json.dumps(body).encode(), "Content-Type: application/json")) as endpoint:
        monkeypatch.setenv("IDENTITY_ENDPOINT", endpoint.url)
        monkeypatch.setenv("IDENTITY_HEADER", "a-secret")
        _, urls, _ = azurite.access(None)
        access = default_access(ACCOUNT, *urls)
        account = AzureAccount(access, f"t{secrets.token_hex(4)}", context=trusting)
        account.table("entra")
        account.check()
        assert account.table("entra").get("p", "k") is None
    (request,) = endpoint.heard
    assert b"resource=https://storage.azure.com " in request
