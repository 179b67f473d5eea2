"""claimWork on real servers: long polls that are answered, hung up on, and ended."""

import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from legacy_queue.adapters.azurite import Azurite

from .accounts import as_root, on_account
from .http_queue import Json, Queue, definition
from .processes import LONG, Server, serve

# of each storage: what is decided in the process is shown often where that is cheap
HANG_UPS = pytest.mark.parametrize(
    ("server", "count"), [("memory", 500), ("azurite", 50)], indirect=["server"]
)
CLOSING = pytest.mark.parametrize(("server", "count"), [("memory", 50), ("azurite", 10)], indirect=["server"])


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
    content = json.dumps({"workerGroup": "group", "workerId": "hangs-up"}).encode()
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
def in_background(target: object, *args: object) -> Iterator[list[Json]]:
    """What it answers, once the context is over."""
    answer: list[Json] = []
    thread = threading.Thread(target=lambda: answer.extend(target(*args)))  # type: ignore[operator]
    thread.start()
    yield answer
    thread.join(LONG)
    assert not thread.is_alive()


def finish(queue: Queue, claim: Json) -> None:
    """The worker reports with the claim's credentials."""
    holder = queue.with_credentials(claim["credentials"])
    run = claim["status"]["taskId"], claim["runId"]
    assert holder.on_run(run, "reclaim").status_code == 200
    assert holder.on_run(run, "completed").status_code == 200


def test_work_is_claimed_by_who_waits_for_it(queue: Queue, worker_type: str) -> None:
    with in_background(claim_work, queue, worker_type) as claims:
        task_id = queue.create(definition(worker_type))
    [claim] = claims
    assert (claim["status"]["taskId"], claim["runId"]) == (task_id, 0)
    finish(queue, claim)
    assert queue.runs(task_id) == [("completed", "completed")]


def test_work_that_another_server_has_is_claimed(tmp_path: Path, azurite: Azurite) -> None:
    env = on_account(azurite)
    with serve(tmp_path / "a", env=env) as here, serve(tmp_path / "b", env=env) as there:
        with in_background(claim_work, as_root(here), "shared") as claims:
            task_id = as_root(there).create(definition("shared"))
        assert [claim["status"]["taskId"] for claim in claims] == [task_id]


def test_each_task_is_claimed_once_by_many_that_wait(queue: Queue, worker_type: str) -> None:
    with ExitStack() as stack:
        waiting = [
            stack.enter_context(in_background(claim_work, queue, worker_type, f"worker-{number}"))
            for number in range(20)
        ]
        tasks = sorted(queue.create(definition(worker_type)) for _ in range(20))
    assert sorted(claim["status"]["taskId"] for claims in waiting for claim in claims) == tasks


@HANG_UPS
def test_clients_that_hung_up_claim_nothing(queue: Queue, worker_type: str, count: int) -> None:
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
    assert all(queue.status(one)["retriesLeft"] == 0 for one in tasks)


@CLOSING
def test_a_claim_is_lost_between_a_client_that_hangs_up_and_its_answer(
    queue: Queue, worker_type: str, count: int
) -> None:
    """It closes its side of the connection while work comes, and still sees what it is answered."""
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
    """The claims in an answer; the server closes the connection after it."""
    answer = HTTPResponse(client)
    answer.begin()
    assert answer.status == 200
    return list(json.loads(answer.read())["tasks"])


def test_sigterm_answers_who_waits_that_there_is_no_work(tmp_path: Path) -> None:
    with serve(tmp_path, "--storage", "memory") as server:
        queue = Queue(server)
        with ExitStack() as stack:
            clients = [stack.enter_context(connect(server)) for _ in range(20)]
            queue.ask("GET", "/ping")  # on a connection that is accepted after those
            for client in clients[:10]:
                client.sendall(request_for_work(queue, "none"))
            queue.ask("GET", "/ping")
            server.send(signal.SIGTERM)
            assert answered(clients[0]) == []
            for client in clients[10:]:  # they had connected, and have a second to send
                client.sendall(request_for_work(queue, "none"))
            assert [answered(client) for client in clients[1:]] == [[]] * 19
        assert server.wait() == 0
