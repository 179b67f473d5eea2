"""Which requests are repeated, how often, and which errors failures and refusals become."""

import logging
import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.adapters.azure.errors import StorageRefused
from legacy_queue.adapters.azure.transport import Transport
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.messages import MessageLease
from legacy_queue.local_processes.azurite import DEFAULT_KEY
from legacy_queue.ports import Changed, InvalidPosition
from legacy_queue.ports.queue import LeaseLost, QueueNotFound
from legacy_queue.ports.table import Change

from .storage_stub import (
    NO_CONTENT,
    Reply,
    Stub,
    answer,
    connection_string,
    hang_up,
    proxy_answer,
    refused,
    reset,
    then_hang_up,
)

SECOND = timedelta(seconds=1)
LEASE = MessageLease("00000000-0000-0000-0000-000000000000", "receipt")
XML = "Content-Type: application/xml"
MESSAGE = b"<QueueMessage><MessageId>i</MessageId><PopReceipt>r</PopReceipt></QueueMessage>"
PUT = b"<QueueMessagesList>" + MESSAGE + b"</QueueMessagesList>"
UNREADABLE = PUT.replace(b"<MessageId>i</MessageId>", b"<DequeueCount>two</DequeueCount>")
NO_MESSAGE = b"<QueueMessagesList/>"
NO_MESSAGES = answer(200, NO_MESSAGE, XML)
NO_ROWS = answer(200, b'{"value":[]}')
PUTS = [Change("put", "k", {}), Change("put", "l", {})]
ROW_BODY = b'{"odata.etag":"e","PartitionKey":"p","RowKey":"k","Timestamp":"2009-10-09T21:04:30.1234567Z"}'
ROW = answer(200, ROW_BODY)


def batched(*statuses: int) -> bytes:
    error = '{"odata.error":{"code":"ACode","message":{"value":"said"}}}'
    part = f"Word\r\nETag: e\r\nContent-Type: application/json\r\n\r\n{error}\r\n"
    head = "--c\r\nContent-Type: application/http\r\n\r\nHTTP/1.1"
    changes = "".join(f"{head} {status} {part}" for status in statuses)
    whole = f"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n{changes}--c--\r\n--b--"
    return answer(202, whole.encode(), "Content-Type: multipart/mixed; boundary=b")


PLACE = '{"PartitionKey": "1!4!cA--", "RowKey": null}'


class Client:
    """An account at ``url``, its table and queue, and the pauses before its retries."""

    def __init__(self, url: str) -> None:
        self.slept: list[float] = []
        transport = partial(Transport, wait=self.slept.append, timeout=60)
        self.account = AzureAccount(connection_string(url), "t", transport=transport)
        self.table = self.account.table("tasks")
        self.queue = self.account.queue("claims")

    def has_paused(self, *least: float) -> bool:
        """Whether each pause before a retry had at least this many seconds, and at most half as many more."""
        return len(self.slept) == len(least) and all(
            seconds <= slept <= 1.5 * seconds for seconds, slept in zip(least, self.slept, strict=True)
        )


ACTS: dict[str, tuple[Callable[[Client], Any], str, bytes]] = {
    "get": (lambda at: at.table.get("p", "k"), "GET", ROW),
    "insert": (lambda at: at.table.insert("p", "k", {}), "POST", NO_CONTENT),
    "put a row": (lambda at: at.table.put("p", "k", {}), "PUT", NO_CONTENT),
    "merge": (lambda at: at.table.merge("p", "k", {}), "PATCH", NO_CONTENT),
    "delete a row": (lambda at: at.table.delete("p", "k"), "DELETE", NO_CONTENT),
    "batch": (lambda at: at.table.batch("p", PUTS), "POST", batched(204, 204)),
    "page": (lambda at: at.table.page([], "", 10), "GET", NO_ROWS),
    "page behind a place": (lambda at: at.table.page([], PLACE, 10), "GET", NO_ROWS),
    "put a message": (lambda at: at.queue.put("text", SECOND), "POST", answer(201, PUT, XML)),
    "peek": (lambda at: at.queue.peek(), "GET", NO_MESSAGES),
    "update": (lambda at: at.queue.update(LEASE, "text", SECOND), "PUT", NO_CONTENT),
    "delete a message": (lambda at: at.queue.delete(LEASE), "DELETE", NO_CONTENT),
    "upload": (lambda at: at.account.container.put_block("n", "id", b"."), "PUT", answer(201)),
}
OTHERS: dict[str, Callable[[Client], Any]] = {
    "create a table": lambda at: at.table.create(),
    "remove a table": lambda at: at.table.remove(),
    "create a queue": lambda at: at.queue.create({"a": "b"}),
    "metadata": lambda at: at.queue.metadata(),
    "receive": lambda at: at.queue.receive(1, SECOND),
    "count": lambda at: at.queue.count(),
    "remove a queue": lambda at: at.queue.remove(),
    "create a container": lambda at: at.account.container.create(),
    "remove a container": lambda at: at.account.container.remove(),
    "put a blob": lambda at: at.account.container.put("n", b".", "a/b", None),
    "put a block list": lambda at: at.account.container.put_block_list("n", [("Latest", "i")], "a/b", None),
    "block list": lambda at: at.account.container.block_list("n"),
    "properties": lambda at: at.account.container.properties("n"),
    "read": lambda at: at.account.container.read("n"),
    "delete a blob": lambda at: at.account.container.delete("n"),
    "queues": lambda at: [*at.account.queues("t")],
    "check": lambda at: at.account.check(),
}
EVERY = {name: act for name, (act, *_) in ACTS.items()} | OTHERS
PICTURE = b"\x89PNG\xff", "Content-Type: image/png"
ODD = [make(status, *PICTURE) for make in (answer, proxy_answer) for status in (200, 302, 403)]
ODD += [proxy_answer(status, b"<html/>", XML) for status in (200, 201, 202, 400, 404, 409)]
ODD += [NO_CONTENT.replace(b"x-ms", b"x-of")]
FAILURES: dict[str, Reply] = {
    "reset": reset,
    "half an answer": then_hang_up(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "408": refused(408),
    "429": refused(429),
    "503": refused(503, "ServerBusy"),
    "504": answer(504, b"<html>a proxy's</html>"),
}
each_failure = pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)


@pytest.mark.parametrize(("act", "method", "good"), ACTS.values(), ids=ACTS)
def test_a_failed_request_is_repeated_twice(act: Callable[[Client], Any], method: str, good: bytes) -> None:
    with Stub(hang_up, refused(503, "ServerBusy"), good) as stub:
        client = Client(stub.url)
        act(client)
    assert stub.methods == [method] * 3
    assert client.has_paused(0.1, 0.2) or client.has_paused(0.1, 1)
    assert [(counted[1], count) for counted, count in client.account.operations.items()] == [(method, 3)]


@each_failure
def test_after_three_failures_storage_is_unavailable(failure: Reply) -> None:
    with Stub(failure) as stub:
        client = Client(stub.url)
        for name in ("insert", "put a message"):
            with pytest.raises(ServiceUnavailable):
                ACTS[name][0](client)
    assert stub.methods == ["POST"] * 6
    assert client.has_paused(0.1, 0.2, 0.1, 1)


@each_failure
def test_a_failed_receive_is_not_repeated(failure: Reply) -> None:
    with Stub(failure, NO_MESSAGES) as stub:
        client = Client(stub.url)
        with pytest.raises(ServiceUnavailable):
            client.queue.receive(32, SECOND)
        assert stub.methods == ["GET"]
        assert client.queue.receive(32, SECOND) == []


@pytest.mark.parametrize(("retry_after", "least"), [("2", 2), ("0", 0.1), ("soon", 0.1)])
def test_a_retry_waits_for_retry_after(retry_after: str, least: float) -> None:
    with Stub(answer(503, b"", f"Retry-After: {retry_after}"), NO_CONTENT) as stub:
        client = Client(stub.url)
        client.table.put("p", "k", {})
    assert client.has_paused(least)


@pytest.mark.parametrize("name", EVERY)
def test_after_an_unexpected_answer_storage_is_unavailable(name: str) -> None:
    sent = [b""]
    with Stub(lambda connection: connection.sendall(sent[0])) as stub, capture_logs() as logs:
        client = Client(stub.url)
        for sent[0] in ODD:
            with pytest.raises(ServiceUnavailable):
                EVERY[name](client)
    assert [line["log_level"] for line in logs] == ["error"] * len(ODD)


def in_xml(status: int, code: str) -> bytes:
    return answer(status, f"<Error><Code>{code}</Code><Message>said</Message></Error>".encode(), XML)


def in_json(status: int, code: str) -> bytes:
    return answer(status, f'{{"odata.error":{{"code":"{code}","message":{{"value":"said"}}}}}}'.encode())


REFUSED: dict[str, tuple[str, bytes, type[Exception]]] = {
    "no row, says another server": ("get", refused(404), StorageRefused),
    "no row to delete, says another server": ("delete a row", refused(404), StorageRefused),
    "another version, says another server": ("merge", refused(412), StorageRefused),
    "another version to delete": ("delete a row", refused(412, "UpdateConditionNotSatisfied"), Changed),
    "a batch that loses a race": ("batch", batched(412), Changed),
    "a batch that is refused at once": ("batch", refused(409, "EntityAlreadyExists"), Changed),
    "a batch that is too large": ("batch", refused(413, "RequestBodyTooLarge"), StorageRefused),
    "a batch that fails": ("batch", batched(500), ServiceUnavailable),
    "a batch with a wrong key": ("batch", in_json(403, "AuthenticationFailed"), ServiceUnavailable),
    "a batch without parts": ("batch", answer(202, b"none"), ServiceUnavailable),
    "a lease without a code": ("delete a message", refused(400), LeaseLost),
    "a peek where there is no queue": ("peek", refused(404), QueueNotFound),
    "a place that was changed": ("page behind a place", refused(400, "InvalidInput"), InvalidPosition),
    "what is not allowed": ("update", refused(403, "AuthorizationPermissionMismatch"), StorageRefused),
    "a redirect": ("get", answer(302, b"", "Location: /elsewhere"), StorageRefused),
    "a disabled account": ("get", in_xml(403, "AccountIsDisabled"), ServiceUnavailable),
    "no table of a row to delete": ("delete a row", in_json(404, "TableNotFound"), ServiceUnavailable),
    "what storage cannot do": ("update", in_xml(501, "NotImplemented"), ServiceUnavailable),
    "one that asks for more than 2 s": ("merge", answer(503, b"", "Retry-After: 3"), ServiceUnavailable),
    "a message that cannot be read": ("peek", answer(200, UNREADABLE, XML), ServiceUnavailable),
    "a row without keys": ("page", answer(200, b'{"value":[{}]}'), ServiceUnavailable),
    "an insert without an etag": ("insert", answer(201, b"{}"), ServiceUnavailable),
    "a put that returns no message": ("put a message", answer(201, NO_MESSAGE, XML), ServiceUnavailable),
    "a count that is missing": ("count", answer(200), ServiceUnavailable),
    "an update without a receipt": ("update", answer(204), ServiceUnavailable),
    "a blob without an etag": ("put a blob", answer(201), ServiceUnavailable),
    "properties without an etag": ("properties", answer(200), ServiceUnavailable),
}


@pytest.mark.parametrize(("name", "refusal", "raised"), REFUSED.values(), ids=REFUSED)
def test_each_error_code_of_azure_raises_its_own_error(
    name: str, refusal: bytes, raised: type[Exception]
) -> None:
    with Stub(refusal) as stub, capture_logs() as logs:
        client = Client(stub.url)
        with pytest.raises(raised) as caught:
            EVERY[name](client)
    assert type(caught.value) is raised
    assert len(stub.heard) == 1
    assert [line["log_level"] for line in logs] == ["error"] * issubclass(raised, ServiceUnavailable)


def test_if_two_processes_create_a_queue_at_the_same_time_it_still_gets_its_metadata() -> None:
    # a create that is answered with 204 found the queue
    with Stub(refused(404, "QueueNotFound"), NO_CONTENT) as stub:
        Client(stub.url).queue.create({"a": "b"})
    assert stub.methods == ["PUT"] * 3


def test_logs_and_errors_have_no_key_and_no_signature(caplog: pytest.LogCaptureFixture) -> None:
    """This includes the SDK's logs at every level, causes of errors, and the repr of a table.

    If a signature is wrong, Azure answers with the expected one.
    """
    wrong = b"<Error><Code>AuthenticationFailed</Code><Detail>expected hush</Detail></Error>"
    with Stub(answer(403, wrong, XML), hang_up) as stub, caplog.at_level(logging.DEBUG):
        client = Client(stub.url)
        with capture_logs() as logs:
            shown = [repr(client.table), repr(client.queue)]
            for name in ("get", "peek", "upload"):
                with pytest.raises(ServiceUnavailable) as caught:
                    ACTS[name][0](client)
                error: BaseException | None = caught.value
                while error:
                    shown.append(repr(error))
                    error = error.__cause__ or error.__context__
        shown += [str(logs), caplog.text]
    signatures = {*re.findall(r"(?i)authorization: SharedKey \w+:(\S+)", b"".join(stub.heard).decode())}
    assert len(signatures) >= 3
    for secret in (DEFAULT_KEY, *signatures, "SharedKey ", "hush"):
        assert not [text for text in shown if secret in text]
