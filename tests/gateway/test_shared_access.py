"""Who can use a signed URL of a queue or a blob. Azure's SDK makes every SAS in these tests."""

import re
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, urlencode

import pytest
import requests
from azure.storage.queue import AccountSasPermissions, ResourceTypes, generate_account_sas

from legacy_queue.adapters.embedded import EmbeddedAccount
from legacy_queue.ports.queue import SignedUrls
from legacy_queue.stores import Storage
from tests.memory_server import FakeClock

from .conftest import BLOB, HALF_HOUR, KEY, KEY_BASE64, NOW, QUEUE_NAME, outcome, sas

SECOND = timedelta(seconds=1)
GRANTED = (200, None)
UNAUTHENTICATED = (403, "AuthenticationFailed")
TAMPERED = {
    ("queue", "sv"): ["", "2015-04-05"],
    ("queue", "st"): ["", "2006-01-02T14:34:04Z"],
    ("queue", "se"): ["", "2006-01-02T15:34:06Z", "2006-02-30T00:00:00Z"],
    ("queue", "sp"): ["", "rp", "raup", "P"],
    ("queue", "spr"): ["", "http", "https,http,"],
    ("queue", "sig"): ["", f"{'A' * 43}=", "é"],
    ("queue", "si"): ["policy"],
    ("queue", "sip"): ["127.0.0.1"],
    ("blob", "sp"): ["rcw"],
    ("blob", "sr"): ["", "c"],
    ("blob", "rscd"): ["", "x"],
    **{("blob", name): ["x"] for name in ("si", "sip", "ses", "snapshot", "rscc", "rsce", "rscl", "rsct")},
}


@pytest.fixture
def signed(storage: Storage, urls: SignedUrls) -> dict[str, str]:
    """The URLs to poll a queue, and to download a blob."""
    storage.blobs.write(BLOB, [b"content"], "text/plain", None)
    return {"queue": urls.poll, "blob": storage.blobs.download_url(BLOB, NOW + HALF_HOUR)}


def get(url: str, query: str) -> tuple[int, str | None]:
    """GET the URL with another query."""
    return outcome(requests.get(f"{url.partition('?')[0]}?{query}", timeout=30))


def granted(storage: Storage, kind: str = "queue", **changes: Any) -> str:
    """A SAS that is valid unless ``changes`` make it invalid."""
    return sas(storage.account, kind, QUEUE_NAME if kind == "queue" else BLOB, NOW, **changes)


@pytest.mark.parametrize(("kind", "name"), TAMPERED)
def test_a_signed_url_in_which_a_field_was_changed_is_refused(
    signed: dict[str, str], kind: str, name: str
) -> None:
    url = signed[kind]
    fields = dict(parse_qsl(url.partition("?")[2]))
    fields.pop("visibilitytimeout", None)
    assert fields["sp"] == {"queue": "p", "blob": "r"}[kind]
    assert get(url, urlencode(fields)) == GRANTED
    for value in TAMPERED[kind, name]:
        assert get(url, urlencode({**fields, name: value})) == UNAUTHENTICATED, value


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("queue", {"queue_name": QUEUE_NAME[:-1] + "1"}),
        ("queue", {"account_name": "devstoreaccount1"}),
        ("queue", {"ip": "127.0.0.1"}),
        ("queue", {"policy_id": "policy"}),
        ("queue", {"expiry": "2007-01-01"}),
        ("queue", {"start": "never"}),
        ("blob", {"container_name": "q-artifactsx"}),
        ("blob", {"content_disposition": "inline"}),
        ("blob", {"content_type": "text/html"}),
        ("blob", {"snapshot": "2006-01-02T15:04:05.0000000Z"}),
        ("blob", {"encryption_scope": "scope"}),
    ],
    ids=str,
)
def test_a_sas_for_another_resource_or_time_is_refused(
    storage: Storage, signed: dict[str, str], kind: str, change: dict[str, Any]
) -> None:
    assert get(signed[kind], granted(storage, kind)) == GRANTED
    assert get(signed[kind], granted(storage, kind, **change)) == UNAUTHENTICATED


def test_a_sas_or_a_path_of_another_account_is_refused(storage: Storage, urls: SignedUrls) -> None:
    account = storage.account.public_queues.account
    kinds = ResourceTypes(object=True, service=True, container=True)
    may = AccountSasPermissions(process=True, read=True)
    of_all = generate_account_sas(account, KEY_BASE64, kinds, may, NOW + HALF_HOUR, protocol="https,http")
    assert get(urls.poll, of_all) == UNAUTHENTICATED
    elsewhere = urls.poll.replace(f"/{account}/", "/devstoreaccount1/")
    assert outcome(requests.get(elsewhere, timeout=30)) == UNAUTHENTICATED


def test_moving_a_line_break_from_one_field_to_another_is_refused(urls: SignedUrls) -> None:
    fields = dict(parse_qsl(urls.poll.partition("?")[2]))
    moved = {**fields, "sp": f"{fields['sp']}\n{fields['st']}", "st": ""}
    assert get(urls.poll, urlencode(moved)) == UNAUTHENTICATED


def test_a_sas_with_another_percent_encoding_is_accepted(urls: SignedUrls) -> None:
    decoded = query = urls.poll.partition("?")[2]
    for character in ":/,=":
        decoded = decoded.replace(quote(character, safe=""), character)
    assert decoded != query
    assert get(urls.poll, decoded) == GRANTED
    encoded = [f"{name}=" + "".join(f"%{ord(one):02x}" for one in value) for name, value in parse_qsl(query)]
    assert get(urls.poll, "&".join(encoded)) == GRANTED


def test_a_sas_is_valid_from_its_start_to_its_expiry(
    storage: Storage, urls: SignedUrls, clock: FakeClock
) -> None:
    clock.advance(timedelta(milliseconds=322))  # to the next whole second, because a SAS counts whole seconds
    now = clock.now()
    token = granted(storage, start=now + SECOND, expiry=now + 3 * SECOND)
    answers = []
    for _ in range(5):
        answers.append(get(urls.poll, token))
        clock.advance(SECOND)
    assert answers == [UNAUTHENTICATED, GRANTED, GRANTED, UNAUTHENTICATED, UNAUTHENTICATED]


def test_the_error_for_a_refused_sas_does_not_say_why(storage: Storage, queue_url: str) -> None:
    wrong = [granted(storage, expiry=NOW - SECOND), granted(storage, ip="127.0.0.1")]
    queries = ["", "sig=x&sig=y", *wrong]
    answers = [requests.get(f"{queue_url}/messages?{query}", timeout=30).text for query in queries]
    assert len({answer.partition("\nRequestId:")[0] for answer in answers}) == 1


@pytest.mark.parametrize(
    ("queue_url", "protocol"),
    [("https://example.com/azure", "https"), ("http://127.0.0.1:1/", "https,http")],
)
def test_a_sas_allows_plain_http_only_if_the_servers_urls_are_plain_http(
    clock: FakeClock, queue_url: str, protocol: str
) -> None:
    account = EmbeddedAccount(None, clock, queue_url, "q", key=KEY)
    for url in (
        account.queue("queue").signed_urls(NOW, NOW + HALF_HOUR, HALF_HOUR).poll,
        account.container.download_url("blob", NOW, NOW + HALF_HOUR),
    ):
        assert parse_qs(url)["spr"] == [protocol]


def test_the_signed_urls_of_a_queue_have_the_form_that_workers_expect(
    urls: SignedUrls, storage: Storage
) -> None:
    """The query is as the SDK writes it, except for the version and the signature."""
    base = f"{storage.account.public_queues.url}/{QUEUE_NAME}/messages"
    texts = urls.poll, urls.delete, granted(storage)
    poll, delete, expected = (re.sub(r"\b(sv|sig)=[^&]+", "", text) for text in texts)
    assert poll == f"{base}?visibilitytimeout=300&{expected}"
    assert delete == f"{base}/{{{{messageId}}}}?popreceipt={{{{popReceipt}}}}&{expected}"
