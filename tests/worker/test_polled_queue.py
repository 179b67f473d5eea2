import base64
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from legacy_queue.worker.http_client import Http, Refused, Unavailable
from legacy_queue.worker.polled_queue import PolledMessage, PolledQueue, parse_messages

from .conftest import FakeClock
from .fake_queue import FakeQueue

TASK_ID = "fN1SbArXTPSVFNUvaOlinQ"

# In the form of Azure's own documentation of Get Messages, with a message of this queue in it.
AZURE_ANSWER = """\ufeff<?xml version="1.0" encoding="utf-8"?>\
<QueueMessagesList><QueueMessage><MessageId>5974b586-0df3-4e2d-ad0c-18e3892bfca2</MessageId>\
<InsertionTime>Fri, 09 Oct 2009 21:04:30 GMT</InsertionTime>\
<ExpirationTime>Fri, 16 Oct 2009 21:04:30 GMT</ExpirationTime>\
<PopReceipt>YzQ4Yzg1MDItYTc0Ny00OWNjLTkxYTUtZGM0MDFiZDAwYzEw+/=</PopReceipt>\
<TimeNextVisible>Fri, 09 Oct 2009 23:29:20 GMT</TimeNextVisible><DequeueCount>3</DequeueCount>\
<MessageText>eyJ0YXNrSWQiOiJmTjFTYkFyWFRQU1ZGTlV2YU9saW5RIiwicnVuSWQiOjIsInNpZ25hdHVyZSI6InMrLz0ifQ==\
</MessageText></QueueMessage></QueueMessagesList>""".encode()


def message(text: str) -> PolledMessage:
    return PolledMessage(message_id="id", pop_receipt="receipt", text=text)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_a_message_is_read_from_azures_xml_with_its_byte_order_mark() -> None:
    [read] = parse_messages(AZURE_ANSWER)
    assert read.message_id == "5974b586-0df3-4e2d-ad0c-18e3892bfca2"
    assert read.pop_receipt == "YzQ4Yzg1MDItYTc0Ny00OWNjLTkxYTUtZGM0MDFiZDAwYzEw+/="
    assert read.work() == {"taskId": TASK_ID, "runId": 2, "signature": "s+/="}


def test_an_empty_list_is_read_as_no_messages() -> None:
    assert parse_messages(b"<QueueMessagesList/>") == []
    assert parse_messages(b'<?xml version="1.0"?><QueueMessagesList></QueueMessagesList>') == []


@pytest.mark.parametrize(
    "xml",
    [
        b"",
        b"{}",
        b"<QueueMessagesList>",
        b"<html/>",
        b"<QueueMessagesList><QueueMessage/></QueueMessagesList>",
        re.sub(b"<PopReceipt>.*</PopReceipt>", b"", AZURE_ANSWER),
    ],
)
def test_an_answer_that_is_not_a_message_list_raises_unavailable(xml: bytes) -> None:
    with pytest.raises(Unavailable):
        parse_messages(xml)


def test_no_entity_of_a_document_type_is_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    entities = f'<!DOCTYPE x [<!ENTITY a SYSTEM "file://{secret}"><!ENTITY b "&a;&a;&a;&a;">]>'.encode()
    xml = entities + AZURE_ANSWER.partition(b"?>")[2].replace(b"<MessageText>", b"<MessageText>&a;&b;")
    assert "s3cret" not in "".join(message.text for message in parse_messages(xml))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not base64",
        "\u00e9\u00e9\u00e9\u00e9",
        encoded("not JSON"),
        base64.b64encode(b"\xff\xfe").decode(),
        encoded("[]"),
        encoded("{}"),
        encoded('{"taskId": "../../evil-elsewhere0", "runId": 0}'),
        encoded('{"taskId": "short", "runId": 0}'),
        encoded(f'{{"taskId": "{TASK_ID}"}}'),
        encoded(f'{{"taskId": "{TASK_ID}", "runId": "0"}}'),
        encoded(f'{{"taskId": "{TASK_ID}", "runId": true}}'),
    ],
)
def test_a_text_that_names_no_run_is_no_work(text: str) -> None:
    assert message(text).work() is None


def test_neither_urls_nor_receipts_nor_signatures_are_in_a_repr() -> None:
    [read] = parse_messages(AZURE_ANSWER)
    shown = repr((read, PolledQueue("http://poll?sig=secret", "http://delete?sig=secret")))
    for secret in (read.pop_receipt, read.text, "sig=secret"):
        assert secret not in shown


@pytest.fixture
def http(clock: FakeClock) -> Any:
    http = Http(clock, threading.Event())
    yield http
    http.close()


def queue_of(fake_queue: FakeQueue) -> PolledQueue:
    [first, *_] = fake_queue.poll_task_urls()[1]["queues"]
    return PolledQueue(first["signedPollUrl"], first["signedDeleteUrl"])


def test_a_receipt_with_plus_slash_and_equals_is_uri_encoded_in_a_delete(
    fake_queue: FakeQueue, http: Http
) -> None:
    put = fake_queue.message("eA==")
    put.receipt = "a+b/c=="
    polled = queue_of(fake_queue).poll(http)
    assert polled
    queue_of(fake_queue).delete(http, polled)
    assert fake_queue.deleted == [put.message_id]
    assert "popreceipt=a%2Bb%2Fc%3D%3D&" in fake_queue.requests_for("delete")[0].target


def test_the_error_of_a_delete_has_no_url(fake_queue: FakeQueue, http: Http) -> None:
    with pytest.raises(Refused, match=r"^delete: 404$"):
        queue_of(fake_queue).delete(http, message("eA=="))
    fake_queue.script("delete", *[503] * 6)
    with pytest.raises(Unavailable, match=r"^delete: answered 503$"):
        queue_of(fake_queue).delete(http, message("eA=="))


def test_a_poll_asks_for_one_message_with_the_signed_query_unchanged(
    fake_queue: FakeQueue, http: Http
) -> None:
    assert queue_of(fake_queue).poll(http) is None
    [poll] = fake_queue.requests_for("poll")
    query = "visibilitytimeout=300&sv=2019-02-02&sig=s3cret%2Bsignature%3D&numofmessages=1"
    assert poll.target == f"/azure/0/messages?{query}"


def test_a_signed_url_is_sent_without_the_credentials_of_a_netrc_file(
    fake_queue: FakeQueue, http: Http, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login user password s3cret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    queue_of(fake_queue).poll(http)
    assert "Authorization" not in fake_queue.requests_for("poll")[0].headers
