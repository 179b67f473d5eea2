"""What tasks and waiting workers cost on Azure: the real services on virtual time; run by scripts/scale.

load: tasks at a rate. Each waits for a while, a worker polls its signed URL and claims it at any server, and
reports it after a while. Calls a task are those of the servers; polls and deletions by workers come beside
them. idle: workers wait in claimWork, and few tasks come.

Rate and limits are scaled down together, so that --tasks are simulated. Then fewer calls come at the same
time in a server, whose timers could share an operation: calls a task are an upper bound. A real scale of 1
needs --tasks of rate x 56. Prices are inputs: look yours up.
"""

import argparse
import functools
import logging
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
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
from legacy_queue.ports import Clock
from legacy_queue.ports.queue import QueuedMessage, QueueNotFound
from legacy_queue.services.composition import Services
from legacy_queue.services.tasks.claims import ClaimProof
from tests.domain.tasks import task_body
from tests.simulation.azure_limits import AzureLimits, Limits
from tests.simulation.world import PREFIX, SETTINGS, ConnectionLost, Process, World

Result = TypeVar("Result")

PROVISIONER = "p"
POLLS = "polls"  # of workers
_TRIES = 5
_IDLE = 20.0  # seconds before the first task
_WARM_UP = 45.0  # seconds of waiting workers
_MONTH = 30 * 86400
_SETTINGS = replace(
    SETTINGS,
    claim_timeout=timedelta(minutes=20),
    poll_visibility=timedelta(minutes=5),
    max_polls=32,  # as wiring has it for Azure
)
COLUMNS = (
    "tasks/s",
    "servers",
    "calls a task",
    "of timers",
    "of workers' polls",
    "hottest queue/s",
    "hottest partition/s",
    "throttled",
    "create to claim ms p50/p99",
    "lost calls",
    "servers by CPU",
    "$ a million tasks",
    "$ a month",
)
IDLE_COLUMNS = (
    "pools",
    "servers",
    "tasks/s",
    "calls/s",
    "calls/s of a server",
    "create to claim ms p50/p99",
    "$ a month",
)


def body_for(clock: Clock, worker_type: str) -> dict[str, Any]:
    """A definition whose deadline is an hour away."""
    deadline = format_time(clock.now() + timedelta(hours=1))
    return task_body(clock.now(), provisionerId=PROVISIONER, workerType=worker_type, deadline=deadline)


class Simulation:
    """Servers under Azure's limits, and their clients. ``took`` are the seconds of calls, by name."""

    def __init__(self, options: argparse.Namespace, servers: int, scale: float = 1) -> None:
        self.options = options
        self.world = World(options.seed, settings=_SETTINGS, shards=options.shards)
        self.time = self.world.time
        self.azure = AzureLimits(self.world, options.limits, scale)
        self.servers = [self.world.new_process() for _ in range(servers)]
        self.random = self.world.random("clients")
        self.took: dict[str, list[float]] = defaultdict(list)
        self.failed = 0
        self._free: dict[str, list[Worker]] = defaultdict(list)
        self._workers = 0
        self.created: dict[str, float] = {}  # tasks that wait for their claim by claimWork

    def server(self, about: str) -> Process:
        """Where the load balancer sends a call about that task or pool."""
        by_path = random.Random(about) if self.options.routing == "path" else self.random
        return by_path.choice(self.servers)

    def ask(self, name: str, task_id: str, act: Callable[[Services], Result]) -> Result | None:
        """The answer, None for none after all tries."""
        begun = self.time.now
        for number in range(_TRIES):
            with suppress(ServiceUnavailable, ConnectionLost):
                answer = self.server(task_id).request(act)
                self.took[name].append(self.time.now - begun)
                return answer
            self.time.sleep(self.random.uniform(0.5, 1.5) * 0.2 * 2**number)
        self.failed += 1
        return None

    def create(self, task_id: str, worker_type: str) -> bool:
        body = body_for(self.world.clock, worker_type)
        return self.ask("create", task_id, lambda server: server.tasks.create(task_id, body)) is not None

    def report(self, task_id: str, run_id: int) -> None:
        def report(server: Services) -> object:
            server.tasks.recall(task_id)  # for its scopes
            return server.tasks.report(task_id, run_id, "completed", "completed")

        self.ask("report", task_id, report)

    # By poll URLs

    def life(self, worker_type: str) -> None:
        """A task is created and waits; then a worker polls the oldest and runs it."""
        begun = self.time.now
        task_id = self.world.task_id()
        if not self.create(task_id, worker_type):
            return
        created = self.time.now
        self.pause()
        polled = self.time.now
        worker = self._worker(worker_type)
        claim = self._claim(worker_type, worker)
        if claim:
            self.took["create to claim"].append(created - begun + self.time.now - polled)
            self.pause()
            self.report(claim["status"]["taskId"], claim["runId"])
        self._free[worker_type].append(worker)

    def pause(self) -> None:
        self.time.sleep(self.random.uniform(0.7, 1.3) * self.options.pause)

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
        with suppress(QueueError):  # a duplicate
            return self.ask(
                "claim",
                task_id,
                lambda server: server.claims.claim(
                    server.tasks.recall(task_id), run_id, worker, proof, "worker"
                ),
            )
        return None

    def _poll(self, worker_type: str) -> QueuedMessage | None:
        """A message of the pool, None if there is none for a long time."""
        queues = [
            WorkQueue(PROVISIONER, worker_type, "lowest", n).name(PREFIX) for n in range(self.world.shards)
        ]
        self.random.shuffle(queues)
        for number in range(30):
            queue = queues[number % len(queues)]
            with suppress(ServiceUnavailable, QueueNotFound):
                self.azure.send("queue", POLLS, queue)
                self.time.sleep(self.options.limits.queue_latency)
                received = self.world.account.queue(queue).receive(1, self.world.settings.poll_visibility)
                if received:
                    return received[0]
            if (number + 1) % len(queues) == 0:
                self.time.sleep(min(5, 0.2 * 2**number))
        return None

    # By claimWork

    def wait_for_work(self, worker_type: str) -> None:
        """A worker that waits in claimWork."""
        worker = self._worker(worker_type)
        while True:
            server = self.server(worker_type)
            with suppress(ServiceUnavailable, ConnectionLost):
                answer = server.request(
                    lambda services: services.claim_work.claim(
                        PROVISIONER, worker_type, worker, 1, lambda: False
                    )
                )
                for claim in answer["tasks"]:
                    task_id = claim["status"]["taskId"]
                    self.took["create to claim"].append(self.time.now - self.created.pop(task_id))
                    self.time.sleep(1)
                    self.report(task_id, claim["runId"])


def load(options: argparse.Namespace, rate: float, servers: int) -> dict[str, Any]:
    """A row of the table, and ``kinds``: calls a task by what they do."""
    begin = _IDLE + 3 * options.pause  # most tasks that have begun by then have ended
    scale = min(1.0, options.tasks / (rate * (begin - _IDLE + options.seconds)))
    simulation = Simulation(options, servers, scale)
    world = simulation.world
    azure = simulation.azure
    made = 0

    def create_tasks() -> None:
        nonlocal made
        while True:
            world.spawn(functools.partial(simulation.life, f"w{made % options.pools}"))
            made += 1
            world.time.sleep(simulation.random.expovariate(rate * scale))

    world.time.run(_IDLE / 2)  # the servers have begun
    azure.sent.clear()
    world.time.run(_IDLE)
    # what servers do without tasks is not scaled
    part = (1 - scale) * options.seconds / (_IDLE / 2)
    beside = {key: count * part for key, count in azure.sent.items()}
    world.spawn(create_tasks)
    world.time.run(begin)
    azure.sent.clear()
    azure.refused = made = 0
    simulation.took.clear()
    world.time.run(begin + options.seconds)
    requests = azure.sent.total()
    kinds: Counter[str] = Counter()
    places: dict[str, Counter[str]] = {"queue": Counter(), "table": Counter()}
    price = {"queue": options.queue_price, "table": options.table_price, "blob": options.queue_price}
    money = 0.0
    for (service, kind, place), count in azure.sent.items():
        own = max(0, count - beside.get((service, kind, place), 0)) / made
        kinds[kind] += own
        places.setdefault(service, Counter())[place] += own
        money += own * price[service]
    polls = kinds.pop(POLLS, 0)

    def hottest(service: str) -> str:
        (place, count), *_ = places[service].most_common(1)
        return f"{count * rate:.0f} ({_short(place)})"

    row = (
        f"{rate:g}",
        f"{servers}",
        f"{kinds.total():.1f}",
        f"{sum(count for kind, count in kinds.items() if kind.startswith('timers.')):.1f}",
        f"{polls:.1f}",
        hottest("queue"),
        hottest("table"),
        f"{azure.refused / requests:.1%}",
        _percentiles(simulation.took["create to claim"]),
        f"{simulation.failed}",
        f"{rate * options.cpu / 1000 / options.busy:.1f}",
        f"{money:.2f}",
        f"{money * rate * _MONTH / 1e6:.0f}",
    )
    return {**dict(zip(COLUMNS, row, strict=True)), "scale": scale, "tasks": made, "kinds": kinds}


def idle(options: argparse.Namespace, pools: int, servers: int) -> dict[str, Any]:
    """What waiting costs: ``kinds`` are calls a second."""
    simulation = Simulation(options, servers)
    world = simulation.world
    end = _WARM_UP + options.idle_seconds

    def create_tasks() -> None:
        while world.time.now < end - 1:
            task_id = world.task_id()
            simulation.created[task_id] = world.time.now
            simulation.create(task_id, f"w{simulation.random.randrange(pools)}")
            world.time.sleep(1 / options.idle_rate)

    for worker in range(pools * options.waiting):
        wait = functools.partial(simulation.wait_for_work, f"w{worker % pools}")
        world.spawn(wait, simulation.random.uniform(0, 20))
    world.time.run(_WARM_UP)
    simulation.azure.sent.clear()
    world.spawn(create_tasks)
    world.time.run(end)
    kinds: Counter[str] = Counter()
    for (_, kind, _), count in simulation.azure.sent.items():
        kinds[kind] += count / options.idle_seconds
    waits = [world.time.now - created for created in simulation.created.values()]
    row = (
        f"{pools}",
        f"{servers}",
        f"{options.idle_rate:g}",
        f"{kinds.total():.0f}",
        f"{kinds.total() / servers:.1f}",
        _percentiles(simulation.took["create to claim"] + waits),
        f"{kinds.total() * options.queue_price * _MONTH / 1e6:.0f}",
    )
    return {**dict(zip(IDLE_COLUMNS, row, strict=True)), "kinds": kinds}


def _percentiles(seconds: Sequence[float]) -> str:
    found = sorted(seconds)
    return "/".join(f"{1000 * found[int(part * len(found))]:.0f}" for part in (0.5, 0.99)) if found else "-"


def _short(place: str) -> str:
    name = place.removeprefix(f"{PREFIX}-")
    return (
        name if len(name) < 30 and "/" not in name else "work" if "/" not in name else name.partition("/")[0]
    )


def _print(rows: Sequence[dict[str, Any]]) -> None:
    columns = [column for column in rows[0] if column not in ("kinds", "scale", "tasks")]
    click.echo(f"\n| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for row in rows:
        click.echo(f"| {' | '.join(row[column] for column in columns)} |")


def plot(rows: Sequence[dict[str, Any]], file: Path) -> None:
    """Calls a task, by the table or queue."""
    import pygal  # only for a picture

    labels = [f"{row['tasks/s']}/s, {row['servers']}" for row in rows]
    chart = pygal.StackedBar(
        js=(), no_prefix=True, title="calls a task", x_title="tasks/s, servers", x_labels=labels
    )
    names = sorted({kind.partition(".")[0] for row in rows for kind in row["kinds"]})
    for name in names:
        found = [
            sum(count for kind, count in row["kinds"].items() if kind.partition(".")[0] == name)
            for row in rows
        ]
        if max(found) > 0.1:
            chart.add(name, [round(value, 2) for value in found])
    chart.render_to_file(file)


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    options = parsed()
    rows = []
    for rate, servers in options.load:
        begun = time.monotonic()
        rows.append(load(options, rate, servers))
        row = rows[-1]
        kinds = " ".join(f"{kind} {count:.2f}" for kind, count in row["kinds"].most_common() if count >= 0.01)
        took = time.monotonic() - begun
        click.echo(
            f"{rate:g}/s, {servers}: scale {row['scale']:.2g}, {row['tasks']} tasks, {took:.0f} s: {kinds}",
        )
    waits = []
    for pools, servers in options.idle:
        waits.append(idle(options, pools, servers))
        kinds = " ".join(f"{kind} {count:.1f}" for kind, count in waits[-1]["kinds"].most_common())
        click.echo(f"{pools} pools, {servers}: calls/s {kinds}")
    for table in filter(None, (rows, waits)):
        _print(table)
    if options.plot:
        plot(rows, options.plot)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def pair(text: str) -> tuple[float, int]:
        first, _, second = text.partition("x")
        return float(first), int(second)

    add = parser.add_argument
    loads = ["10x1", "10x3", "100x3", "100x6", "1000x10", "1000x32", "5000x32"]
    add(
        "--load",
        nargs="*",
        type=pair,
        metavar="RATExSERVERS",
        default=[*map(pair, loads)],
        help=f"({' '.join(loads)})",
    )
    idles = ["10x3", "1000x10"]
    add(
        "--idle",
        nargs="*",
        type=pair,
        metavar="POOLSxSERVERS",
        default=[*map(pair, idles)],
        help=f"({' '.join(idles)})",
    )
    add("--tasks", type=int, default=3000, help="that are simulated (3000)")
    add("--pause", type=float, default=12, help="seconds before a claim, and before a report (12)")
    add("--pools", type=int, default=20, help="pools of load (20)")
    add("--shards", type=int, choices=range(1, 5), default=1, help="the setting pool-shards (1)")
    add("--routing", choices=("any", "path"), default="any", help="path: by what it is about")
    add("--waiting", type=int, default=1, help="workers of each pool of idle (1)")
    add("--seconds", type=float, default=20, help="that are counted of load (20)")
    add("--idle-seconds", type=float, default=60, help="and of idle (60)")
    add("--idle-rate", type=float, default=1, help="tasks/s of idle (1)")
    add(
        "--cpu",
        type=float,
        default=23,
        help="ms of a server for a task (23, measured on Azurite by scripts/bench)",
    )
    add("--busy", type=float, default=0.7, help="of a core of each server (0.7)")
    add("--queue-price", type=float, default=0.4, help="$ for a million calls of queues (0.4)")
    add("--table-price", type=float, default=0.036, help="$ for a million calls of tables (0.036)")
    for name, value in vars(Limits()).items():
        add(f"--{name.replace('_', '-')}", type=float, default=value, help=f"of Azure ({value:g})")
    add("--seed", type=int, default=1)
    add("--plot", type=Path, metavar="FILE", help="also draw calls a task, as SVG")
    options = parser.parse_args()
    options.limits = Limits(**{name: getattr(options, name) for name in vars(Limits())})
    options.idle = [(int(pools), servers) for pools, servers in options.idle]
    return options


if __name__ == "__main__":
    main()
