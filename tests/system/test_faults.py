"""Faults, the journal and peeked messages of a real server with --control.

On Azurite the server's gateway is between the clients and the storage.
"""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from . import uploads
from .conftest import Running
from .http_queue import Json, Queue, definition, delete, slugid
from .processes import LONG, work


@pytest.fixture
def memory(running: Running) -> Queue:
    return Queue(running("memory", "--control"))


@pytest.fixture
def queue(running: Running) -> Queue:
    return Queue(running("azurite", "--control"))


@contextmanager
def fault(queue: Queue, endpoint: str, **fields: Any) -> Iterator[str]:
    """Inject a fault that happens once in the context; yields its id."""
    fault_id = queue.ask("POST", "/control/v1/faults", {"endpoint": endpoint, "times": 1, **fields})[
        "faultId"
    ]
    yield fault_id
    assert queue.ask("DELETE", f"/control/v1/faults/{fault_id}")["fired"] == 1


def journal(queue: Queue) -> list[Json]:
    return list(queue.ask("GET", "/control/v1/requests")["requests"])


def messages(queue: Queue, worker_type: str) -> list[Json]:
    return list(queue.ask("GET", f"/control/v1/messages/system/{worker_type}")["messages"])


def answer_to(method: str, url: str, headers: str = "", body: bytes = b"") -> bytes:
    """All bytes until the server closes the connection."""
    parts = urlsplit(url)
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    head = (
        f"{method} {target} HTTP/1.1\r\nHost: {parts.netloc}\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((parts.hostname, parts.port), LONG) as connection:
        connection.sendall(head.encode() + body)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize(("when", "status"), [("before", 404), ("after", 200)])
def test_a_dropped_call_ends_without_a_byte(memory: Queue, worker_type: str, when: str, status: int) -> None:
    task_id, url = slugid(), f"{memory.server.base_url}/task/"
    body = json.dumps(definition(worker_type)).encode()
    authorization = memory.header("PUT", url + task_id, body, "application/json")
    headers = f"Authorization: {authorization}\r\nContent-Type: application/json\r\n"
    with fault(memory, "createTask", drop=when) as fault_id:
        assert answer_to("PUT", url + task_id, headers, body) == b""
    assert memory.send("GET", f"/task/{task_id}/status").status_code == status
    [entry] = [entry for entry in journal(memory) if entry.get("fault") == fault_id]
    assert (entry["endpoint"], entry["taskId"], entry["status"]) == ("createTask", task_id, 0)
    assert (entry["reason"], "code" in entry) == ("a fault closed the connection", False)


def test_dropped_requests_of_signed_urls_end_without_a_byte(memory: Queue, worker_type: str) -> None:
    task_id = memory.create(definition(worker_type))
    urls = memory.poll_urls(worker_type)[-1]
    with fault(memory, "azure.receive", drop="after"):
        assert answer_to("GET", urls["signedPollUrl"]) == b""
    assert [message["dequeueCount"] for message in messages(memory, worker_type)] == [1]
    memory.claim_by_name(task_id, 0)
    artifact = f"/task/{task_id}/runs/0/artifacts/public/a"
    url = memory.ask("POST", artifact, uploads.body("s3"))["putUrl"]
    with fault(memory, "upload", drop="before"):
        assert answer_to("PUT", url, f"Content-Type: {uploads.TEXT}\r\n", b"x" * 100_000) == b""
    assert answer_to("PUT", url, f"Content-Type: {uploads.TEXT}\r\nConnection: close\r\n").startswith(
        b"HTTP/1.1 200"
    )
    assert "Traceback" not in memory.server.errors


def test_faults_lose_double_and_spoil_messages(queue: Queue, worker_type: str) -> None:
    urls = queue.poll_urls(worker_type)[-1]
    lost = queue.create(definition(worker_type))
    with fault(queue, "azure.receive", lose=True, taskId=lost):
        assert queue.poll_one(urls) == []
    assert messages(queue, worker_type) == []

    doubled = queue.create(definition(worker_type))
    with fault(queue, "azure.receive", double=True):
        received = queue.poll_one(urls) + queue.poll_one(urls)
    assert [message.run for message in received] == [(doubled, 0)] * 2
    claims = [queue.claim_by_name(doubled, 0, worker).status_code for worker in ("one", "two")]
    assert claims == [200, 409]
    assert [delete(urls, message) for message in received] == [204, 204]

    queue.create(definition(worker_type))
    with fault(queue, "azure.receive", stale=True):
        [message] = queue.poll_one(urls)
    assert delete(urls, message) == 400
    assert queue.claim(message).status_code == 200

    queue.create(definition(worker_type))
    [message] = queue.poll_one(urls)
    with fault(queue, "azure.delete", status=503, taskId=message.task_id):
        assert delete(urls, message) == 503
    assert delete(urls, message) == 204


def test_the_journal_lists_the_requests_of_a_worker_on_azurite(
    queue: Queue, worker_type: str, tmp_path: Path
) -> None:
    task_id = queue.create(definition(worker_type))
    after = journal(queue)[-1]["sequence"]
    with (
        fault(queue, "azure.receive", status=503),
        fault(queue, "claimTask", status=503, worker="local/tested"),
        work(
            tmp_path,
            queue.server,
            worker_type,
            *("--max-tasks", "1", "--protocol", "deployed"),
            *("--worker-group", "local", "--worker-id", "tested"),
        ) as worker,
    ):
        assert worker.wait() == 0
    assert queue.runs(task_id) == [("completed", "completed")]
    requested = [
        (entry["endpoint"], entry["status"])
        for entry in queue.ask("GET", f"/control/v1/requests?after={after}")["requests"]
        if entry.get("taskId") == task_id and entry["endpoint"] not in ("status", "task")
    ]
    expected = [
        ("azure.receive", 200),
        ("claimTask", 503),
        ("claimTask", 200),
        ("azure.delete", 204),
        ("createArtifact", 200),
        ("upload", 200),
        ("reportCompleted", 200),
    ]
    assert list(dict.fromkeys(requested)) == expected
