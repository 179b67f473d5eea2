"""How the sample worker reads Azure's messages, and answers that do not come from the queue."""

import base64
import json
import threading
from functools import partial
from xml.etree import ElementTree

import pytest

from legacy_queue.credentials import Credentials
from legacy_queue.worker import WorkerSettings
from legacy_queue.worker.queue_client import PolledMessage, QueueClient, Unavailable, parse_messages
from tests.cli.command_runner import answering

TASK_ID = "fN1SbArXTPSVFNUvaOlinQ"

# The example in Azure's documentation of Get Messages, with one of our messages in it.
AZURE_ANSWER = """\ufeff<?xml version="1.0" encoding="utf-8"?>\
<QueueMessagesList><QueueMessage><MessageId>5974b586-0df3-4e2d-ad0c-18e3892bfca2</MessageId>\
<InsertionTime>Fri, 09 Oct 2009 21:04:30 GMT</InsertionTime>\
<ExpirationTime>Fri, 16 Oct 2009 21:04:30 GMT</ExpirationTime>\
<PopReceipt>YzQ4Yzg1MDItYTc0Ny00OWNjLTkxYTUtZGM0MDFiZDAwYzEw+/=</PopReceipt>\
<TimeNextVisible>Fri, 09 Oct 2009 23:29:20 GMT</TimeNextVisible><DequeueCount>3</DequeueCount>\
<MessageText>eyJ0YXNrSWQiOiJmTjFTYkFyWFRQU1ZGTlV2YU9saW5RIiwicnVuSWQiOjIsInNpZ25hdHVyZSI6InMrLz0ifQ==\
</MessageText></QueueMessage></QueueMessagesList>""".encode()


def test_a_message_is_read_from_azures_xml_with_a_byte_order_mark_and_its_repr_shows_no_secret() -> None:
    [message] = parse_messages(AZURE_ANSWER)
    assert message.message_id == "5974b586-0df3-4e2d-ad0c-18e3892bfca2"
    assert message.receipt == "YzQ4Yzg1MDItYTc0Ny00OWNjLTkxYTUtZGM0MDFiZDAwYzEw+/="
    assert message.work() == {"taskId": TASK_ID, "runId": 2, "signature": "s+/="}
    assert message.receipt not in repr(message)
    assert message.text not in repr(message)


def test_xml_with_a_document_type_and_entities_is_refused() -> None:
    entities = b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd"><!ENTITY b "&a;&a;&a;&a;">]>'
    xml = entities + AZURE_ANSWER.partition(b"?>")[2].replace(b"<MessageText>", b"<MessageText>&a;&b;")
    with pytest.raises(ElementTree.ParseError, match="a document type"):
        parse_messages(xml)


@pytest.mark.parametrize(
    "content",
    ["not JSON", "[]", f'{{"taskId": "{TASK_ID}"}}', '{"taskId": "../../evil-elsewhere0", "runId": 0}'],
)
def test_a_message_that_names_no_run_is_not_work(content: str) -> None:
    for text in (content, base64.b64encode(content.encode()).decode()):
        assert PolledMessage("id", "receipt", text).work() is None


def test_a_delete_url_gets_the_message_id_and_the_encoded_receipt() -> None:
    urls = {"signedDeleteUrl": "http://a/{{messageId}}?popreceipt={{popReceipt}}&sig=s"}
    assert PolledMessage("i d", "a+/=", "").delete_url(urls) == "http://a/i%20d?popreceipt=a%2B%2F%3D&sig=s"


def client_of(url: str) -> QueueClient:
    own = Credentials("worker", "its-token")
    worker = WorkerSettings(base_url=url, credentials=own, pool="p/w", worker_group="g", worker_id="w")
    return QueueClient(worker, threading.Event())


def test_a_reclaimed_task_has_the_new_credentials_of_the_answer() -> None:
    """With the old credentials, a report would be refused."""
    old, new = ({"clientId": "task", "accessToken": token, "certificate": "{}"} for token in ("old", "new"))
    claim = {"status": {"taskId": TASK_ID}, "runId": 0, "takenUntil": "then", "credentials": old, "task": {}}
    with answering((200, json.dumps({"takenUntil": "later", "credentials": new}))) as url:
        assert client_of(url).reclaim_task(claim) == {**claim, "takenUntil": "later", "credentials": new}


def test_an_answer_that_is_not_json_counts_as_no_answer() -> None:
    with answering(*[(200, "<p>We are back soon.<br>")] * 3) as url:  # an HTML page of a proxy
        client = client_of(url)
        poll = partial(client.poll, {"signedPollUrl": f"{url}?"})
        for ask in (client.poll_task_urls, client.claim_work, poll):
            with pytest.raises(Unavailable, match="the answer is not"):
                ask()
