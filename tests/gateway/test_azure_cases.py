"""Embedded storage answers each case of azure_cases.toml like Azure. Azurite differs where the case says so.

The head of that file explains the parts of a case. Azure's SDK makes the SAS of a case that changes it.
"""

import re
import secrets
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests
from lxml import etree

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.local_processes.azurite import Azurite
from legacy_queue.stores import Storage
from tests.memory_server import FakeClock, memory_server

from .conftest import HALF_HOUR, KEY, KEY_BASE64, sas

Case = Mapping[str, Any]
CASES: list[Case] = tomllib.loads(Path(__file__).with_name("azure_cases.toml").read_text())["case"]
HOUR = timedelta(hours=1)
PLACEHOLDER = re.compile(r"\{(\w+)\}")


@pytest.fixture(scope="module")
def embedded() -> Iterator[tuple[Storage, str]]:
    with memory_server(FakeClock(), "q", KEY) as storage:
        yield storage, KEY_BASE64


@pytest.fixture(scope="module")
def emulated(azurite: Azurite) -> tuple[Storage, str]:
    prefix = f"t{secrets.token_hex(4)}"
    storage = Storage(AzureAccount(azurite.connection_string, prefix), prefix, FakeClock())
    storage.account.check()
    return storage, re.findall("AccountKey=([^;]+)", azurite.connection_string)[0]


@pytest.fixture(scope="module")
def http() -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        yield session


@dataclass(frozen=True)
class Placeholders:
    """The values for the placeholders of a case. Each case has a queue and a blob of its own."""

    storage: Storage
    key: str
    case: Case

    def filled_in(self, text: str) -> str:
        return PLACEHOLDER.sub(lambda found: getattr(self, found[1]), text)

    @cached_property
    def work_queue(self) -> WorkQueue:
        """A queue with one message, or with as many as the case says."""
        queue = WorkQueue("provisioner", secrets.token_hex(4), "highest")
        self.storage.work_queues.signed_urls([queue], self.now, self.now, HOUR)  # this creates the queue
        for _ in range(self.case.get("messages", 1)):
            self.storage.work_queues.put(queue, "dGV4dA==", HOUR, timedelta(0))
        return queue

    @cached_property
    def now(self) -> datetime:
        return datetime.now(UTC)

    @cached_property
    def poll(self) -> str:
        times = self.now - HALF_HOUR, self.now + HALF_HOUR
        [urls] = self.storage.work_queues.signed_urls([self.work_queue], *times, timedelta(minutes=5))
        return urls.poll

    @cached_property
    def queue(self) -> str:
        return self.poll.partition("/messages?")[0]

    @cached_property
    def gone(self) -> str:
        """The signed poll URL of a queue that was removed meanwhile."""
        poll = self.poll
        self.storage.account.queue(self.queue.rpartition("/")[2]).remove()
        return poll

    @cached_property
    def sas(self) -> str:
        """The SAS of the poll URL. If the case changes the SAS, a valid one with these changes."""
        if "sas" not in self.case:
            return self.poll.partition("&")[2]
        changes = dict(self.case["sas"])
        for name in changes.keys() & {"start", "expiry"}:
            changes[name] = self.now + timedelta(seconds=changes[name])
        name = self.queue.rpartition("/")[2]
        kind, name = ("blob", self.blob_name) if "{blob}" in self.case["request"] else ("queue", name)
        return sas(self.storage.account, kind, name, self.now, self.key, **changes)

    @cached_property
    def leases(self) -> list[MessageLease]:
        """The leases of the queue's messages, which one request received."""
        return [each.lease for each in self.storage.work_queues.receive(self.work_queue, 32, HALF_HOUR)]

    @cached_property
    def id(self) -> str:
        return self.leases[0].message_id

    @cached_property
    def receipt(self) -> str:
        return quote(self.leases[0].receipt, safe="")

    @cached_property
    def stale_receipt(self) -> str:
        self.storage.work_queues.hide(self.work_queue, self.leases[0], "dGV4dA==", HALF_HOUR)
        return self.receipt

    @cached_property
    def other_receipt(self) -> str:
        return quote(self.leases[1].receipt, safe="")

    @cached_property
    def blob_name(self) -> str:
        return f"V8mUuZ0mQ3iCPXVpQPHkqg/0/{secrets.token_hex(16)}"

    @cached_property
    def upload(self) -> str:
        return self.storage.blobs.upload_url(self.blob_name, self.now + HALF_HOUR)

    @cached_property
    def download(self) -> str:
        return self.storage.blobs.download_url(self.blob_name, self.now + HALF_HOUR)

    @cached_property
    def blob(self) -> str:
        return self.upload.partition("?")[0]


def send(http: requests.Session, placeholders: Placeholders, asked: Case) -> requests.Response:
    method, url = placeholders.filled_in(asked["request"]).split(" ", 1)
    headers = {name: placeholders.filled_in(text) for name, text in asked.get("headers", {}).items()}
    body = asked.get("body", "").encode() * asked.get("times", 1)
    data = iter([body]) if asked.get("chunked") else body
    return http.request(method, url, data=data, headers=headers, timeout=30, allow_redirects=False)


def seen(answer: requests.Response, wanted: Case) -> dict[str, Any]:
    """The parts of the answer that the case names."""
    headers = {
        name: name in answer.headers if isinstance(value, bool) else answer.headers.get(name)
        for name, value in wanted["answer_headers"].items()
    }
    body = wanted["answer_body"]
    return {
        "status": answer.status_code,
        "code": answer.headers.get("x-ms-error-code", ""),
        "answer_headers": headers,
        "answer_body": body if body in answer.text else answer.text,
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
@pytest.mark.parametrize("target", ["embedded", pytest.param("azurite", marks=pytest.mark.processes)])
def test_embedded_storage_answers_like_azure_and_azurite_like_the_case_says(
    request: pytest.FixtureRequest, http: requests.Session, target: str, case: Case
) -> None:
    storage, key = request.getfixturevalue("embedded" if target == "embedded" else "emulated")
    placeholders = Placeholders(storage, key, case)
    for earlier in case.get("before", []):
        assert send(http, placeholders, earlier).status_code == earlier.get("status", 201), earlier
    answer = send(http, placeholders, case)
    absent: dict[str, Any] = {"status": 0, "code": "", "answer_headers": {}, "answer_body": ""}
    of_azure = {name: case.get(name, value) for name, value in absent.items()}
    if target == "azurite":
        other = case.get("azurite", {})
        headers = of_azure["answer_headers"] | other.get("answer_headers", {})
        of_azurite = of_azure | other | {"answer_headers": headers}
        assert seen(answer, of_azurite) == of_azurite
        return
    assert seen(answer, of_azure) == of_azure
    _check_common(answer)


def _check_common(answer: requests.Response) -> None:
    """Check what each answer of Azure has."""
    sent = answer.request.headers
    for name in ("date", "x-ms-request-id", "x-ms-version"):
        assert answer.headers.get(name), name
    if (version := sent.get("x-ms-version")) and "InvalidHeaderValue" not in answer.text:
        assert answer.headers["x-ms-version"] == version or "api-version=" in str(answer.request.url)
    if answer.status_code < 400 or not answer.content:
        return
    error = etree.fromstring(answer.content)
    assert error.findtext("Code") == answer.headers["x-ms-error-code"]
    sentence, request_id, time = (error.findtext("Message") or "").split("\n")
    assert sentence
    assert request_id == f"RequestId:{answer.headers['x-ms-request-id']}"
    assert re.fullmatch(r"Time:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}Z", time)
