"""A fault that closes a connection; tests/http shows the others, and what each leaves behind."""

from urllib.parse import urlsplit

import pytest

from .conftest import Running
from .http_queue import Queue, definition, slugid
from .processes import read_all


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_dropped_request_ends_without_a_byte(running: Running, worker_type: str, when: str) -> None:
    queue = Queue(running("memory", "--control"))
    for endpoint in ("createTask", "azure.receive"):
        queue.ask("POST", "/control/v1/faults", {"endpoint": endpoint, "times": 1, "drop": when})
    poll = urlsplit(queue.poll_urls(worker_type)[-1]["signedPollUrl"])
    for request in (
        b"".join(queue.raw("PUT", f"/task/{slugid()}", definition(worker_type))),
        f"GET {poll.path}?{poll.query} HTTP/1.1\r\nHost: {poll.netloc}\r\n\r\n".encode(),
    ):
        with queue.server.connect() as connection:
            connection.sendall(request)
            assert read_all(connection) == b""
    fired = [fault["fired"] for fault in queue.ask("GET", "/control/v1/faults")["faults"]]
    assert fired == [1, 1]
    assert "Traceback" not in queue.server.errors
    queue.ask("POST", "/control/v1/reset")
