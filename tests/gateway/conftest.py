import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import requests
from azure.storage.blob import generate_blob_sas
from azure.storage.queue import generate_queue_sas

from legacy_queue.domain.priority import WorkQueue
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.queue import SignedUrls
from legacy_queue.stores import Storage
from tests.memory_server import FakeClock, memory_server

NOW = datetime(2006, 1, 2, 15, 4, 5, 678000, tzinfo=UTC)
KEY = b"a key of sixty-four bytes is what Azure has, this one is shorter"
KEY_BASE64 = base64.b64encode(KEY).decode()
HALF_HOUR = timedelta(minutes=30)
QUEUE = WorkQueue("provisioner", "type", "highest")
QUEUE_NAME = QUEUE.name("q")
BLOB = "V8mUuZ0mQ3iCPXVpQPHkqg/0/0cc175b9c0f1b6a831c399e269772661"


def outcome(answer: requests.Response) -> tuple[int, str | None]:
    return answer.status_code, answer.headers.get("x-ms-error-code")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture
def storage(clock: FakeClock) -> Iterator[Storage]:
    with memory_server(clock, "q", KEY) as served:
        yield served


@pytest.fixture
def urls(storage: Storage) -> SignedUrls:
    times = NOW - HALF_HOUR, NOW + HALF_HOUR
    return storage.work_queues.signed_urls([QUEUE], *times, timedelta(minutes=5))[0]


@pytest.fixture
def queue_url(urls: SignedUrls) -> str:
    """``<queue_url>/<account>/<queue>``, without a SAS."""
    return urls.poll.partition("/messages?")[0]


def sas(
    account: StorageAccount, kind: str, name: str, now: datetime, key: str = KEY_BASE64, **changes: Any
) -> str:
    """A SAS made by Azure's SDK for this queue or blob. It is valid unless ``changes`` make it invalid."""
    times = {"start": now - HALF_HOUR, "expiry": now + HALF_HOUR}
    common = {"account_key": key, "protocol": "https,http", **times}
    if kind == "queue":
        own = {"account_name": account.public_queues.account, "queue_name": name, "permission": "p"}
        return generate_queue_sas(**{**common, **own, **changes})
    own = {"container_name": account.container.name, "blob_name": name, "permission": "r"}
    return generate_blob_sas(account_name=account.public_blobs.account, **{**common, **own, **changes})
