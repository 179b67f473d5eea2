"""What the log of requests costs a call of status; run by scripts/log-cost.

Two servers on memory storage, whose logs are files, one at --log-level info and one at warning, are called in
rounds over one connection each, so that whatever else the machine does slows both.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from served import cpu, process_of, served

from legacy_queue.cli.create_task import create
from legacy_queue.domain.ids import slugid
from legacy_queue.worker import Credentials

_AT_ONCE = 200  # calls


@dataclass
class Server:
    """A server of status; seconds and CPU seconds of each round of calls."""

    pid: int
    connection: HTTPConnection
    path: str
    seconds: list[float]
    before: float

    def run_round(self) -> int:
        """How many calls it was."""
        begun = time.perf_counter()
        for _ in range(_AT_ONCE):
            self.connection.request("GET", self.path)
            answer = self.connection.getresponse()
            answer.read()
            assert answer.status == 200
        self.seconds.append(time.perf_counter() - begun)
        return _AT_ONCE

    def cpu(self) -> float:
        return cpu(self.pid) - self.before


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Server]:
    """A server with one task, warmed up."""
    own = "--storage", "memory", "--log-level", "warning", "--log-format", "json", "--no-resolvers"
    with served(folder, *own, *options) as (line, _):
        credentials = Credentials(line["credentials"]["clientId"], line["credentials"]["accessToken"], None)
        task_id = slugid()
        create(line["baseUrl"], credentials, task_id, ("provisioner", "worker-type"), ["true"])
        connection = HTTPConnection(urlsplit(line["rootUrl"]).netloc)
        server = Server(process_of(line), connection, f"/v1/task/{task_id}/status", [], 0)
        server.run_round()
        server.seconds.clear()
        server.before = server.cpu()
        yield server


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000, help="of each server")
    rounds = parser.parse_args().calls // _AT_ONCE
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        servers = {
            level: stack.enter_context(serving(Path(folder) / level, "--log-level", level))
            for level in ("warning", "info")
        }
        for number in range(rounds):
            for level in sorted(servers, reverse=bool(number % 2)):
                servers[level].run_round()
        cost = {level: server.cpu() / (rounds * _AT_ONCE) * 1e6 for level, server in servers.items()}
        for level, server in servers.items():
            pace = _AT_ONCE / statistics.median(server.seconds)
            print(f"--log-level {level:<7}  {pace:.0f} calls a second, {cost[level]:.0f} us CPU each")
        ratio = statistics.median(
            logged / bare
            for logged, bare in zip(servers["info"].seconds, servers["warning"].seconds, strict=True)
        )
        print(
            f"with the lines: {ratio:.3f} times as long, {cost['info'] / cost['warning']:.3f} times the CPU"
        )


if __name__ == "__main__":
    main()
