"""A queue of Azure Queue Storage."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache
from xml.sax.saxutils import escape

from legacy_queue.adapters.azure.connection import Response
from legacy_queue.adapters.azure.rest import Refusals, Request, RestClient, elements, whole
from legacy_queue.adapters.signing import UrlSigner
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.times import whole_seconds
from legacy_queue.ports.queue import (
    LeaseLost,
    MessageNotFound,
    PopReceiptMismatch,
    Queue,
    QueuedMessage,
    QueueNotFound,
    SignedUrls,
    check_text,
)

_MAX_PEEKED = "32"
_METADATA = "x-ms-meta-"
_NEVER = -1  # a time to live
_NOT_FOUND = {404: QueueNotFound}
_LEASE_LOST: Refusals = {
    **{error.__name__: error for error in (QueueNotFound, MessageNotFound, PopReceiptMismatch)},
    400: LeaseLost,
    404: LeaseLost,  # some of Azurite's refusals have no body and so no code
}
_MESSAGE_ID = re.compile(r"[0-9A-Za-z-]{1,64}")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_XML = {"content-type": "application/xml"}


class _Exists(Exception):
    """The queue exists, with other metadata."""


class AzureQueue(Queue):
    """Each operation is one request, but ``create`` of a new queue, which is two. Cheap to create."""

    def __init__(self, service: RestClient, name: str, signer: UrlSigner) -> None:
        self._service = service
        self._signer = signer
        self.name = name
        self._messages = f"/{name}/messages"

    def create(self, metadata: Mapping[str, str]) -> None:
        headers = {f"{_METADATA}{name}": value for name, value in metadata.items()}
        path = f"/{self.name}"
        change = Request("PUT", path, [("comp", "metadata")], headers, b"")
        while not self._service.find(change, whole):
            with suppress(_Exists):  # another process created it meanwhile
                self._service.send(Request("PUT", path, (), headers, b""), whole, {409: _Exists})
                return

    def metadata(self) -> Mapping[str, str]:
        return self._service.send(self._properties, _metadata, _NOT_FOUND)

    def put(self, text: str, hidden_for: timedelta, time_to_live: timedelta | None = None) -> MessageLease:
        lives = _NEVER if time_to_live is None else max(1, time_to_live // timedelta(seconds=1))
        params = [("messagettl", str(lives)), ("visibilitytimeout", str(whole_seconds(hidden_for)))]
        request = Request("POST", self._messages, params, _XML, _body(text))
        return self._service.send(request, _lease_of_put, _NOT_FOUND)

    def receive(self, count: int, hidden_for: timedelta) -> Sequence[QueuedMessage]:
        params = [("numofmessages", str(count)), ("visibilitytimeout", str(whole_seconds(hidden_for)))]
        request = Request("GET", self._messages, params)
        return self._service.send(request, received_messages, _NOT_FOUND, is_sent_once=True)

    def peek(self) -> Sequence[QueuedMessage]:
        params = [("numofmessages", _MAX_PEEKED), ("peekonly", "true")]
        return self._service.send(Request("GET", self._messages, params), received_messages, _NOT_FOUND)

    def update(self, lease: MessageLease, text: str, hidden_for: timedelta) -> MessageLease:
        params = [("popreceipt", lease.receipt), ("visibilitytimeout", str(whole_seconds(hidden_for)))]
        request = Request("PUT", self._path(lease), params, _XML, _body(text))
        receipt = self._service.send(request, lambda answer: answer.headers["x-ms-popreceipt"], _LEASE_LOST)
        return MessageLease(lease.message_id, receipt)

    def delete(self, lease: MessageLease) -> None:
        request = Request("DELETE", self._path(lease), [("popreceipt", lease.receipt)])
        self._service.send(request, lambda _: None, _LEASE_LOST)

    def count(self) -> int:
        return self._service.send(self._properties, _count, _NOT_FOUND)

    def remove(self) -> None:
        self._service.find(Request("DELETE", f"/{self.name}"), whole)

    def signed_urls(
        self, start: datetime, expiry: datetime, hidden_for: timedelta, caller: str = ""
    ) -> SignedUrls:
        return self._signer.queue_urls(self.name, start, expiry, hidden_for, caller)

    @property
    def _properties(self) -> Request:
        return Request("GET", f"/{self.name}", [("comp", "metadata")])

    def _path(self, lease: MessageLease) -> str:
        # workers supply these: a messageId such as ".." would address another resource
        if not (_MESSAGE_ID.fullmatch(lease.message_id) and lease.receipt.isascii()):
            raise LeaseLost
        return f"{self._messages}/{lease.message_id}"


def listed_queues(service: RestClient, prefix: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The queues with that prefix and their metadata, read page by page."""
    marker = ""
    while True:
        params = [("comp", "list"), ("include", "metadata"), ("marker", marker), ("prefix", prefix)]
        request = Request("GET", "/", [(name, value) for name, value in params if value])
        found = service.send(request, lambda answer: elements(answer, "EnumerationResults"))
        for queue in found.iter("Queue"):
            fields = queue.findall("Metadata/*")
            yield queue.findtext("Name"), {str(field.tag): field.text or "" for field in fields}
        marker = found.findtext("NextMarker")
        if not marker:
            return


def _metadata(response: Response) -> Mapping[str, str]:
    headers = response.headers.items()
    return {name.removeprefix(_METADATA): value for name, value in headers if name.startswith(_METADATA)}


def _count(response: Response) -> int:
    return int(response.headers["x-ms-approximate-messages-count"])


def _body(text: str) -> bytes:
    check_text(text)
    escaped = escape(text, {"\r": "&#13;"})
    return f"<QueueMessage><MessageText>{escaped}</MessageText></QueueMessage>".encode()


def received_messages(response: Response) -> Sequence[QueuedMessage]:
    return [
        QueuedMessage(
            MessageLease(fields["MessageId"], fields.get("PopReceipt", "")),
            fields["MessageText"],
            _time(fields["InsertionTime"]),
            _time(fields["ExpirationTime"]),
            _time(fields["TimeNextVisible"]) if "TimeNextVisible" in fields else None,
            int(fields["DequeueCount"]),
        )
        for fields in message_fields(response)
    ]


def _lease_of_put(response: Response) -> MessageLease:
    (fields,) = message_fields(response)
    return MessageLease(fields["MessageId"], fields["PopReceipt"])


def message_fields(response: Response) -> list[dict[str, str]]:
    """The texts of each message's elements; raises ValueError."""
    messages = elements(response, "QueueMessagesList")
    return [{str(field.tag): field.text or "" for field in message} for message in messages]


@lru_cache(maxsize=1024)  # messages of a batch share most times
def _time(text: str) -> datetime:
    """Parses ``Sun, 22 Nov 2026 01:02:03 GMT``, much faster than a general parser."""
    if text[25:] != " GMT":
        raise ValueError("no HTTP date")
    month = _MONTHS.index(text[8:11]) + 1
    return datetime.fromisoformat(f"{text[12:16]}-{month:02}-{text[5:7]}T{text[17:25]}+00:00")
