"""What tasks cost on Azure. scripts/scale runs this: the real services on virtual time.

Tasks are created at a rate. Each task waits for a while. Then a worker polls its signed URL, claims the task
at any server, and reports it after a while. "Calls a task" are the servers' calls to Azure. The workers'
polls are counted separately.

Rate and limits are scaled down together, so that only --tasks tasks have to be simulated. Then fewer calls
come to a server at the same time, and fewer of them share a write of its row. So "calls a task" is an upper
bound. For a scale of 1, set --tasks to 56 times the rate. Prices are inputs: look yours up.

Azure limits the rows a second of a partition. A batch counts with all its rows, a page counts as one. The
limit is for rows of 1 KiB, so for the hottest partition of each table, the KiB a second that are written are
printed too. Reads that a server makes once every few seconds, such as the record of a pool, count too often
at a small scale.
"""

import argparse
import functools
import logging
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click
import structlog

from legacy_queue.domain.errors import QueueError, ServiceUnavailable
from legacy_queue.domain.messages import read_message
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import Worker
from legacy_queue.domain.times import format_time
from legacy_queue.ports.queue import QueuedMessage, QueueNotFound
from legacy_queue.services.recovery.job_definitions import Intervals
from legacy_queue.services.services import Services
from legacy_queue.services.tasks.claims import ClaimProof
from tests.domain.sample_tasks import task_body
from tests.simulation.world import PREFIX, SETTINGS, Call, ConnectionLost, Process, World

Result = TypeVar("Result")

PROVISIONER = "p"
POLLS = "polls"  # the workers' polls
LOADS = ("10x1", "10x3", "100x3", "100x6", "1000x10", "1000x32", "5000x32")
# The name, default and help of each option. The limits are from Azure's "Scalability and performance targets"
# for queues and tables.
NUMBERS = (
    ("tasks", 3000, "how many tasks to simulate"),
    ("pause", 12.0, "seconds between creation and claim, and between claim and report"),
    ("seconds", 20.0, "for how many seconds to count"),
    ("pools", 20, "how many pools the tasks are in"),
    ("cpu", 23.0, "ms of CPU that a server needs for a task, as scripts/bench measures on Azurite"),
    ("busy", 0.7, "which share of a core each server may use"),
    ("queue-price", 0.4, "price of a million calls of queues, in $"),
    ("table-price", 0.036, "price of a million calls of tables, in $"),
    ("seed", 1, "seed of the random numbers"),
    ("queue", 2000.0, "limit of calls a second for a queue"),
    ("partition", 2000.0, "limit of rows a second for a partition of a table"),
    ("account", 20000.0, "limit of calls a second for an account"),
    ("retry-after", 1.0, "seconds that Azure asks to wait after a 503"),
    ("queue-latency", 0.008, "seconds that a call of a queue takes on average"),
    ("table-latency", 0.006, "seconds that a call of a table takes on average"),
)
_BURST = 1.0  # seconds; the calls that were not used in this time can be made at once
# seconds that the adapter waits before each retry
_DELAYS = {"queue": (0.1, 1.0), "table": (0.1, 0.2), "blob": (0.1, 1.0)}
_REFUSED_AFTER = 0.004  # seconds until a 503 comes
_TRIES = 5
_IDLE = 20.0  # seconds before the first task
_MONTH = 30 * 86400
_SETTINGS = replace(
    SETTINGS,
    claim_timeout=timedelta(minutes=20),
    poll_visibility=timedelta(minutes=5),
    max_polls=32,  # the same as in wiring for Azure
)


class Simulation:
    """Servers that use Azure within its limits, and their clients.

    A call above a limit is answered with 503, and repeated as often as by the adapter.

    - ``sent`` counts the requests by service, kind, and queue or partition.
    - ``rows`` counts the rows of each partition, and ``written`` the bytes written there.
    - ``refused`` counts the requests that were answered with 503.
    - ``waits`` has the seconds from create to claim.
    - All limits are multiplied by ``scale``.
    """

    def __init__(self, options: argparse.Namespace, servers: int, scale: float) -> None:
        self.options = options
        self.world = World(options.seed, settings=_SETTINGS)
        self.world.intervals = Intervals()
        self.time = self.world.time
        self.world.before = self.admit
        self.world.latency = self._latency
        self.scale = scale
        self.sent: Counter[tuple[str, str, str]] = Counter()
        self.rows: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        self.refused = 0
        self._admitted: dict[str, float] = defaultdict(lambda: -_BURST)
        self.servers = [self.world.new_process() for _ in range(servers)]
        self.random = self.world.random("clients")
        self.waits: list[float] = []
        self.failed = 0
        self._free: dict[str, list[Worker]] = defaultdict(list)
        self._workers = 0

    def clear(self) -> None:
        """Set all counts to zero."""
        for counter in (self.sent, self.rows, self.written):
            counter.clear()
        self.refused = 0
        self.waits.clear()

    def admit(self, call: Call) -> None:
        """Wait until Azure serves the call. Raises ServiceUnavailable, like the adapter."""
        if call.service in _DELAYS:
            delays = () if call.method == "receive" else _DELAYS[call.service]
            rows = changed_rows(call)
            if call.service == "table":
                self.written[call.place] += sum(map(row_size, rows))
            self.send(call.service, call.name, call.place, delays, max(1, len(rows)))

    def send(
        self, service: str, name: str, place: str, delays: tuple[float, ...] = (), rows: int = 1
    ) -> None:
        """Send a request, and repeat it after each of the delays if Azure does not serve it."""
        for delay in (*delays, None):
            self.sent[service, name, place] += 1
            if service == "table":
                self.rows[place] += rows
            if self._is_admitted(service, place, rows):
                return
            self.refused += 1
            self.time.sleep(_REFUSED_AFTER)
            if delay is not None:
                pause = max(delay, self.options.retry_after)
                self.time.sleep(pause * self.world.random("retry").uniform(1, 1.5))
        raise ServiceUnavailable("the storage did not serve the request, try again")

    def _is_admitted(self, service: str, place: str, rows: int) -> bool:
        now = self.time.now
        limit = self.options.queue if service == "queue" else self.options.partition
        limits = {f"{service} {place}": limit / rows, "account": self.options.account}
        free = {
            key: max(self._admitted[key], now - _BURST) + min(_BURST, 1 / limit / self.scale)
            for key, limit in limits.items()
        }
        if max(free.values()) > now:
            return False
        self._admitted.update(free)
        return True

    def _latency(self, call: Call) -> float:
        limits = self.options
        average: float = limits.queue_latency if call.service == "queue" else limits.table_latency
        return average * self.world.random("latency").uniform(0.5, 1.5)

    def server(self, task_id: str) -> Process:
        """The server to which the load balancer sends a call about this task."""
        by_path = random.Random(task_id) if self.options.routing == "path" else self.random
        return by_path.choice(self.servers)

    def ask(self, task_id: str, act: Callable[[Services], Result]) -> Result | None:
        """The answer of a server. None if all tries failed."""
        for number in range(_TRIES):
            with suppress(ServiceUnavailable, ConnectionLost):
                return self.server(task_id).request(act)
            self.time.sleep(self.random.uniform(0.5, 1.5) * 0.2 * 2**number)
        self.failed += 1
        return None

    def run_task(self, worker_type: str) -> None:
        """Create a task and let it wait. Then a worker polls for the oldest task of the pool and runs it."""
        begun = self.time.now
        task_id = self.world.task_id()
        now = self.world.clock.now()
        deadline = format_time(now + timedelta(hours=1))
        body = task_body(now, provisionerId=PROVISIONER, workerType=worker_type, deadline=deadline)
        if self.ask(task_id, lambda server: server.tasks.create(task_id, body)) is None:
            return
        created = self.time.now
        self._pause()
        polled = self.time.now
        worker = self._worker(worker_type)
        claim = self._claim(worker_type, worker)
        if claim:
            self.waits.append(created - begun + self.time.now - polled)
            self._pause()
            self._report(claim["status"]["taskId"], claim["runId"])
        self._free[worker_type].append(worker)

    def _pause(self) -> None:
        self.time.sleep(self.random.uniform(0.7, 1.3) * self.options.pause)

    def _report(self, task_id: str, run_id: int) -> None:
        def report(server: Services) -> object:
            server.tasks.recall(task_id)  # like a request, which needs the task to check its scopes
            return server.tasks.report(task_id, run_id, "completed", "completed")

        self.ask(task_id, report)

    def _worker(self, worker_type: str) -> Worker:
        if self._free[worker_type]:
            return self._free[worker_type].pop()
        self._workers += 1
        return Worker("group", f"worker-{self._workers}")

    def _claim(self, worker_type: str, worker: Worker) -> Any:
        message = self._poll(worker_type)
        if message is None:
            return None
        task_id, run_id, signature = read_message(message.text)
        proof = ClaimProof(message.lease.message_id, message.lease.receipt, signature)

        def claim(server: Services) -> object:
            return server.claims.claim(server.tasks.recall(task_id), run_id, worker, proof, "worker")

        with suppress(QueueError):  # the message was a duplicate
            return self.ask(task_id, claim)
        return None

    def _poll(self, worker_type: str) -> QueuedMessage | None:
        """Poll for a message of the pool. None if there is none for a long time."""
        queue = WorkQueue(PROVISIONER, worker_type, "lowest").name(PREFIX)
        for number in range(30):
            with suppress(ServiceUnavailable, QueueNotFound):
                self.send("queue", POLLS, queue)
                self.time.sleep(self.options.queue_latency)
                received = self.world.account.queue(queue).receive(1, self.world.settings.poll_visibility)
                if received:
                    return received[0]
            self.time.sleep(min(5, 0.2 * 2**number))
        return None


def changed_rows(call: Call) -> list[Mapping[str, Any]]:
    """The values of each row that the call writes or deletes. Empty if the call reads."""
    if call.method == "batch":
        return [change.values for change in call.words[1]]
    if call.method in ("insert", "put", "merge"):
        return [values for values in call.words if isinstance(values, Mapping)]
    return [{}] if call.method == "delete" else []


def row_size(values: Mapping[str, Any]) -> int:
    """The size of a row in bytes. Azure counts two for each character."""
    return sum(
        2 * len(name) + (2 * len(value) if isinstance(value, str) else 8) for name, value in values.items()
    )


@dataclass
class Found:
    """The result for one load.

    ``row`` is its row in the printed table. ``kinds`` are the calls a task by kind. ``hottest`` has the rows
    a second and KiB a second of the hottest partition of each table.
    """

    row: dict[str, str]
    kinds: Counter[str]
    hottest: Mapping[str, tuple[float, float]]


def load(options: argparse.Namespace, rate: float, servers: int) -> Found:
    """Simulate ``rate`` tasks a second."""
    begin = _IDLE + 3 * options.pause  # by then the numbers of new and of completed tasks are about the same
    scale = min(1.0, options.tasks / (rate * (begin - _IDLE + options.seconds)))
    simulation = Simulation(options, servers, scale)
    world = simulation.world
    made = 0

    def create_tasks() -> None:
        nonlocal made
        while True:
            world.spawn(functools.partial(simulation.run_task, f"w{made % options.pools}"))
            made += 1
            world.time.sleep(simulation.random.expovariate(rate * scale))

    world.run(_IDLE / 2)  # until the servers have started
    simulation.clear()
    world.run(_IDLE)
    # calls that the servers make without any tasks are not scaled
    part = (1 - scale) * options.seconds / (_IDLE / 2)
    beside = {key: count * part for key, count in simulation.sent.items()}
    beside_rows = {place: count * part for place, count in simulation.rows.items()}
    beside_written = {place: count * part for place, count in simulation.written.items()}
    world.spawn(create_tasks)
    world.run(begin)
    simulation.clear()
    made = 0
    world.run(begin + options.seconds)
    kinds: Counter[str] = Counter()
    places: dict[str, Counter[str]] = defaultdict(Counter)
    money = 0.0
    for (service, kind, place), count in simulation.sent.items():
        own = max(0, count - beside.get((service, kind, place), 0)) / made
        kinds[kind] += own
        places[service][place] += own
        money += own * (options.table_price if service == "table" else options.queue_price)
    polls = kinds.pop(POLLS, 0)

    (_, queue), *_ = places["queue"].most_common(1)
    hottest: dict[str, tuple[float, float]] = {}
    for place, count in simulation.rows.items():
        rows = max(0, count - beside_rows.get(place, 0)) / made * rate
        size = max(0, simulation.written[place] - beside_written.get(place, 0)) / made * rate / 1024
        table = place.partition("/")[0]
        hottest[table] = max(hottest.get(table, (0, 0)), (rows, size))
    partition = max(hottest, key=lambda table: hottest[table])
    waits = sorted(simulation.waits) or [0.0]
    p50, p99 = (1000 * waits[int(part * len(waits))] for part in (0.5, 0.99))
    row = {
        "tasks/s": f"{rate:g}",
        "servers": f"{servers}",
        "scale": f"{scale:.2f}",
        "calls a task": f"{kinds.total():.1f}",
        "of processes": f"{sum(count for kind, count in kinds.items() if kind.startswith('processes.')):.1f}",
        "of workers' polls": f"{polls:.1f}",
        "hottest queue/s": f"{queue * rate:.0f}",
        "hottest partition, rows/s": f"{hottest[partition][0]:.0f} ({partition})",
        "throttled": f"{simulation.refused / simulation.sent.total():.1%}",
        "create to claim ms p50/p99": f"{p50:.0f}/{p99:.0f}",
        "lost calls": f"{simulation.failed}",
        "servers by CPU": f"{rate * options.cpu / 1000 / options.busy:.1f}",
        "$ a million tasks": f"{money:.2f}",
        "$ a month": f"{money * rate * _MONTH / 1e6:.0f}",
    }
    return Found(row, kinds, hottest)


def plot(loads: Sequence[str], kinds: Sequence[Counter[str]], file: Path) -> None:
    """Draw the calls a task by table and queue."""
    import pygal  # imported here because only a picture needs it

    title = "calls a task"
    chart = pygal.StackedBar(js=(), no_prefix=True, title=title, x_title="tasks/s, servers", x_labels=loads)
    for name in sorted({kind.partition(".")[0] for found in kinds for kind in found}):
        counts = [sum(found[kind] for kind in found if kind.startswith(f"{name}.")) for found in kinds]
        if max(counts) > 0.1:
            chart.add(name, [round(count, 2) for count in counts])
    chart.render_to_file(file)


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    options = parsed()
    all_found: dict[str, Found] = {}
    for rate, servers in options.load:
        found = load(options, rate, servers)
        if not all_found:
            click.echo(f"| {' | '.join(found.row)} |\n|{' --- |' * len(found.row)}")
        click.echo(f"| {' | '.join(found.row.values())} |")
        all_found[f"{rate:g}/s, {servers}"] = found
    for name, found in all_found.items():
        calls = " ".join(f"{kind} {count:.2f}" for kind, count in found.kinds.most_common())
        places = sorted(found.hottest.items(), key=lambda item: item[1], reverse=True)
        hottest = ", ".join(f"{table} {rows:.0f} ({size:.0f})" for table, (rows, size) in places)
        click.echo(f"{name}: calls a task: {calls}")
        click.echo(f"{name}: hottest partition of each table, rows/s (KiB/s): {hottest}")
    if options.plot:
        plot([*all_found], [found.kinds for found in all_found.values()], options.plot)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def pair(text: str) -> tuple[float, int]:
        rate, _, servers = text.partition("x")
        return float(rate), int(servers)

    default = [pair(text) for text in LOADS]
    metavar = "RATExSERVERS"
    parser.add_argument(
        "--load", nargs="*", type=pair, metavar=metavar, default=default, help=" ".join(LOADS)
    )
    parser.add_argument(
        "--routing",
        choices=("any", "path"),
        default="any",
        help="path: all calls about a task go to the same server",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw calls a task, as SVG")
    for name, value, what in NUMBERS:
        parser.add_argument(f"--{name}", type=type(value), default=value, help=f"{what} (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
