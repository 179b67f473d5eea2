"""The server logs each line of docs/troubleshooting.md in that situation."""

import base64
import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.domain.authentication import Client
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.task import Worker
from legacy_queue.local_processes.azurite import Azurite
from tests.http.calls import (
    NOW,
    PROVISIONER,
    ROOT,
    ROOT_URL,
    TASK_ID,
    WORKER_TYPE,
    Credentials,
    Queue,
    hawk,
    task_body,
    temporary,
)
from tests.system.processes import LONG

Line = dict[str, Any]

CHANGING = ("timestamp", "request_id", "ms", "message_id")
PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()


def objects(text: str) -> Iterator[Line]:
    """The JSON objects of a block, one after the other."""
    while text := text.lstrip():
        line, end = json.JSONDecoder().raw_decode(text)
        yield line
        text = text[end:]


BLOCKS = [
    list(objects(block)) for block in re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
]
POOL = {"provisionerId": PROVISIONER, "workerType": WORKER_TYPE}
MERE = Credentials("my-worker", "a-token-that-my-worker-has-22")


def stable(line: Mapping[str, Any]) -> Line:
    """The line without the fields that differ each time."""
    given = {"level" if name == "log_level" else name: value for name, value in line.items()}
    return {name: value for name, value in given.items() if name not in CHANGING}


def creating(queue: Queue, credentials: Credentials, **changes: Any) -> None:
    queue.call("createTask", task_body(**changes), credentials, taskId=TASK_ID).close()


def wrong_key() -> None:
    creating(Queue(), replace(ROOT, access_token="another-access-token"))


def no_such_client() -> None:
    creating(Queue(), Credentials("unknown", "an-access-token"))


def ended_credentials() -> None:
    creating(Queue(), temporary(ROOT, ["*"], None, NOW - timedelta(hours=2), NOW - timedelta(hours=1)))


def missing_scope() -> None:
    queue = Queue(Client(MERE.client_id, MERE.access_token, ("queue:nothing",)))
    queue.call("pollTaskUrls", None, MERE, **POOL).close()


def wrong_signature() -> None:
    queue = Queue()
    queue.create(TASK_ID)
    signature = base64.b64encode(bytes(32)).decode()
    queue.claim(TASK_ID, messageId="m", receipt="r", signature=signature).close()


def claimed_by_another() -> None:
    queue = Queue()
    queue.running(TASK_ID)
    queue.claim(TASK_ID, workerId="bob").close()


def read_a_row(connection_string: str) -> None:
    with pytest.raises(ServiceUnavailable):
        AzureAccount(connection_string, "lq").table("lqtasks").get("partition", "key")


def storage_away() -> None:
    url = "http://127.0.0.1:1/devstoreaccount1"
    read_a_row(
        "AccountName=devstoreaccount1;AccountKey=AAAA;"
        f"QueueEndpoint={url};TableEndpoint={url};BlobEndpoint={url};"
    )


def message_polled_again() -> None:
    queue = Queue()
    queue.create(TASK_ID)
    [(_, _, message_id, receipt, signature)] = queue.messages()
    queue.clock.advance(timedelta(minutes=6))
    queue.messages()
    queue.claim(TASK_ID, messageId=message_id, receipt=receipt, signature=signature).close()


def message_of_a_resolved_task() -> None:
    queue = Queue()
    queue.canceled(TASK_ID)
    services, work_queues = queue.server.services, queue.server.storage.work_queues
    of_task = services.tasks.recall(TASK_ID).work_queue
    [message] = work_queues.receive(of_task, 1, timedelta(minutes=1))
    services.claims.claim_polled(of_task, message, Worker("group", "alice"))


def required_message() -> None:
    queue = Queue(worker_types={f"{PROVISIONER}/{WORKER_TYPE}": "required"})
    queue.create(TASK_ID)
    queue.claim(TASK_ID).close()


def clock_behind() -> None:
    queue = Queue()
    target = f"/v1/poll-task-url/{PROVISIONER}/{WORKER_TYPE}"
    signed = hawk(ROOT, "GET", ROOT_URL + target, NOW - timedelta(minutes=20))
    queue.send("GET", target, credentials=None, headers={"Authorization": signed}).close()


def created_long_ago() -> None:
    creating(Queue(), ROOT, created="2018-03-04T04:00:00.000Z")


def claimed_early() -> None:
    queue = Queue()
    queue.running(TASK_ID)
    queue.claim(TASK_ID, run_id=1).close()


def behind_a_proxy() -> None:
    target = f"/v1/poll-task-url/{PROVISIONER}/{WORKER_TYPE}"
    headers = {"X-Forwarded-Host": "queue.example.net", "X-Forwarded-Proto": "https"}
    Queue().send("GET", target, headers=headers, signed_url=f"https://queue.example.net{target}").close()


# in the order of the page
SITUATIONS: list[Callable[[], None]] = [
    wrong_key,
    no_such_client,
    ended_credentials,
    missing_scope,
    wrong_signature,
    claimed_by_another,
    storage_away,
    message_polled_again,
    message_of_a_resolved_task,
    required_message,
    clock_behind,
    created_long_ago,
    claimed_early,
    behind_a_proxy,
]
WITH_STORAGE = 7  # the place of the block that needs a real Azurite


def logged(situation: Callable[[], None]) -> list[Line]:
    with capture_logs() as lines:
        situation()
    return [stable(line) for line in lines]


@pytest.mark.parametrize(
    "number", range(len(SITUATIONS)), ids=[situation.__name__ for situation in SITUATIONS]
)
def test_the_page_shows_the_lines_that_are_logged(number: int) -> None:
    blocks = BLOCKS[:WITH_STORAGE] + BLOCKS[WITH_STORAGE + 1 :]
    assert len(blocks) == len(SITUATIONS)
    assert [stable(line) for line in blocks[number]] == logged(SITUATIONS[number])


def test_the_page_shows_the_lines_that_are_logged_for_a_wrong_storage_key(azurite: Azurite) -> None:
    wrong = re.sub("AccountKey=[^;]*", "AccountKey=AAAA", azurite.connection_string)
    assert [stable(line) for line in BLOCKS[WITH_STORAGE]] == logged(lambda: read_a_row(wrong))


def test_each_line_of_the_log_has_a_time_and_each_request_an_id() -> None:
    lines = [line for block in BLOCKS for line in block]
    assert all(line["timestamp"].endswith("Z") for line in lines)
    assert all("request_id" in line and "ms" in line for line in lines if line["event"] == "request")


def test_the_page_shows_the_error_for_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = str(busy.getsockname()[1])
        command = [sys.executable, "-m", "legacy_queue", "serve", "--storage", "memory", "--port", port]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    assert ended.stderr.replace(f"port {port}", "port 8080") in PAGE
