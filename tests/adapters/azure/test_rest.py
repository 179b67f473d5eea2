"""What is sent again, how often, and what a failure or refusal becomes."""

import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from legacy_queue.adapters.azure.azure_queue import AzureQueue
from legacy_queue.adapters.azure.azure_table import AzureTable
from legacy_queue.adapters.azure.connection import Connections, StorageTimeouts
from legacy_queue.adapters.azure.rest import (
    QUEUE,
    TABLE,
    RestClient,
    Service,
    SharedKey,
    StorageRefused,
)
from legacy_queue.adapters.signing import UrlSigner
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.messages import MessageLease
from legacy_queue.local_processes.azurite import ACCOUNT, DEFAULT_KEY
from legacy_queue.ports import AlreadyExists, Changed
from legacy_queue.ports.account import SigningEndpoint
from legacy_queue.ports.queue import LeaseLost, PopReceiptMismatch, QueuedMessage, QueueNotFound
from legacy_queue.ports.table import Change

from .stub import NO_CONTENT, Reply, Stub, answer, hang_up, refused, reset, then_hang_up

SECOND = timedelta(seconds=1)
LEASE = MessageLease("00000000-0000-0000-0000-000000000000", "receipt")
MESSAGES = (
    b"<QueueMessagesList><QueueMessage><MessageId>id</MessageId><PopReceipt>receipt</PopReceipt>"
    b"</QueueMessage></QueueMessagesList>"
)
# Source: Azure's "Get Messages"
MESSAGE = (
    b"\xef\xbb\xbf<?xml version='1.0' encoding='utf-8'?><QueueMessagesList><QueueMessage>"
    b"<MessageId>5974b586-0df3-4e2d-ad0c-18e3892bfca2</MessageId>"
    b"<InsertionTime>Fri, 09 Oct 2009 21:04:30 GMT</InsertionTime>"
    b"<ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime><PopReceipt>YzQ4Yzg1MDIt+/==</PopReceipt>"
    b"<TimeNextVisible>Fri, 09 Oct 2009 23:29:20 GMT</TimeNextVisible><DequeueCount>2</DequeueCount>"
    b"<MessageText>PHRlc3Q&#43;</MessageText></QueueMessage></QueueMessagesList>"
)
NO_MESSAGES = answer(200, b"<?xml version='1.0'?><QueueMessagesList/>")
ROW_BODY = b'{"odata.etag":"e","PartitionKey":"p","RowKey":"k","Timestamp":"2009-10-09T21:04:30.1234567Z"}'
ROW = answer(200, ROW_BODY)


def batched(*statuses: int) -> bytes:
    parts = "".join(
        f"--c\r\nContent-Type: application/http\r\n\r\nHTTP/1.1 {status} Word\r\nETag: e{number}\r\n\r\n\r\n"
        for number, status in enumerate(statuses)
    )
    return answer(
        202, f"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n{parts}--c--\r\n--b--".encode()
    )


class Client:
    """Table and queue of the storage at ``url``, and how long was waited for before each retry."""

    def __init__(self, url: str) -> None:
        self.slept: list[float] = []
        self.counts: Counter[tuple[str, str]] = Counter()
        self.url = url

        def service(kind: Service) -> RestClient:
            connections = Connections(url, StorageTimeouts(60, 60))
            key = SharedKey(ACCOUNT, DEFAULT_KEY)
            return RestClient(kind, connections, key, self.counts, self.slept.append)

        self.tables = service(TABLE)
        self.table = AzureTable(self.tables, url, "tasks")
        signer = UrlSigner(SigningEndpoint(url, ACCOUNT, DEFAULT_KEY))
        self.queue = AzureQueue(service(QUEUE), "claims", signer)


ACTS: dict[str, tuple[Callable[[Client], Any], str, bytes]] = {
    "get": (lambda at: at.table.get("p", "k"), "GET", ROW),
    "insert": (lambda at: at.table.insert("p", "k", {}), "POST", NO_CONTENT),
    "put a row": (lambda at: at.table.put("p", "k", {}), "PUT", NO_CONTENT),
    "merge": (lambda at: at.table.merge("p", "k", {}), "PATCH", NO_CONTENT),
    "delete a row": (lambda at: at.table.delete("p", "k"), "DELETE", NO_CONTENT),
    "batch": (lambda at: at.table.batch("p", [Change("put", "k", {})]), "POST", batched(204)),
    "page": (lambda at: at.table.page([], "", 10), "GET", answer(200, b'{"value":[]}')),
    "put a message": (lambda at: at.queue.put("text", SECOND), "POST", answer(201, MESSAGES)),
    "peek": (lambda at: at.queue.peek(), "GET", NO_MESSAGES),
    "update": (lambda at: at.queue.update(LEASE, "text", SECOND), "PUT", NO_CONTENT),
    "delete a message": (lambda at: at.queue.delete(LEASE), "DELETE", NO_CONTENT),
}
FAILURES: dict[str, Reply] = {
    "closed": hang_up,
    "reset": reset,
    "half an answer": then_hang_up(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "no HTTP": then_hang_up(b"garbage\r\n\r\n"),
    "408": refused(408),
    "429": refused(429),
    "500": refused(500, "InternalError"),
    "503": refused(503, "ServerBusy"),
    "504": answer(504, b"<html>a proxy's</html>"),
}

each_act = pytest.mark.parametrize(("act", "method", "good"), ACTS.values(), ids=ACTS)
each_failure = pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)


@each_act
def test_a_failed_request_is_sent_again_twice(act: Callable[[Client], Any], method: str, good: bytes) -> None:
    with Stub(hang_up, refused(503, "ServerBusy"), good) as stub:
        client = Client(stub.url)
        act(client)
    assert stub.methods == [method] * 3
    assert paused(client, 0.1, 0.2) or paused(client, 0.1, 1)
    (counted,) = client.counts.items()
    assert counted[0][1] == method
    assert counted[1] == 3


@each_failure
def test_after_three_failures_storage_is_unavailable(failure: Reply) -> None:
    with Stub(failure) as stub:
        client = Client(stub.url)
        for act, _, _ in (ACTS["insert"], ACTS["put a message"]):
            with pytest.raises(ServiceUnavailable):
                act(client)
    assert stub.methods == ["POST"] * 6
    assert paused(client, 0.1, 0.2, 0.1, 1)


@each_failure
def test_a_failed_receive_is_not_sent_again(failure: Reply) -> None:
    with Stub(failure, NO_MESSAGES) as stub:
        client = Client(stub.url)
        with pytest.raises(ServiceUnavailable):
            client.queue.receive(32, SECOND)
        assert stub.methods == ["GET"]
        assert client.queue.receive(32, SECOND) == []


def paused(client: Client, *least: float) -> bool:
    """Whether it waited so many seconds before the retries, or up to half as much more."""
    return len(client.slept) == len(least) and all(
        seconds <= slept <= 1.5 * seconds for seconds, slept in zip(least, client.slept, strict=True)
    )


def busy(retry_after: str) -> bytes:
    return answer(503, b"", f"Retry-After: {retry_after}")


@pytest.mark.parametrize(("retry_after", "least"), [("2", 2), ("0", 0.1), ("soon", 0.1)])
def test_a_retry_is_not_sent_before_retry_after(retry_after: str, least: float) -> None:
    with Stub(busy(retry_after), NO_CONTENT) as stub:
        client = Client(stub.url)
        client.table.put("p", "k", {})
    assert paused(client, least)


REFUSED: dict[str, tuple[str, bytes, type[Exception]]] = {
    "an existing row": ("insert", refused(409, "EntityAlreadyExists"), AlreadyExists),
    "a merge of another version": ("merge", refused(412, "UpdateConditionNotSatisfied"), Changed),
    "no row, says another server": ("get", refused(404), StorageRefused),
    "another version, says another server": ("merge", refused(412), StorageRefused),
    "a batch that loses a race": ("batch", batched(412), Changed),
    "a batch that is refused at once": ("batch", refused(409, "EntityAlreadyExists"), Changed),
    "a batch that is too large": ("batch", refused(413, "RequestBodyTooLarge"), StorageRefused),
    "a batch that fails": ("batch", batched(500), ServiceUnavailable),
    "a message of a queue of none": ("update", refused(404, "QueueNotFound"), QueueNotFound),
    "a stale receipt": ("delete a message", refused(400, "PopReceiptMismatch"), PopReceiptMismatch),
    "a receipt that is none": ("delete a message", refused(400, "InvalidQueryParameterValue"), LeaseLost),
    "a lease without a code": ("delete a message", refused(400), LeaseLost),
    "a peek where there is no queue": ("peek", refused(404), QueueNotFound),
    "a change of what is leased": ("update", refused(412, "LeaseIdMissing"), StorageRefused),
    "what is not allowed": ("update", refused(403, "AuthorizationPermissionMismatch"), StorageRefused),
    "a version that it does not know": ("get", refused(400, "InvalidHeaderValue"), StorageRefused),
    "a redirect": ("get", refused(302), StorageRefused),
}


@pytest.mark.parametrize(("name", "refusal", "raised"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_raises_its_error(name: str, refusal: bytes, raised: type[Exception]) -> None:
    with Stub(refusal) as stub:
        client = Client(stub.url)
        with pytest.raises(raised) as caught:
            ACTS[name][0](client)
    assert type(caught.value) is raised
    assert len(stub.heard) == 1


def named(place: str, status: int, code: str) -> bytes:
    """A refusal that has its code in that place."""
    return {
        "header": refused(status, code),
        "XML": answer(status, f"<?xml?><Error><Code>{code}</Code><Message>said</Message></Error>".encode()),
        "JSON": answer(status, f'{{"odata.error":{{"code":"{code}","message":{{}}}}}}'.encode()),
    }[place]


@pytest.mark.parametrize(
    ("name", "place", "status", "code"),
    [
        ("get", "header", 403, "AuthenticationFailed"),  # a wrong key, or a wrong clock
        ("get", "XML", 403, "AccountIsDisabled"),
        ("get", "JSON", 404, "TableNotFound"),
        ("merge", "JSON", 409, "TableBeingDeleted"),
        ("get", "header", 404, "ContainerNotFound"),
        ("batch", "JSON", 403, "AuthenticationFailed"),
        ("peek", "header", 409, "QueueBeingDeleted"),
        ("update", "XML", 501, "NotImplemented"),
    ],
)
def test_storage_that_cannot_serve_now_is_unavailable(name: str, place: str, status: int, code: str) -> None:
    reply = named(place, status, code)
    with Stub(reply) as stub, capture_logs() as logs, pytest.raises(ServiceUnavailable):
        ACTS[name][0](Client(stub.url))
    assert len(stub.heard) == 1
    assert logs == [
        {
            "event": "storage-refused",
            "status": status,
            "azure_code": code,
            "error": "StorageRefused",
            "log_level": "error",
        }
    ]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("get", b"<html>a proxy's</html>"),
        ("get", b"{}"),
        ("page", b'{"value":[{}]}'),
        ("peek", b""),
        ("peek", b"<html/>"),
        ("peek", b"<QueueMessagesList><QueueMessage/></QueueMessagesList>"),
        ("peek", MESSAGE.replace(b"Oct", b"Okt")),
        ("peek", MESSAGE.replace(b">2<", b">two<")),
        ("put a message", b"<QueueMessagesList/>"),
        ("insert", b"no etag"),
        ("update", b"no receipt"),
        ("batch", b"no parts"),
    ],
)
def test_an_unreadable_answer_means_unavailable(name: str, body: bytes) -> None:
    with Stub(answer(200, body)) as stub, capture_logs() as logs, pytest.raises(ServiceUnavailable):
        ACTS[name][0](Client(stub.url))
    assert [line["event"] for line in logs] == ["storage-unreachable"]


def test_the_time_of_the_storage_is_the_date_of_its_last_answer() -> None:
    """Whatever time it is here."""
    date = datetime(2009, 10, 9, 21, 4, 30, tzinfo=UTC)
    with Stub(answer(200, ROW_BODY, "Date: Fri, 09 Oct 2009 21:04:30 GMT")) as stub:
        table = Client(stub.url).table
        for _ in range(2):
            assert date <= table.now() < date + 60 * SECOND
        assert stub.methods == ["GET"]


def test_a_message_is_read_as_azure_documents_it() -> None:
    with Stub(answer(200, MESSAGE)) as stub:
        (message,) = Client(stub.url).queue.receive(1, SECOND)
    assert message == QueuedMessage(
        MessageLease("5974b586-0df3-4e2d-ad0c-18e3892bfca2", "YzQ4Yzg1MDIt+/=="),
        "PHRlc3Q+",
        datetime(2009, 10, 9, 21, 4, 30, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(2009, 10, 9, 23, 29, 20, tzinfo=UTC),
        2,
    )


def test_logs_and_errors_hold_neither_key_nor_signature() -> None:
    """Not even the cause of an error, or what a connection or a request looks like."""
    with Stub(refused(403, "AuthenticationFailed"), hang_up) as stub:
        client = Client(stub.url)
        with capture_logs() as logs:
            shown = [str(logs)]
            for _ in range(2):
                with pytest.raises(ServiceUnavailable) as caught:
                    client.table.get("p", "k")
                error: BaseException | None = caught.value
                while error:
                    shown.append(repr(error))
                    error = error.__cause__ or error.__context__
        shown += [repr(client.table), repr(client.queue), repr(client.tables), str(logs)]
    (signature,) = {*re.findall(r"(?i)authorization: SharedKey \w+:(\S+)", stub.heard[0].decode())}
    for secret in (DEFAULT_KEY, signature, "SharedKey "):
        assert not [text for text in shown if secret in text]
