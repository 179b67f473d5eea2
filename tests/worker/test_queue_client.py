"""How requests are signed, repeated and read."""

import base64
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from legacy_queue.worker import Refused
from legacy_queue.worker.http_client import RETRIES, Unavailable
from legacy_queue.worker.polled_queue import PolledMessage, PolledQueue, parse_messages
from legacy_queue.worker.queue_client import QueueClient
from legacy_queue.worker.worker_settings import Context

from .conftest import FakeClock
from .scripted_queue import ScriptedQueue

TASK_ID = "fN1SbArXTPSVFNUvaOlinQ"
NAME = {"workerGroup": "group", "workerId": "id"}

# In the form of Azure's own documentation of Get Messages, with a message of this queue in it.
AZURE_ANSWER = """\ufeff<?xml version="1.0" encoding="utf-8"?>\
<QueueMessagesList><QueueMessage><MessageId>5974b586-0df3-4e2d-ad0c-18e3892bfca2</MessageId>\
<InsertionTime>Fri, 09 Oct 2009 21:04:30 GMT</InsertionTime>\
<ExpirationTime>Fri, 16 Oct 2009 21:04:30 GMT</ExpirationTime>\
<PopReceipt>YzQ4Yzg1MDItYTc0Ny00OWNjLTkxYTUtZGM0MDFiZDAwYzEw+/=</PopReceipt>\
<TimeNextVisible>Fri, 09 Oct 2009 23:29:20 GMT</TimeNextVisible><DequeueCount>3</DequeueCount>\
<MessageText>eyJ0YXNrSWQiOiJmTjFTYkFyWFRQU1ZGTlV2YU9saW5RIiwicnVuSWQiOjIsInNpZ25hdHVyZSI6InMrLz0ifQ==\
</MessageText></QueueMessage></QueueMessagesList>""".encode()


@pytest.fixture
def client(context: Context) -> Iterator[QueueClient]:
    with closing(QueueClient(context)) as client:
        yield client


def test_a_5xx_is_tried_again_five_times_with_growing_delays(
    queue: ScriptedQueue, client: QueueClient, clock: FakeClock
) -> None:
    queue.script("claimTask", *[503] * RETRIES)
    client.claim_task(queue.task({}), 0, NAME)
    assert clock.pauses == [0.5, 1, 2, 4, 8]
    queue.script("claimTask", *[500] * (RETRIES + 1))
    with pytest.raises(Unavailable, match="claimTask: answered 500"):
        client.claim_task(queue.task({}), 0, NAME)


@pytest.mark.parametrize("status", [302, 400, 409])
def test_a_4xx_is_never_tried_again(queue: ScriptedQueue, client: QueueClient, status: int) -> None:
    queue.script("claimTask", status)
    with pytest.raises(Refused) as refused:
        client.claim_task(queue.task({}), 0, NAME)
    assert queue.operations() == ["claimTask"]
    # and not the request, which the original repeats
    assert str(refused.value) == f"claimTask: {status} Scripted: says {status}"


def test_a_message_is_read_from_azures_xml_with_its_byte_order_mark() -> None:
    [message] = parse_messages(AZURE_ANSWER)
    assert message.message_id == "5974b586-0df3-4e2d-ad0c-18e3892bfca2"
    assert message.pop_receipt == "YzQ4Yzg1MDItYTc0Ny00OWNjLTkxYTUtZGM0MDFiZDAwYzEw+/="
    assert message.work() == {"taskId": TASK_ID, "runId": 2, "signature": "s+/="}


def test_no_entity_of_a_document_type_is_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    entities = f'<!DOCTYPE x [<!ENTITY a SYSTEM "file://{secret}"><!ENTITY b "&a;&a;&a;&a;">]>'.encode()
    xml = entities + AZURE_ANSWER.partition(b"?>")[2].replace(b"<MessageText>", b"<MessageText>&a;&b;")
    assert "s3cret" not in "".join(message.text for message in parse_messages(xml))


@pytest.mark.parametrize(
    "json",
    [
        "not JSON",
        "[]",
        "{}",
        '{"taskId": "../../evil-elsewhere0", "runId": 0}',
        f'{{"taskId": "{TASK_ID}"}}',
        f'{{"taskId": "{TASK_ID}", "runId": "0"}}',
        f'{{"taskId": "{TASK_ID}", "runId": true}}',
    ],
)
def test_a_text_that_names_no_run_is_no_work(json: str) -> None:
    for text in (json, base64.b64encode(json.encode()).decode()):
        assert PolledMessage("id", "receipt", text).work() is None


def test_no_secret_is_in_a_repr(queue: ScriptedQueue, client: QueueClient, context: Context) -> None:
    [message] = parse_messages(AZURE_ANSWER)
    claim = client.claim_task(queue.task({}), 0, NAME)
    polled = PolledQueue("http://poll?sig=secret", "http://delete?sig=secret")
    shown = repr((message, polled, claim, context.settings)).replace("access_token", "")
    for secret in (message.pop_receipt, message.text, "sig=secret", "token"):
        assert secret not in shown


def test_signed_urls_are_used_unchanged_with_encoded_receipts_and_without_a_netrc_files_credentials(
    queue: ScriptedQueue, client: QueueClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login user password s3cret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    queue.task({})
    [azure_queue, *_], _ = client.poll_task_urls()
    message = client.poll(azure_queue)
    assert message
    client.delete(azure_queue, message)
    poll, delete = queue.requests[1:]
    signed = urlsplit(azure_queue.signed_poll_url)
    assert poll.target == f"{signed.path}?{signed.query}&numofmessages=1"
    assert f"popreceipt={quote(message.pop_receipt, safe='')}&" in delete.target
    with pytest.raises(Refused, match=r"^delete: 404 \w+$"):  # without the URL
        client.delete(azure_queue, message)
