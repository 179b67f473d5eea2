"""What workers and Azure's own client get from the memory storage.

The expected bytes come from docs/explanation/legacy-clients.md, and from answers of Azure that the tests of
its JavaScript SDK recorded in 2019 (Azure/azure-sdk-for-js, sdk/storage/storage-queue/recordings).
"""

import base64
import re
from datetime import timedelta
from typing import Any
from urllib.parse import unquote

import requests
from azure.storage.queue import QueueClient
from flask import Flask

from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.poll_caller import poll_policy
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.gateway.azure_queue_api import azure_queue_api
from legacy_queue.ports.queue import SignedUrls
from legacy_queue.stores import Storage
from tests.memory_server import FakeClock, NoFaults, Unrecorded, delete_url, poll

from .conftest import NOW, QUEUE

HOUR = timedelta(hours=1)
BOM = b"\xef\xbb\xbf"
DECLARATION = b'<?xml version="1.0" encoding="utf-8"?>'


def put(storage: Storage, text: str = "dGV4dA==") -> MessageLease:
    return storage.work_queues.put(QUEUE, text, HOUR, timedelta(0))


def test_lists_and_errors_equal_azures_byte_for_byte(
    storage: Storage, urls: SignedUrls, clock: FakeClock
) -> None:
    answer = requests.get(urls.poll, timeout=30)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/xml")
    assert answer.content == BOM + DECLARATION + b"<QueueMessagesList />"
    lease = put(storage, "<&>'")
    clock.advance(timedelta(minutes=1))
    answer = requests.get(urls.poll, timeout=30)
    receipt = answer.text.partition("<PopReceipt>")[2].partition("</PopReceipt>")[0]
    message = (
        f"<MessageId>{lease.message_id}</MessageId>"
        "<InsertionTime>Mon, 02 Jan 2006 15:04:05 GMT</InsertionTime>"
        "<ExpirationTime>Mon, 02 Jan 2006 16:04:05 GMT</ExpirationTime>"
        f"<PopReceipt>{receipt}</PopReceipt>"
        "<TimeNextVisible>Mon, 02 Jan 2006 15:10:05 GMT</TimeNextVisible>"
        "<DequeueCount>1</DequeueCount>"
        "<MessageText>&lt;&amp;&gt;'</MessageText>"
    )
    of_list = f"<QueueMessagesList><QueueMessage>{message}</QueueMessage></QueueMessagesList>"
    assert answer.content == BOM + DECLARATION + of_list.encode()
    answer = requests.delete(delete_url(urls.delete, MessageLease("unknown", "AAAA")), timeout=30)
    request_id, time = answer.headers["x-ms-request-id"], answer.text.partition("\nTime:")[2][:28]
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, "application/xml")
    message = f"The specified message does not exist.\nRequestId:{request_id}\nTime:{time}"
    error = f"<Error><Code>MessageNotFound</Code><Message>{message}</Message></Error>"
    assert answer.content == BOM + DECLARATION + error.encode()


def test_every_receipt_is_unique_and_has_characters_that_need_percent_encoding(
    storage: Storage, urls: SignedUrls
) -> None:
    leases = [put(storage) for _ in range(32)]
    leases += [storage.work_queues.hide(QUEUE, lease, "", timedelta(0)) for lease in leases]
    leases += [message.lease for message in poll(urls.poll, 32)]
    receipts = {lease.receipt for lease in leases}
    assert len(receipts) == 96
    for receipt in receipts:
        assert {"+", "/", "="} <= set(receipt)
        assert base64.b64encode(base64.b64decode(receipt, validate=True)).decode() == receipt


def test_too_many_query_parameters_are_refused(urls: SignedUrls) -> None:
    parameters = "&".join(f"a{number}=" for number in range(60))
    answer = requests.get(f"{urls.poll}&{parameters}", timeout=30)
    assert (answer.status_code, answer.headers["x-ms-error-code"]) == (400, "InvalidQueryParameterValue")


def test_a_poll_names_the_caller_that_got_its_url_however_the_client_encodes_the_url(
    storage: Storage, clock: FakeClock
) -> None:
    caller = "a/client@c:d.e+f|g_-é?&=%"
    polls: list[tuple[WorkQueue, str]] = []
    app = Flask("named")
    api = azure_queue_api(storage, clock, NoFaults(), Unrecorded, lambda *poll: polls.append(poll))
    app.register_blueprint(api, url_prefix="/azure")
    (urls,) = storage.work_queues.signed_urls([QUEUE], NOW - HOUR, NOW + HOUR, HOUR, caller)
    target = urls.poll.partition("/azure")[2] + "&numofmessages=32"
    client = app.test_client()
    for written in (target, unquote(target).replace("+", "%2B")):
        assert client.get(f"/azure{written}").status_code == 200
    assert polls == [(QUEUE, caller)] * 2
    other = re.sub("si=[^&]*", f"si={poll_policy('another')}", target)
    assert client.get(f"/azure{other}").status_code == 403
    client.delete("/azure" + delete_url(urls.delete, put(storage)).partition("/azure")[2])
    assert len(polls) == 2


def failing(_environ: dict[str, Any]) -> Unrecorded:
    """Raises an error, like a bug of the server."""
    raise LookupError


def test_a_bug_of_the_server_is_answered_like_an_internal_error_of_azure(
    storage: Storage, clock: FakeClock
) -> None:
    app = Flask("failing")
    app.register_blueprint(azure_queue_api(storage, clock, NoFaults(), failing, lambda *_: None))
    answer = app.test_client().get("/account/queue/messages", headers={"x-ms-client-request-id": "a"})
    assert (answer.status_code, answer.headers["x-ms-error-code"]) == (500, "InternalError")
    assert answer.headers["x-ms-client-request-id"] == "a"
    assert b"<Code>InternalError</Code>" in answer.data


def test_azures_own_client_can_receive_and_delete_messages(
    storage: Storage, urls: SignedUrls, queue_url: str
) -> None:
    texts = [f"{number} <" for number in range(40)]
    for text in texts:
        put(storage, text)
    with QueueClient.from_queue_url(f"{queue_url}?{urls.poll.partition('?')[2]}") as client:
        received = list(client.receive_messages(messages_per_page=32, visibility_timeout=60, max_messages=40))
        assert [message.content for message in received] == texts
        assert received[0].next_visible_on == (NOW + timedelta(minutes=1)).replace(microsecond=0)
        for message in received:
            client.delete_message(message)
        assert storage.work_queues.count(QUEUE) == 0
        assert client.receive_message() is None
