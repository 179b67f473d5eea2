"""The gateway before a storage that answers signed URLs itself: what it answers is the same."""

import secrets
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from flask import Flask
from werkzeug.test import Client, TestResponse

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.adapters.clock import SystemClock
from legacy_queue.domain.messages import MessageLease
from legacy_queue.gateway.azure_blob_api import azure_blob_api
from legacy_queue.gateway.azure_queue_api import azure_queue_api
from legacy_queue.local_processes.azurite import Azurite
from legacy_queue.ports.account import SigningEndpoint
from legacy_queue.ports.queue import SignedUrls
from legacy_queue.services.upload_slots import UploadSlots
from legacy_queue.stores import Storage
from tests.memory_server import Unobserved

from .conftest import HALF_HOUR, QUEUE

GATEWAY = SigningEndpoint("http://gateway.test/azure/gateway", "gateway", "YSBrZXkgb2YgaXRzIG93bg==")
CLOCK = SystemClock()
BLOCK_ID = "AAAA"


class Gateway:
    def __init__(self, connection_string: str) -> None:
        prefix = f"t{secrets.token_hex(4)}"
        account = AzureAccount(connection_string, prefix, gateway=GATEWAY)
        self.storage = Storage(account, prefix, CLOCK)
        app = Flask("gateway")
        unobserved = Unobserved()
        for api in (
            azure_queue_api(self.storage, CLOCK, unobserved),
            azure_blob_api(account, CLOCK, UploadSlots(), unobserved),
        ):
            app.register_blueprint(api, url_prefix="/azure")
        self._client = Client(app)

    @property
    def urls(self) -> SignedUrls:
        now = CLOCK.now()
        [signed] = self.storage.work_queues.signed_urls(
            [QUEUE], now - HALF_HOUR, now + HALF_HOUR, timedelta(minutes=5)
        )
        return signed

    def send(self, method: str, url: str, **more: Any) -> TestResponse:
        assert url.startswith(f"{GATEWAY.url}/")
        return self._client.open(url, method=method, **more)


@pytest.fixture
def gateway(azurite: Azurite) -> Gateway:
    gateway = Gateway(azurite.connection_string)
    gateway.storage.account.check()
    return gateway


def delete_url(urls: SignedUrls, lease: MessageLease) -> str:
    url = urls.delete.replace("{{messageId}}", quote(lease.message_id))
    return url.replace("{{popReceipt}}", quote(lease.receipt, safe=""))


def code(answer: TestResponse) -> tuple[int, str | None]:
    return answer.status_code, answer.headers.get("x-ms-error-code")


def test_an_invalid_message_id_is_not_found(gateway: Gateway) -> None:
    answer = gateway.send("DELETE", delete_url(gateway.urls, MessageLease("no.id", "AAAA")))
    assert code(answer) == (404, "MessageNotFound")


def test_a_blob_is_written_in_blocks_and_read(gateway: Gateway) -> None:
    blobs, until = gateway.storage.blobs, CLOCK.now() + HALF_HOUR
    url = blobs.upload_url("a/blob", until)
    assert code(gateway.send("PUT", f"{url}&comp=block&blockid={BLOCK_ID}", data=b"bytes")) == (201, None)
    for block_id, expected in (("BBBB", (400, "InvalidBlockList")), (BLOCK_ID, (201, None))):
        blocks = f"<BlockList><Latest>{block_id}</Latest></BlockList>".encode()
        assert code(gateway.send("PUT", f"{url}&comp=blocklist", data=blocks)) == expected
    answer = gateway.send("GET", blobs.download_url("a/blob", until))
    assert (answer.status_code, answer.get_data()) == (200, b"bytes")
    new = {"x-ms-blob-type": "BlockBlob", "If-None-Match": "*"}
    assert code(gateway.send("PUT", url, data=b"other", headers=new)) == (409, "BlobAlreadyExists")


def test_unreachable_storage_is_answered_as_busy(azurite: Azurite) -> None:
    away = azurite.connection_string.replace("127.0.0.1:", "127.0.0.2:")
    assert away != azurite.connection_string
    gateway = Gateway(away)
    answer = gateway.send(
        "PUT",
        gateway.storage.blobs.upload_url("b", CLOCK.now() + HALF_HOUR),
        data=b"x",
        headers={"x-ms-blob-type": "BlockBlob"},
    )
    assert code(answer) == (503, "ServerBusy")
    assert answer.headers["Retry-After"] == "5"
