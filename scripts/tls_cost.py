"""What TLS costs a call of status, a new connection and a start; run by scripts/tls-cost.

Two servers on memory storage, one with --tls auto, are called in rounds, so that other load of the machine
slows both: over one kept connection each, and with a connection for each call. ``--half-open`` opens so
many connections with half a head, or half a handshake, and calls each beside them. CPU is the server's.
"""

import argparse
import json
import socket
import ssl
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

from served import Line, authorization, cpu, definition, process_of, served

from legacy_queue.domain.ids import slugid

_AT_ONCE = 100  # calls in a round
_KEPT, _NEW = "kept connection", "new connections"
_TASK = f"/v1/task/{slugid()}"
_STATUS = f"{_TASK}/status"


@dataclass
class Server:
    """A server that is called; seconds and CPU seconds of each round, by the kind of connection."""

    pid: int
    start: float
    address: tuple[str, int]
    context: ssl.SSLContext | None
    seconds: dict[str, list[float]] = field(default_factory=lambda: {_KEPT: [], _NEW: []})
    cpu: dict[str, float] = field(default_factory=lambda: {_KEPT: 0.0, _NEW: 0.0})

    def connect(self) -> HTTPConnection:
        host, port = self.address
        return (
            HTTPSConnection(host, port, context=self.context) if self.context else HTTPConnection(host, port)
        )

    def create_task(self, line: Line) -> None:
        body = json.dumps(definition("none")).encode()
        headers = {"Authorization": authorization(line, "PUT", _TASK, body=body)}
        connection = self.connect()
        connection.request("PUT", _TASK, body, {**headers, "Content-Type": "application/json"})
        assert connection.getresponse().status == 200
        connection.close()

    def run_round(self, kind: str) -> None:
        before, begun = cpu(self.pid), time.perf_counter()
        connection = self.connect()
        for _ in range(_AT_ONCE):
            connection.request("GET", _STATUS)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
            if kind is _NEW:
                connection.close()
        connection.close()
        self.seconds[kind].append(time.perf_counter() - begun)
        self.cpu[kind] += cpu(self.pid) - before


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Server]:
    """A server that is warmed up."""
    begun = time.perf_counter()
    quiet = "--storage", "memory", "--log-level", "warning", "--no-resolvers"
    with served(folder, *quiet, *options) as (line, _):
        start, url = time.perf_counter() - begun, urlsplit(line["rootUrl"])
        context = ssl.create_default_context(cafile=line["ca"]["certificate"]) if "ca" in line else None
        server = Server(process_of(line), start, (url.hostname or "", url.port or 0), context)
        server.create_task(line)
        for kind in (_KEPT, _NEW):
            server.run_round(kind)
            server.seconds[kind].clear()
            server.cpu[kind] = 0.0
        yield server


def beside_half_open(server: Server, count: int) -> float:
    """Seconds of the slowest of some calls with new connections, beside so many that have sent half of what
    comes first: a handshake or a head.
    """
    half = b"\x16\x03\x01\x02\x00\x01" if server.context else b"GET / HTTP/1.1\r\nHost:"
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection(server.address)).sendall(half)
        times = []
        for _ in range(20):
            begun = time.perf_counter()
            connection = server.connect()
            connection.request("GET", _STATUS)
            assert connection.getresponse().read()
            connection.close()
            times.append(time.perf_counter() - begun)
        return max(times)


def starts(folder: Path, *options: str) -> float:
    """Seconds until the ready line, of the second start."""
    for _ in range(2):
        with serving(folder, *options) as server:
            start = server.start
    return start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=5_000, help="of each server, of each kind")
    parser.add_argument("--half-open", type=int, default=4_000)
    options = parser.parse_args()
    rounds = options.calls // _AT_ONCE
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        plain = stack.enter_context(serving(folder / "http"))
        tls = stack.enter_context(serving(folder / "https", "--tls", "auto"))
        for kind in (_KEPT, _NEW):
            for number in range(rounds):
                for server in sorted((plain, tls), key=id, reverse=bool(number % 2)):
                    server.run_round(kind)
            ratio = statistics.median(
                secured / bare for secured, bare in zip(tls.seconds[kind], plain.seconds[kind], strict=True)
            )
            cost = [server.cpu[kind] / (rounds * _AT_ONCE) * 1e6 for server in (plain, tls)]
            print(
                f"{kind}: {ratio:.2f} times as long with TLS, {cost[1] / cost[0]:.2f} times the CPU "
                f"({cost[0]:.0f} -> {cost[1]:.0f} us)"
            )
        heads, handshakes = (beside_half_open(server, options.half_open) * 1e3 for server in (plain, tls))
        print(
            f"the slowest of 20 calls takes {heads:.0f} ms beside {options.half_open} half heads, "
            f"and with TLS {handshakes:.0f} ms beside as many half handshakes"
        )
        print(f"first start, to the ready line: {plain.start:.2f} s, with TLS {tls.start:.2f} s")
        again = starts(folder / "http"), starts(folder / "https", "--tls", "auto")
        print(f"a later start: {again[0]:.2f} s, with TLS {again[1]:.2f} s")


if __name__ == "__main__":
    main()
