"""claimWork on real servers: clients that disconnect, and more waiting polls than open files."""

import json
import socket
import threading
from contextlib import ExitStack
from http.client import HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.http.calls import hawk

from .http_queue import Json, Queue
from .processes import LONG, read_all, serve

pytestmark = pytest.mark.processes

FILES = ("sh", "-c", 'ulimit -n 256; exec "$0" "$@"')


def request_for_work(queue: Queue, worker_type: str, *headers: str) -> bytes:
    url = urlsplit(f"{queue.root_url}/v1/claim-work/system/{worker_type}")
    content = json.dumps({"workerGroup": "group", "workerId": "disconnects"})
    lines = [
        f"POST {url.path} HTTP/1.1",
        f"Host: {url.netloc}",
        f"Authorization: {hawk(queue.root, 'POST', url.geturl(), queue.now())}",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", content]).encode()


def test_a_client_that_closes_its_sending_side_while_it_waits_loses_no_claim(
    queue: Queue, worker_type: str
) -> None:
    """The client closes its sending side while a task is created, but still reads the answer."""
    request = request_for_work(queue, worker_type)
    claimed: list[Json] = []
    for _ in range(20):
        with queue.server.connect() as client:
            client.sendall(request)
            create = threading.Thread(target=queue.create, kwargs={"workerType": worker_type, "retries": 0})
            create.start()
            client.shutdown(socket.SHUT_WR)
            answer = HTTPResponse(client)
            answer.begin()
            claimed += json.loads(answer.read())["tasks"]
            create.join(LONG)
    while len(claimed) < 20:
        body = {"workerGroup": "group", "workerId": "connected", "tasks": 32}
        claimed += queue.ask("claimWork", body, **queue.pool, workerType=worker_type)["tasks"]
    assert len({claim["status"]["taskId"] for claim in claimed}) == 20
    assert {claim["runId"] for claim in claimed} == {0}


def test_while_more_polls_wait_than_the_server_can_open_files_a_task_can_still_be_created(
    tmp_path: Path,
) -> None:
    options = ("--storage", "memory", "--claim-work-wait", "2s")
    with serve(tmp_path, *options, under=FILES) as server, ExitStack() as stack:
        queue = Queue(server)
        polls = []
        for _ in range(300):
            connection = stack.enter_context(server.connect())
            connection.sendall(request_for_work(queue, "nothing-to-do", "Connection: close"))
            polls.append(connection)
        for _ in range(3):
            queue.create(workerType="of-others")
        assert {read_all(connection)[:12] for connection in polls} == {b"HTTP/1.1 200"}
