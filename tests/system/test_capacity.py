"""A server with more connections than it can open files."""

import socket
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from .http_queue import Queue, definition
from .processes import LONG, serve

FILES = ("sh", "-c", 'ulimit -n 1024; exec "$0" "$@"')
POLLS = 1100
PATH = "/claim-work/system/nothing-to-do"


def poll(queue: Queue) -> bytes:
    """A claimWork, after which the server closes the connection."""
    url, body = f"{queue.server.base_url}{PATH}", b'{"workerGroup": "group", "workerId": "one"}'
    head = [
        f"POST {urlsplit(url).path} HTTP/1.1",
        f"Host: {urlsplit(url).netloc}",
        f"Authorization: {queue.header('POST', url, body, 'application/json')}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "".join(f"{line}\r\n" for line in [*head, ""]).encode() + body


def answer_on(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_task_is_created_while_more_polls_wait_than_the_server_can_open_files(tmp_path: Path) -> None:
    options = ("--storage", "memory", "--claim-work-wait", "5s")
    with serve(tmp_path, *options, under=FILES) as server, ExitStack() as stack:
        queue, address = Queue(server), urlsplit(server.root_url)
        polls = []
        for _ in range(POLLS):
            connection = socket.create_connection((address.hostname, address.port), LONG)
            polls.append(stack.enter_context(connection))
            connection.sendall(poll(queue))
        for _ in range(3):
            queue.create(definition("of-others"))
        statuses = {answer_on(connection)[:12] for connection in polls}
        assert statuses == {b"HTTP/1.1 200"}
