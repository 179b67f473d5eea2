"""Memory storage behind a real HTTP server, and what a worker does with its signed URLs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import requests
from flask import Flask
from lxml import etree
from werkzeug.serving import WSGIRequestHandler, make_server

from legacy_queue.adapters.memory import MemoryStorage
from legacy_queue.domain.messages import Lease
from legacy_queue.domain.times import to_milliseconds
from legacy_queue.gateway.azure_face import azure_face
from legacy_queue.gateway.blob_face import blob_face
from legacy_queue.ports import Clock
from legacy_queue.services.upload_slots import UploadSlots


class HandClock(Clock):
    """Stands still until it is moved; by default it begins now."""

    def __init__(self, now: datetime | None = None) -> None:
        self._now = to_milliseconds(now or datetime.now(UTC))

    def now(self) -> datetime:
        return self._now

    def advance(self, duration: timedelta) -> None:
        self._now += duration


class _Quiet(WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing: the request line holds a SAS."""


@contextmanager
def memory_server(
    clock: Clock, queue_prefix: str = "q", key: bytes | None = None, slots: UploadSlots | None = None
) -> Iterator[MemoryStorage]:
    """Memory storage whose signed URLs are answered, on loopback, while the context lasts."""
    app = Flask("memory")
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    storage = MemoryStorage(clock, f"http://127.0.0.1:{server.server_port}/azure", queue_prefix, key=key)
    queues = azure_face(storage.work_queues, storage.account, storage.key, clock)
    blobs = blob_face(storage.blobs.container, storage.account, storage.key, clock, slots or UploadSlots())
    for face in (queues, blobs):
        app.register_blueprint(face, url_prefix="/azure")
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        yield storage
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True)
class Received:
    lease: Lease
    text: str
    dequeue_count: int


def poll(poll_url: str, count: int = 1) -> list[Received]:
    """GET the signed poll URL as a worker does."""
    answer = requests.get(f"{poll_url}&numofmessages={count}", timeout=30)
    assert answer.status_code == 200, answer.text
    return [
        Received(
            Lease(message.findtext("MessageId", ""), message.findtext("PopReceipt", "")),
            message.findtext("MessageText", ""),
            int(message.findtext("DequeueCount", "")),
        )
        for message in etree.fromstring(answer.content)
    ]


def delete_url(template: str, lease: Lease) -> str:
    """The signed delete URL with its placeholders filled in, the receipt URI-encoded."""
    return template.replace("{{messageId}}", lease.message_id).replace(
        "{{popReceipt}}", quote(lease.receipt, safe="")
    )


def delete(template: str, lease: Lease) -> int:
    """DELETE the message as a worker does; the status that it gets."""
    return requests.delete(delete_url(template, lease), timeout=30).status_code
