"""claimWork on real servers: long polls that are answered, disconnected, and ended."""

import json
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from .conftest import ON_EACH_STORAGE
from .http_queue import Json, Queue, definition
from .processes import LONG, Server, serve

DISCONNECTED = pytest.mark.parametrize(
    ("server", "count"), [("embedded", 200), ("azurite", 50)], indirect=["server"]
)
HALF_CLOSED = pytest.mark.parametrize(
    ("server", "count"), [("embedded", 50), ("azurite", 10)], indirect=["server"]
)


def claim_work(queue: Queue, worker_type: str, worker: str = "one", tasks: int = 1) -> list[Json]:
    body = {"workerGroup": "group", "workerId": worker, "tasks": tasks}
    claims = list(queue.ask("POST", f"/claim-work/system/{worker_type}", body)["tasks"])
    for claim in claims:
        queue.server.secrets.update(
            (claim["credentials"]["accessToken"], claim["credentials"]["certificate"])
        )
    return claims


def request_for_work(queue: Queue, worker_type: str) -> bytes:
    """The bytes of a claimWork."""
    path = f"/claim-work/system/{worker_type}"
    url = queue.server.base_url + path
    content = json.dumps({"workerGroup": "group", "workerId": "disconnects"}).encode()
    head = (
        f"POST {urlsplit(url).path} HTTP/1.1\r\n"
        f"Host: {urlsplit(url).netloc}\r\n"
        f"Authorization: {queue.header('POST', url, content, 'application/json')}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def connect(server: Server) -> socket.socket:
    address = urlsplit(server.root_url)
    return socket.create_connection((address.hostname, address.port), LONG)


@contextmanager
def in_background(target: Callable[..., list[Json]], *args: object) -> Iterator[list[Json]]:
    """Call ``target`` in a thread; the list holds its answer after the context."""
    answer: list[Json] = []
    thread = threading.Thread(target=lambda: answer.extend(target(*args)))
    thread.start()
    yield answer
    thread.join(LONG)
    assert not thread.is_alive()


def finish(queue: Queue, claim: Json) -> None:
    """Reclaim and complete with the claim's credentials."""
    holder = queue.with_credentials(claim["credentials"])
    run = claim["status"]["taskId"], claim["runId"]
    assert holder.on_run(run, "reclaim").status_code == 200
    assert holder.on_run(run, "completed").status_code == 200


@ON_EACH_STORAGE
def test_a_waiting_worker_gets_a_new_task(queue: Queue, worker_type: str) -> None:
    with in_background(claim_work, queue, worker_type) as claims:
        task_id = queue.create(definition(worker_type))
    [claim] = claims
    assert (claim["status"]["taskId"], claim["runId"]) == (task_id, 0)
    finish(queue, claim)
    assert queue.runs(task_id) == [("completed", "completed")]


@ON_EACH_STORAGE
def test_of_many_waiting_workers_each_gets_one_task(queue: Queue, worker_type: str) -> None:
    with ExitStack() as stack:
        waiting = [
            stack.enter_context(in_background(claim_work, queue, worker_type, f"worker-{number}"))
            for number in range(20)
        ]
        tasks = sorted(queue.create(definition(worker_type)) for _ in range(20))
    assert sorted(claim["status"]["taskId"] for claims in waiting for claim in claims) == tasks


@DISCONNECTED
def test_disconnected_clients_claim_nothing(queue: Queue, worker_type: str, count: int) -> None:
    request = request_for_work(queue, worker_type)
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(connect(queue.server)).sendall(request)
    tasks = {queue.create(definition(worker_type, retries=0)) for _ in range(20)}
    claimed: list[Json] = []
    while len(claimed) < len(tasks):
        claimed += claim_work(queue, worker_type, tasks=32)
    assert {claim["status"]["taskId"] for claim in claimed} == tasks
    assert {claim["runId"] for claim in claimed} == {0}
    assert all(queue.status(task_id)["retriesLeft"] == 0 for task_id in tasks)


@HALF_CLOSED
def test_a_client_that_closes_its_sending_side_loses_no_claim(
    queue: Queue, worker_type: str, count: int
) -> None:
    """The client stops sending while a task is created, and still reads its answer."""
    request = request_for_work(queue, worker_type)
    claimed: list[Json] = []
    for _ in range(count):
        with connect(queue.server) as client:
            client.sendall(request)
            create = threading.Thread(target=queue.create, args=[definition(worker_type, retries=0)])
            create.start()
            client.shutdown(socket.SHUT_WR)
            claimed += answered(client)
            create.join(LONG)
    while len(claimed) < count:
        claimed += claim_work(queue, worker_type, tasks=32)
    assert len({claim["status"]["taskId"] for claim in claimed}) == count
    assert {claim["runId"] for claim in claimed} == {0}


def answered(client: socket.socket) -> list[Json]:
    """The claims in an answer, after which the server closes the connection."""
    answer = HTTPResponse(client)
    answer.begin()
    assert answer.status == 200
    return list(json.loads(answer.read())["tasks"])


def test_sigterm_answers_waiting_workers_with_no_tasks(tmp_path: Path) -> None:
    with serve(tmp_path, "--storage", "memory") as server:
        queue = Queue(server)
        with ExitStack() as stack:
            clients = [stack.enter_context(connect(server)) for _ in range(20)]
            queue.ask("GET", "/ping")  # on a connection that is accepted after these
            for client in clients[:10]:
                client.sendall(request_for_work(queue, "none"))
            queue.ask("GET", "/ping")
            server.send(signal.SIGTERM)
            assert answered(clients[0]) == []
            for client in clients[10:]:  # they connected before SIGTERM, and have a second to send
                client.sendall(request_for_work(queue, "none"))
            assert [answered(client) for client in clients[1:]] == [[]] * 19
        assert server.wait() == 0
