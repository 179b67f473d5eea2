"""An account that is used with a Microsoft Entra identity.

Here it is Azurite over https with --oauth basic.
"""

import json
import secrets
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import pytest
import requests
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError
from structlog.testing import capture_logs

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.adapters.azure.access import Access, default_access, delegation_key
from legacy_queue.adapters.azure.transport import Transport
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.messages import MessageLease
from legacy_queue.local_processes.azurite import ACCOUNT
from legacy_queue.ports.account import UnusableStorage
from legacy_queue.ports.table import Change
from legacy_queue.server.local_authority import LocalAuthority

from .secure_azurite import SECRET, SecureAzurite, StaticCredential
from .storage_stub import NO_CONTENT, Stub, answer

HOUR = timedelta(hours=1)
FIELDS = {
    "SignedOid": "an-object-id",
    "SignedTid": "a-tenant-id",
    "SignedStart": "2026-11-22T01:02:03Z",
    "SignedExpiry": "2026-11-29T01:02:03Z",
    "SignedService": "q",
    "SignedVersion": "2026-02-06",
    "Value": "bXkta2V5",
}


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory, authority: LocalAuthority) -> Iterator[SecureAzurite]:
    with SecureAzurite(tmp_path_factory.mktemp("secure"), authority.server) as running:
        yield running


def checked(access: Access, client_context: ssl.SSLContext) -> AzureAccount:
    transport = partial(Transport, context=client_context)
    account = AzureAccount(access, f"t{secrets.token_hex(4)}", transport=transport)
    account.table("entra")
    account.check()
    return account


def account_of(identity: Any, stub: Stub, client_context: ssl.SSLContext) -> AzureAccount:
    access = Access("acct", (stub.url,) * 3, identity)
    return AzureAccount(access, "t", transport=partial(Transport, context=client_context))


@pytest.fixture
def account(azurite: SecureAzurite, client_context: ssl.SSLContext) -> AzureAccount:
    return checked(azurite.access(StaticCredential()), client_context)


@pytest.mark.processes
def test_rows_messages_and_blobs_can_be_used_with_a_token(account: AzureAccount) -> None:
    account.table("entra").batch(secrets.token_hex(4), [Change("put", "k", {})])
    etag = account.table("entra").put("p", "k", {})
    account.table("entra").merge("p", "k", {"a": 1}, etag)
    queue = account.queue("entra")
    queue.create({"made": "yes"})
    queue.delete(queue.put("text", timedelta(0)))
    # Azurite has user delegation keys only for blobs
    with pytest.raises(UnusableStorage, match="must support user delegation keys for queues") as caught:
        account.check_access()
    assert str(account.endpoints["queue"]) in str(caught.value)


def test_blob_urls_are_signed_with_a_user_delegation_key(
    account: AzureAccount, authority: LocalAuthority
) -> None:
    now, verify = datetime.now(UTC), str(authority.certificate)
    url = account.container.upload_url("name", now - HOUR, now + HOUR)
    headers = {"x-ms-blob-type": "BlockBlob"}
    assert requests.put(url, b"content", headers=headers, timeout=30, verify=verify).status_code == 201
    before = account.operations.total()
    download = account.container.download_url("name", now - HOUR, now + HOUR)
    assert requests.get(download, timeout=30, verify=verify).content == b"content"
    assert account.operations.total() == before, "the key is in the cache"
    assert requests.get(url, timeout=30, verify=verify).status_code == 403
    assert parse_qs(url)["skoid"] == ["an-object-id"]


def test_poll_urls_are_signed_with_a_user_delegation_key_for_queues(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    fields = "".join(f"<{name}>{value}</{name}>" for name, value in FIELDS.items())
    body = f"<UserDelegationKey>{fields}</UserDelegationKey>".encode()
    now = datetime.now(UTC)
    with Stub(answer(200, body, "Content-Type: application/xml"), context=server_context) as keys:
        account = account_of(StaticCredential(), keys, client_context)
        for _ in range(2):
            sas = parse_qs(account.queue("lq-queue").signed_urls(now, now + HOUR, HOUR).poll)
        account.close()
    (request,) = keys.heard
    head, _, asked = request.decode().partition("\r\n\r\n")
    assert "comp=userdelegationkey" in head
    assert "x-ms-version: 2026-02-06\r\n" in head
    expiry = asked.partition("<Expiry>")[2].partition("</Expiry>")[0]
    assert timedelta(days=6) < datetime.fromisoformat(expiry) - now < timedelta(days=7)
    expected = {"skoid": "an-object-id", "sktid": "a-tenant-id", "sks": "q", "skv": "2026-02-06", "sp": "p"}
    assert {name: sas[name][0] for name in expected} == expected
    assert sas["sig"]


def refusal(status: int) -> ClientAuthenticationError:
    """The error that azure-identity and the SDK raise for this status."""
    answered = SimpleNamespace(status_code=status, reason="", headers={}, body=lambda: b"{}")
    return ClientAuthenticationError(f"refused, {SECRET}", response=answered)


def test_a_user_delegation_key_that_cannot_be_renewed_is_used_until_it_expires() -> None:
    now, fetched = datetime(2026, 11, 22, tzinfo=UTC), [0]

    def fetch(*_: object) -> int:
        fetched[0] += 1
        if 1 < fetched[0] < 5:
            raise refusal(503)
        return fetched[0]

    key = replace(delegation_key("queue", fetch), now=lambda: now)
    assert key.until(now + HOUR) == 1
    now += timedelta(days=6)
    with capture_logs() as logs:
        assert [key.until(now + HOUR) for _ in range(3)] == [1, 1, 1]
        assert fetched == [2], "after a failed fetch, calls do not try again immediately"
        now += 12 * HOUR
        for _ in range(2):
            with pytest.raises(ServiceUnavailable, match="no user delegation key of queues"):
                key.until(now + HOUR)
    assert fetched == [3]
    assert {line["event"] for line in logs} == {"storage-refused", "storage-access-not-renewed"}
    assert SECRET not in str(logs)
    fetched[0] = 4
    now += timedelta(seconds=5)
    assert key.until(now + HOUR) == 5


class Identity:
    """An identity whose tokens expire after ``life`` seconds.

    If it has an ``error``, it raises this instead.
    """

    def __init__(self, life: int = 0, error: Exception | None = None) -> None:
        self._life, self._error = life, error
        self.asked = 0

    def get_token(self, *_scopes: str, **_options: Any) -> AccessToken:
        self.asked += 1
        if self._error:
            raise self._error
        return AccessToken(SECRET, int(time.time()) + self._life)


@pytest.mark.parametrize(
    "error",
    [refusal(400), refusal(404), ClientAuthenticationError(SECRET), FileNotFoundError(SECRET)],
    ids=["400", "404", "no answer", "no file of the workload"],
)
def test_without_a_token_storage_is_unavailable(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext, error: Exception
) -> None:
    """An answer of Microsoft Entra ID must not be taken for an answer of the storage."""
    identity, lease = Identity(error=error), MessageLease("id", "receipt")
    with Stub(NO_CONTENT, context=server_context) as stub, capture_logs() as logs:
        account = account_of(identity, stub, client_context)
        for act in (
            lambda: account.queue("q").update(lease, "text", HOUR),
            lambda: account.queue("q").put("text", HOUR),
            lambda: account.table("entra").delete("p", "k"),
            lambda: account.container.read("name"),
        ):
            with pytest.raises(ServiceUnavailable, match="no token of Microsoft Entra ID") as caught:
                act()
            assert SECRET not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"
    assert stub.heard == []
    assert [line["event"] for line in logs] == ["storage-access-not-renewed"]
    assert SECRET not in str(logs)
    assert identity.asked == 1, "the identity is asked again only after 5 seconds"


def test_a_token_that_soon_expires_is_not_renewed_for_each_request(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    identity = Identity(life=200)
    with Stub(NO_CONTENT, context=server_context) as stub:
        account = account_of(identity, stub, client_context)
        for _ in range(3):
            account.table("entra").put("p", "k", {})
            account.queue("q").remove()
        account.close()
    assert len(stub.heard) == 6
    assert identity.asked == 1


def test_azure_identity_finds_the_identity_of_the_machine_and_logs_nothing_itself(
    azurite: SecureAzurite,
    client_context: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In an App Service, variables name an endpoint that gives out tokens.

    The test sets the same variables.
    """
    monkeypatch.setenv("IDENTITY_HEADER", "a-secret")
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
    token = StaticCredential().get_token()
    body = {"access_token": token.token, "expires_on": str(token.expires_on), "token_type": "Bearer"}
    as_json = "Content-Type: application/json"
    with Stub(answer(400, b'{"message": "said"}', as_json)) as endpoint:
        monkeypatch.setenv("IDENTITY_ENDPOINT", endpoint.url)
        with pytest.raises(ServiceUnavailable):
            AzureAccount(default_access(ACCOUNT, *azurite.access(None).urls), "t").check()
        assert endpoint.heard
    with Stub(answer(200, json.dumps(body).encode(), as_json)) as endpoint:
        monkeypatch.setenv("IDENTITY_ENDPOINT", endpoint.url)
        account = checked(default_access(ACCOUNT, *azurite.access(None).urls), client_context)
        assert account.table("entra").get("p", "none") is None
    (request,) = endpoint.heard
    assert b"resource=https://storage.azure.com " in request
    assert caplog.records == []
