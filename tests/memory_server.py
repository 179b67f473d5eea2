"""Memory storage behind a real HTTP server, and the requests that a worker sends to signed URLs."""

import base64
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

import requests
from flask import Flask
from lxml import etree
from werkzeug.serving import WSGIRequestHandler, make_server

from legacy_queue.adapters.clock import SystemWaiter
from legacy_queue.adapters.embedded import EmbeddedAccount
from legacy_queue.adapters.embedded.database import Database
from legacy_queue.adapters.embedded.embedded_queue import EmbeddedQueue
from legacy_queue.adapters.embedded.embedded_table import EmbeddedTable
from legacy_queue.domain.events import EVER
from legacy_queue.domain.ids import RunKey
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.times import to_milliseconds
from legacy_queue.gateway.azure_blob_api import azure_blob_api
from legacy_queue.gateway.azure_queue_api import azure_queue_api
from legacy_queue.ports import Clock
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.queue import QueuedMessage, QueueNotFound
from legacy_queue.services.artifacts.upload_slots import UploadSlots
from legacy_queue.services.tasks.claims import ClaimProof
from legacy_queue.stores import Blobs, Storage


class FakeClock(Clock):
    """A clock that stands still until a test moves it. By default it starts at the real time."""

    def __init__(self, now: datetime | None = None) -> None:
        self._now = to_milliseconds(now or datetime.now(UTC))
        self._passed = timedelta(days=1)

    def now(self) -> datetime:
        return self._now

    def wall_time(self) -> datetime:
        return self.now()

    def wall_time_of(self, time: datetime) -> datetime:
        return time

    def monotonic(self) -> timedelta:
        return self._passed

    def advance(self, duration: timedelta) -> None:
        self._now += duration
        self._passed += max(timedelta(0), duration)

    def jump(self, duration: timedelta) -> None:
        """Set the clock to another time. No time passes on the monotonic clock."""
        self._now += duration


def memory_storage(
    clock: Clock, queue_url: str = "http://127.0.0.1:1/azure", prefix: str = "q", key: bytes | None = None
) -> Storage:
    """A new storage in memory."""
    return Storage(EmbeddedAccount(None, clock, queue_url, prefix, key=key), prefix, clock)


class MemoryTable(EmbeddedTable):
    """A new table in memory."""

    def __init__(self) -> None:
        super().__init__(Database(None, FakeClock(), SystemWaiter()), "table")


def messages_in(account: StorageAccount, name: str) -> list[QueuedMessage]:
    """All messages of a queue in memory, visible or not, in the order in which they become visible."""
    queue = account.queue(name)
    assert isinstance(queue, EmbeddedQueue)
    try:
        return queue.messages()
    except QueueNotFound:
        return []


def blob_summary(blobs: Blobs, name: str) -> tuple[int, str, str | None] | None:
    """The length, content type and content encoding of a blob. None if there is none."""
    found = blobs.properties(name)
    return (found.length, found.content_type, found.content_encoding) if found else None


class Quiet(WSGIRequestHandler):
    def make_environ(self) -> Any:
        """PATH_INFO is the path as the client sent it, like in the server."""
        return {**super().make_environ(), "PATH_INFO": self.path.partition("?")[0]}

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing, because the request line may have a SAS."""


class NoFaults:
    def cause_fault(self, *_request: Any, has_message: bool = False) -> None: ...


class Unrecorded:
    """A request record that nobody reads."""

    endpoint: str | None = None
    queue: WorkQueue | None = None
    runs: Sequence[RunKey] = ()
    url_expires: str | None = None
    messages: Sequence[QueuedMessage] | None = None
    reason: str | None = None

    def __init__(self, environ: dict[str, Any]) -> None: ...


@contextmanager
def memory_server(
    clock: Clock, queue_prefix: str = "q", key: bytes | None = None, slots: UploadSlots | None = None
) -> Iterator[Storage]:
    """Memory storage. While the context lasts, its signed URLs work on loopback."""
    app = Flask("memory")
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    storage = memory_storage(clock, f"http://127.0.0.1:{server.server_port}/azure", queue_prefix, key)
    for api in (
        azure_queue_api(storage, clock, NoFaults(), Unrecorded, lambda *_: None),
        azure_blob_api(
            storage.account, clock, SystemWaiter(), slots or UploadSlots(), NoFaults(), Unrecorded
        ),
    ):
        app.register_blueprint(api, url_prefix="/azure")
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        yield storage
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True)
class Message:
    """A polled message, with the fields that a worker reads from it."""

    task_id: str
    run_id: int
    signature: str
    lease: MessageLease
    dequeue_count: int = 1

    @classmethod
    def read(cls, received: QueuedMessage) -> "Message":
        text = json.loads(base64.b64decode(received.text, validate=True))
        assert set(text) == {"taskId", "runId", "signature"}
        return cls(text["taskId"], text["runId"], text["signature"], received.lease, received.dequeue_count)

    @property
    def run(self) -> tuple[str, int]:
        return self.task_id, self.run_id

    @property
    def proof(self) -> ClaimProof:
        """The complete proof, which workers of the draft protocol send."""
        return ClaimProof(self.lease.message_id, self.lease.receipt, self.signature)

    @property
    def proof_body(self) -> dict[str, Any]:
        """The proof as properties of a claimTask body."""
        lease = self.lease
        return {"messageId": lease.message_id, "receipt": lease.receipt, "signature": self.signature}

    @property
    def received(self) -> QueuedMessage:
        """The same message in the form in which claimWork receives it."""
        wire = {"taskId": self.task_id, "runId": self.run_id, "signature": self.signature}
        text = base64.b64encode(json.dumps(wire).encode()).decode()
        return QueuedMessage(self.lease, text, EVER, EVER, None, 1)


def messages_of(answer: bytes) -> list[QueuedMessage]:
    """The messages in the answer to a poll."""
    return [
        QueuedMessage(
            MessageLease(message.findtext("MessageId", ""), message.findtext("PopReceipt", "")),
            message.findtext("MessageText", ""),
            parsedate_to_datetime(message.findtext("InsertionTime", "")),
            parsedate_to_datetime(message.findtext("ExpirationTime", "")),
            parsedate_to_datetime(message.findtext("TimeNextVisible", "")),
            int(message.findtext("DequeueCount", "")),
        )
        for message in etree.fromstring(answer)
    ]


def poll(poll_url: str, count: int = 1) -> list[QueuedMessage]:
    """GET the signed poll URL, like a worker."""
    answer = requests.get(f"{poll_url}&numofmessages={count}", timeout=30)
    assert answer.status_code == 200, answer.text
    return messages_of(answer.content)


def delete_url(template: str, lease: MessageLease) -> str:
    """The signed delete URL for a message. The receipt is URI-encoded."""
    return template.replace("{{messageId}}", lease.message_id).replace(
        "{{popReceipt}}", quote(lease.receipt, safe="")
    )
