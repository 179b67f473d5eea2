"""Who may use a signed URL. Every SAS here is made by azure-storage-queue."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, urlencode

import pytest
import requests
from azure.storage.queue import (
    AccountSasPermissions,
    QueueSasPermissions,
    ResourceTypes,
    generate_account_sas,
    generate_queue_sas,
)

from legacy_queue.adapters.embedded import EmbeddedAccount
from legacy_queue.ports.queue import SignedUrls
from legacy_queue.stores import Storage
from tests.memory_server import FakeClock

from .conftest import HALF_HOUR, KEY, KEY_BASE64, NOW, QUEUE_NAME

FIELDS = ("sv", "st", "se", "sp", "spr", "sig")
SECOND = timedelta(seconds=1)
PROCESS = QueueSasPermissions(process=True)

Answer = tuple[int, str | None]
GRANTED: Answer = (200, None)
UNAUTHENTICATED: Answer = (403, "AuthenticationFailed")
Get = Callable[[str], Answer]


@pytest.fixture
def get(queue_url: str) -> Get:
    """GET messages with that query."""

    def answer(query: str) -> Answer:
        response = requests.get(f"{queue_url}/messages?{query}", timeout=30)
        return response.status_code, response.headers.get("x-ms-error-code")

    return answer


@pytest.fixture
def fields(urls: SignedUrls) -> dict[str, str]:
    """The decoded SAS of the poll URL."""
    decoded = dict(parse_qsl(urls.poll.partition("?")[2]))
    assert decoded.pop("visibilitytimeout") == "300"
    return decoded


def sas(storage: Storage, **changes: Any) -> str:
    """A queue SAS that is granted, but for what is changed."""
    arguments = {
        "account_name": storage.account.public_queues.account,
        "queue_name": QUEUE_NAME,
        "account_key": KEY_BASE64,
        "permission": PROCESS,
        "start": NOW - HALF_HOUR,
        "expiry": NOW + HALF_HOUR,
        "protocol": "https,http",
    }
    return generate_queue_sas(**{**arguments, **changes})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sv", "2015-04-05"),
        ("st", "2006-01-02T14:34:04Z"),
        ("se", "2006-01-02T15:34:06Z"),
        ("se", "2006-02-30T00:00:00Z"),
        ("sp", "rp"),
        ("sp", "raup"),
        ("sp", "P"),
        ("spr", "http"),
        ("spr", "https,http,"),
        ("sig", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
        ("sig", "é"),
        ("si", "policy"),
        ("sip", "127.0.0.1"),
        *((name, "") for name in FIELDS),
    ],
)
def test_a_tampered_field_is_refused(fields: dict[str, str], get: Get, name: str, value: str) -> None:
    assert get(urlencode({**fields, name: value})) == UNAUTHENTICATED


@pytest.mark.parametrize("name", FIELDS)
def test_a_doubled_field_is_refused(fields: dict[str, str], get: Get, name: str) -> None:
    assert get(f"{urlencode(fields)}&{urlencode({name: fields[name]})}") == UNAUTHENTICATED
    assert get(f"{urlencode({name: ''})}&{urlencode(fields)}") == UNAUTHENTICATED


def test_a_line_break_moved_between_fields_is_refused(fields: dict[str, str], get: Get) -> None:
    moved = {**fields, "sp": f"{fields['sp']}\n{fields['st']}", "st": ""}
    assert get(urlencode(moved)) == UNAUTHENTICATED


def test_a_sas_with_other_percent_encoding_is_granted(urls: SignedUrls, get: Get) -> None:
    query = urls.poll.partition("?")[2]
    decoded = query
    for character in ":/,=":
        decoded = decoded.replace(quote(character, safe=""), character)
    assert decoded != query
    assert get(decoded) == GRANTED
    encoded = [
        f"{name}=" + "".join(f"%{ord(character):02x}" for character in value)
        for name, value in parse_qsl(query)
    ]
    assert get("&".join(encoded)) == GRANTED


def test_a_sas_begins_at_its_start_and_ends_at_its_expiry(
    storage: Storage, clock: FakeClock, get: Get
) -> None:
    clock.advance(timedelta(milliseconds=322))  # to a whole second, which is how a SAS counts
    now = clock.now()
    token = sas(storage, start=now + SECOND, expiry=now + 3 * SECOND)
    answers = []
    for _ in range(5):
        answers.append(get(token))
        clock.advance(SECOND)
    assert answers == [UNAUTHENTICATED, GRANTED, GRANTED, UNAUTHENTICATED, UNAUTHENTICATED]


@pytest.mark.parametrize(
    "change",
    [
        {"queue_name": f"{QUEUE_NAME}x"},
        {"queue_name": QUEUE_NAME[:-1] + "1"},
        {"account_name": "devstoreaccount1"},
        {"account_key": "AAAA"},
        {"ip": "127.0.0.1"},
        {"policy_id": "policy"},
        {"expiry": "2007-01-01"},
        {"start": "never"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_sas_with_another_resource_key_or_time_is_refused(
    storage: Storage, get: Get, change: dict[str, Any]
) -> None:
    assert get(sas(storage, **change)) == UNAUTHENTICATED


def test_a_sas_of_the_whole_account_is_refused(storage: Storage, get: Get) -> None:
    token = generate_account_sas(
        storage.account.public_queues.account,
        KEY_BASE64,
        ResourceTypes(object=True, service=True, container=True),
        AccountSasPermissions(process=True, read=True),
        NOW + HALF_HOUR,
        protocol="https,http",
    )
    assert get(token) == UNAUTHENTICATED


def test_another_account_in_the_path_is_refused(storage: Storage, urls: SignedUrls) -> None:
    url = urls.poll.replace(f"/{storage.account.public_queues.account}/", "/devstoreaccount1/")
    answer = requests.get(url, timeout=30)
    assert (answer.status_code, answer.headers["x-ms-error-code"]) == UNAUTHENTICATED


def test_a_refusal_does_not_say_why(storage: Storage, queue_url: str) -> None:
    queries = ["", "sig=x", sas(storage, expiry=NOW - SECOND), sas(storage, ip="127.0.0.1"), "sig=x&sig=y"]
    answers = [requests.get(f"{queue_url}/messages?{query}", timeout=30).text for query in queries]
    bodies = {answer.partition("\nRequestId:")[0] for answer in answers}
    assert len(bodies) == 1


@pytest.mark.parametrize(
    ("queue_url", "protocol"),
    [("https://example.com/azure", "https"), ("http://127.0.0.1:1/", "https,http")],
)
def test_plain_http_is_allowed_only_where_the_urls_are_plain_http(
    clock: FakeClock, queue_url: str, protocol: str
) -> None:
    account = EmbeddedAccount(None, clock, queue_url, "q", key=KEY)
    for url in (
        account.queue("queue").signed_urls(NOW, NOW + HALF_HOUR, HALF_HOUR).poll,
        account.container.download_url("blob", NOW, NOW + HALF_HOUR),
    ):
        assert parse_qs(url)["spr"] == [protocol]


def test_the_urls_of_a_queue_are_those_that_workers_expect(urls: SignedUrls, storage: Storage) -> None:
    """All but the version and the signature as the SDK writes it."""
    base = f"{storage.account.public_queues.url}/{QUEUE_NAME}/messages"
    texts = urls.poll, urls.delete, sas(storage)
    poll, delete, expected = (re.sub(r"\b(sv|sig)=[^&]+", "", text) for text in texts)
    assert poll == f"{base}?visibilitytimeout=300&{expected}"
    assert delete == f"{base}/{{{{messageId}}}}?popreceipt={{{{popReceipt}}}}&{expected}"
