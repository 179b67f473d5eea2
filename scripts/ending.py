"""From SIGTERM to the exit of a real server; run by scripts/ending."""

import argparse
import json
import signal
import socket
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from served import authorization, served

from legacy_queue.domain.ids import slugid

_CONNECTIONS = 20
_LIMIT = 60.0  # seconds


def request(line: dict[str, Any], kind: str) -> bytes:
    """The head and the body of a request whose answer does not end by itself soon."""
    url = urlsplit(line["rootUrl"])
    if kind == "streams":
        return f"GET /events HTTP/1.1\r\nHost: {url.netloc}\r\n\r\n".encode()
    method, target, body = "GET", "/v1/ping", b""
    if kind == "polls":
        method, target = "POST", "/v1/claim-work/ending/idle"
        body = json.dumps({"tasks": 1, "workerGroup": "ending", "workerId": slugid()}).encode()
    head = f"{method} {target} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Length: {len(body)}\r\n"
    head += f"Content-Type: application/json\r\nAuthorization: {authorization(line, method, target)}\r\n\r\n"
    return head.encode() + body


def ended(storage: str, kind: str, folder: str, wait: float) -> float:
    """The seconds that one server takes to end, so long after these requests have come in."""
    with served(Path(folder), "--storage", storage) as (line, server), ExitStack() as stack:
        url = urlsplit(line["rootUrl"])
        for _ in range(_CONNECTIONS if kind != "idle" else 1):
            connection = stack.enter_context(socket.create_connection((url.hostname, url.port), _LIMIT))
            connection.sendall(request(line, kind))
            if kind != "polls":
                assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        time.sleep(wait)
        begun = time.perf_counter()
        server.send_signal(signal.SIGTERM)
        assert server.wait(_LIMIT) == 0
        return time.perf_counter() - begun


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    written = "seconds before the end; after 12 it is written down which workers there are"
    parser.add_argument("--wait", type=float, default=12, help=written)
    options = parser.parse_args()
    for storage in ("memory", "embedded", "azurite"):
        for kind in ("idle", "streams", "polls"):
            with tempfile.TemporaryDirectory() as folder:
                seconds = [ended(storage, kind, folder, options.wait) for _ in range(options.rounds)]
            median, longest = statistics.median(seconds), max(seconds)
            print(f"{storage:<8} {kind:<8} median {median:.2f} s, longest {longest:.2f} s", flush=True)


if __name__ == "__main__":
    main()
