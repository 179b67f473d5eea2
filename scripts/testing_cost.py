"""What a test suite waits for, and what --control costs a call; run by scripts/testing-cost.

Times are those of this machine, now: so each is also a multiple of another, measured in rounds with it.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from served import cpu, process_of, served

from legacy_queue.cli.create_task import create
from legacy_queue.domain.ids import slugid
from legacy_queue.testing import LegacyQueue
from legacy_queue.worker import Credentials

_AT_ONCE = 200  # calls
_TASKS = 1000  # whose time comes while the clock is moved
_LIFE = timedelta(days=4)
_CALLS_OF_A_RESET = 20  # of status, with which a reset is compared
_ROUNDS = 5  # of 200 calls, in each round
_WARM_UP = 12  # rounds, after which the journal is full
_PLUGIN = "legacy_queue.pytest_plugin"

Row = tuple[str, str, str]


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


def seconds(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def row(what: str, measured: list[float], base: list[float], of: str) -> Row:
    """The median, and the median of the ratios of rounds."""
    ratio = statistics.median(cost / base_cost for cost, base_cost in zip(measured, base, strict=True))
    median = statistics.median(measured) * 1000
    shown = f"{median:.1f} ms" if median >= 1 else f"{median * 1000:.0f} us"
    return what, shown, f"{ratio:.2f} x {of}"


def start_python() -> None:
    subprocess.run([sys.executable, "-c", "import json, ssl, http.client"], check=True)


def ask_for_status(queue: LegacyQueue, task_id: str) -> None:
    for _ in range(_CALLS_OF_A_RESET):
        queue.status(task_id)


def of_server(storage: str, rounds: int) -> Iterator[Row]:
    """Start, reset of an empty server and of a used server."""
    starts, pythons, resets, used, calls = [], [], [], [], []
    for _ in range(rounds):
        pythons.append(seconds(start_python))
        with ExitStack() as stack:
            queue = LegacyQueue(storage=storage)
            starts.append(seconds(partial(stack.enter_context, queue)))
            queue.reset()
            for _ in range(5):
                task_id = queue.create_task(worker_type="builds")
                calls.append(seconds(partial(ask_for_status, queue, task_id)) / _CALLS_OF_A_RESET)
                queue.claim(worker_type="builds")
                used.append(seconds(queue.reset))
                resets.append(seconds(queue.reset))
    yield row(f"start of LegacyQueue, {storage}", starts, pythons, "a start of Python")
    yield row(f"reset after a task, {storage}", used, calls, "a signed call of status")
    yield row(f"reset of an empty server, {storage}", resets, calls, "a signed call of status")


def of_clock(rounds: int) -> Iterator[Row]:
    """A week in which each task's deadline passes; half of the tasks are claimed."""
    moves, creations = [], []
    with LegacyQueue() as queue:
        for _ in range(rounds):
            queue.reset()
            creations.append(seconds(lambda: [queue.create_task(deadline=_LIFE) for _ in range(_TASKS)]))
            for _ in range(_TASKS // 2):
                assert queue.claim()
            moves.append(seconds(lambda: queue.advance("7d")))
    yield row(f"advance of a week over {_TASKS} tasks", moves, creations, "the calls that created them")


def of_import(rounds: int) -> Iterator[Row]:
    """What every run of pytest pays where the package is installed."""
    plugin, whole = [], []
    for _ in range(rounds):
        own, pytest = imported()
        plugin.append(own)
        whole.append(pytest)
    yield row("import of the pytest plugin", plugin, whole, "import of pytest")


def imported() -> tuple[float, float]:
    """Seconds that importing pytest takes, and the plugin after it: the plugin's first."""
    command = [sys.executable, "-X", "importtime", "-c", f"import pytest, {_PLUGIN}"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    # "import time: self | cumulative | name", of what is imported on the way indented
    found = re.findall(rf"\| +(\d+) \| ({re.escape(_PLUGIN)}|pytest)$", lines, re.MULTILINE)
    times = {name: int(cumulative) / 1e6 for cumulative, name in found}
    return times[_PLUGIN], times["pytest"]


def of_control(rounds: int) -> Iterator[Row]:
    """CPU of a call of status with and without, the journal being full; and how far two without it differ."""
    kinds = {"with": ["--control"], "without": [], "also without": []}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        servers = {
            name: stack.enter_context(serving(Path(folder) / name, *options))
            for name, options in kinds.items()
        }
        cpu: dict[str, list[float]] = {name: [] for name in servers}
        for number in range(_WARM_UP + rounds):
            for name in sorted(servers, reverse=bool(number % 2)):
                before = servers[name].cpu()
                calls = sum(servers[name].run_round() for _ in range(_ROUNDS))
                cpu[name].append((servers[name].cpu() - before) / calls)
        measured = {name: [statistics.mean(each[_WARM_UP:])] for name, each in cpu.items()}
        yield row("CPU of status with --control", measured["with"], measured["without"], "without it")
        yield row(
            "CPU of status, also without", measured["also without"], measured["without"], "it: the noise"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/testing-cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-azurite", action="store_true", help="leave out what needs Node.js")
    options = parser.parse_args()
    rounds = options.rounds
    storages = ["memory"] if options.no_azurite else ["memory", "azurite"]
    measurements = [
        *(of_server(storage, rounds) for storage in storages),
        of_clock(max(1, rounds // 2)),
        of_import(3 * rounds),
        of_control(10 * rounds),
    ]
    for measurement in measurements:
        for what, median, ratio in measurement:
            print(f"{what:<42} {median:>11}  {ratio}", flush=True)


if __name__ == "__main__":
    main()
