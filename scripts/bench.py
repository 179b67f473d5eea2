"""How fast the server is on each storage, beside the floor of Azurite; run by scripts/bench.

Closed loops of create + claim + complete cycles, from this process, against a server of its own for each
side. What is compared runs in turn, in rounds, on the same machine and, for the floor, on the same Azurite:
ratios of one run mean something, figures of two runs do not. "storage" (Azurite's requests) and "CPU" count
what the background does afterwards too; "load" is this process.

Parts: cycle (all storages, and the floor: the operations of scripts/bench_floor.py by a bare client), calls
(each call by itself; what the background does seconds later counts with a later call), growth (embedded:
tasks stored, a large group, pending messages, and how long a start takes), holds (embedded: pings while as
many tasks are stored and as many rows expire), processes (embedded: one and two), waiting (claimWork polls
that find nothing). Options after -- go to `legacy-queue serve`.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench_fill import fill_messages, fill_tasks
from bench_floor import Floor
from bench_load import CYCLE, BenchTask, Sample, Server, Side, cycles, each_call, measured
from bench_report import Report
from bench_revision import Revision, other_revision, this_revision
from served import Line, computed, process_of, served
from waiting import idle, reach

from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time

_QUICK = {
    "rounds": 1, "seconds": 0.1, "clients": [1, 4], "calls": 1, "tasks": [20], "group": 20, "messages": 20,
    "polls": 5, "poll_seconds": 1, "hold_seconds": 1,
}  # fmt: skip
_PILOT = ("--no-resolvers",)  # the next server of the file then sweeps and expires at its start
_PING_PAUSE = 0.005  # seconds


def say(text: str) -> None:
    """What is being done, on standard error."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Benchmark:
    """The parts; each starts what it needs and adds to the report."""

    def __init__(self, options: argparse.Namespace, revisions: Sequence[Revision]) -> None:
        self._options, self._revisions = options, revisions
        self.report = Report()

    async def cycle(self) -> None:
        """Cycles on each storage of each revision, and the floor on this revision's Azurite."""
        with ExitStack() as stack:
            servers: list[Server] = []
            for revision in self._revisions:
                for storage in revision.storages:
                    line = stack.enter_context(self._line(revision, storage))
                    servers.append(Server(storage + revision.suffix, line))
            floors = await self._floors(next(server for server in servers if server.name == "azurite"))
            samples = await self._rounds("cycle", [*servers, *floors], self._options.clients)
        pairs = [("embedded", "memory"), *(("azurite", floor.name) for floor in floors)]
        pairs += [("embedded", f"azurite{revision.suffix}") for revision in self._revisions]
        for side, other in pairs:
            self.report.compare("cycle", samples, side, other, "rate")

    async def processes(self) -> None:
        """One and two server processes."""
        with self._lines("embedded") as single, self._lines("embedded", "--workers", "2") as double:
            sides = [*self._servers("1 process", single), *self._servers("2 processes", double)]
            samples = await self._rounds("processes", sides, self._options.clients[1:])
            self.report.compare("processes", samples, "2 processes", "1 process", "rate")

    async def growth(self) -> None:
        """An empty file and a filled file in rounds."""
        options, group = self._options, slugid()
        for tasks in options.tasks:
            await self._grown(f"{tasks:,} tasks", tasks)
        if options.group:
            await self._grown(f"group of {options.group:,}", options.group, taskGroupId=group)
        if options.messages:
            await self._grown(f"{options.messages:,} messages", options.messages, is_pending=True)

    async def holds(self) -> None:
        """The longest ping with nothing stored, and while the expired rows of a filled file are removed.

        As many tasks stay. One client runs cycles meanwhile, another lists. What the server computes during a
        ping says more of its loop than the time does, in which other processes run too.
        """
        with tempfile.TemporaryDirectory() as folder:
            revision, count = self._revisions[0], self._options.tasks[-1]
            with self._line(revision, "embedded", *_PILOT, folder=Path(folder)) as line:
                pilots = [await _pilot(Server("pilot", line), life) for life in ({}, _short_life())]
            with self._line(revision, "embedded") as line:
                await self._pinged("nothing stored", line)
            for pilot in pilots:
                fill_tasks(Path(folder) / "data", pilot, count)
            with self._line(revision, "embedded", folder=Path(folder)) as line:
                await self._pinged(f"{count:,} tasks, {count:,} expired", line)

    async def calls(self) -> None:
        """Each call by itself, by one client and by some, and its operations in turn on the same Azurite."""
        with self._lines("azurite", revisions=1) as lines, self._lines("embedded", revisions=1) as embedded:
            servers = [*self._servers("azurite", lines), *self._servers("embedded", embedded)]
            floors = await self._floors(servers[0])
            samples: list[Sample] = []
            for number in range(self._options.rounds):
                for clients in self._options.clients[:2]:
                    for side in _rotated([*servers, *floors[:1]], number):
                        say(f"calls: round {number + 1} of {self._options.rounds}, {clients} of {side.name}")
                        samples += await each_call(side, clients, max(self._options.calls, 2 * clients))
            await self._charge(servers)
            self.report.add("calls", samples)
            self.report.compare("calls", samples, "azurite", floors[0].name, "p50")

    async def waiting(self) -> None:
        """Idle polls of claimWork, and how long work takes to reach a poll."""
        options = self._options
        with self._lines("memory", "--claim-work-wait", f"{options.poll_seconds}s") as lines:
            for revision, line in zip(self._revisions, lines, strict=True):
                print(f"\nwaiting   claimWork of memory{revision.suffix}", flush=True)
                say(f"waiting: {options.polls} polls")
                ratio = await reach(line, 0, 6 * options.rounds)
                new, again = await idle(line, options.polls, options.poll_seconds)
                self.report.figures[f"waiting{revision.suffix}"] = {
                    "polls": options.polls,
                    "createTaskToClaimPerCreateTask": ratio,
                    "new": new,
                    "again": again,
                }

    @contextmanager
    def _line(
        self, revision: Revision, storage: str, *words: str, folder: Path | None = None
    ) -> Iterator[Line]:
        """A server of the revision, its data in the folder."""
        with ExitStack() as stack:
            folder = folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            own = revision.azurite_options if storage == "azurite" else ()
            arguments = ("--storage", storage, *own, *words, *self._options.serve)
            server = served(folder, *arguments, program=revision.program, variables=revision.variables)
            yield stack.enter_context(server)[0]

    @contextmanager
    def _lines(self, storage: str, *words: str, revisions: int | None = None) -> Iterator[list[Line]]:
        """A server of each revision that has the storage, this one first."""
        with ExitStack() as stack:
            yield [
                stack.enter_context(self._line(revision, storage, *words))
                for revision in self._revisions[:revisions]
                if storage in revision.storages
            ]

    def _servers(self, name: str, lines: Sequence[Line], **definition: Any) -> list[Server]:
        """As ``_lines`` makes them: a revision without the storage has none."""
        suffixes = [revision.suffix for revision in self._revisions]
        return [
            Server(name + suffix, line, **definition) for suffix, line in zip(suffixes, lines, strict=False)
        ]

    async def _floors(self, server: Server) -> list[Floor]:
        floors = [Floor(server.line, share) for share in self._options.share]
        for floor in floors:
            await floor.prepare()
        return floors

    async def _grown(self, level: str, count: int, *, is_pending: bool = False, **definition: Any) -> None:
        """A filled file beside an empty file, in rounds; ``definition`` is that of the tasks."""
        revision = self._revisions[0]
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            with self._line(revision, "embedded", *_PILOT, folder=folder) as line:
                pilot = await _pilot(Server("pilot", line), definition, is_pending=is_pending)
            say(f"growth: filling {level}")
            if is_pending:
                fill_messages(folder / "data", count)
            else:
                task_ids = fill_tasks(folder / "data", pilot, count)
            begun = time.perf_counter()
            filled = stack.enter_context(self._line(revision, "embedded", folder=folder))
            ready = time.perf_counter() - begun
            empty = stack.enter_context(self._line(revision, "embedded"))
            small, grown = Server(f"empty beside {level}", empty), Server(level, filled, **definition)
            if not is_pending:  # the server knows the copies
                await grown.call("status", 0, BenchTask({}, task_ids[-1]))
            rounds = (self._options.rounds + 1) // 2  # filling takes the time that the other half would
            samples = await self._rounds("growth", [small, grown], self._options.clients[1:2], rounds)
        print(f"{'growth':<10}{level}: ready in {ready:.2f} s")
        self.report.figures[level] = {"readySeconds": ready}
        self.report.compare("growth", samples, grown.name, small.name, "rate")

    async def _pinged(self, what: str, line: Line) -> None:
        server, end = Server(what, line), time.perf_counter() + self._options.hold_seconds

        async def listing() -> None:
            group = server.new_task()
            await server.call("createTask", 1, group)
            while time.perf_counter() < end:
                await server.send(1, "GET", f"/task-group/{group.task_id}/list")
                await server.send(1, "GET", "/pending/waiting/bench")
                await asyncio.sleep(10 * _PING_PAUSE)

        async def ping() -> list[tuple[float, float]]:
            found, pid = [], process_of(line)
            while (begun := time.perf_counter()) < end:
                before = computed(pid)
                await server.send(2, "GET", "/ping")
                found.append((1000 * (time.perf_counter() - begun), 1000 * (computed(pid) - before)))
                await asyncio.sleep(_PING_PAUSE)
            return found

        say(f"holds: {what}")
        load = cycles(server, 1, self._options.hold_seconds)
        pings, *_ = await asyncio.gather(ping(), listing(), load)
        figures: dict[str, float] = {}
        for name, values in zip(("ping", "cpu"), zip(*pings, strict=True), strict=True):
            ordered = sorted(values)
            figures |= {f"{name}P99Ms": ordered[int(len(ordered) * 0.99)], f"{name}MaxMs": ordered[-1]}
        print(f"{'holds':<10}{what}: " + ", ".join(f"{name} {ms:.1f}" for name, ms in figures.items()))
        self.report.figures[f"holds, {what}"] = figures

    async def _rounds(
        self, part: str, sides: Sequence[Side[Any]], counts: Sequence[int], rounds: int | None = None
    ) -> list[Sample]:
        """Cycles by all sides in turn, so that whatever else the machine does meets all of them."""
        options, samples = self._options, []
        rounds = rounds or options.rounds
        for side in sides:
            say(f"{part}: warming {side.name} up")
            await cycles(side, counts[-1], options.seconds)
            await side.probe.rest()
        for number in range(rounds):
            for clients in counts:
                for side in _rotated(sides, number):
                    load = cycles(side, clients, options.seconds)
                    samples.append(await measured(side, "cycle", clients, load))
                shown = ", ".join(f"{s.side} {s.rate:.1f}" for s in samples[-len(sides) :])
                say(f"{part}: round {number + 1} of {rounds}, {clients} clients, cycles/s: {shown}")
        await self._charge(sides)
        self.report.add(part, samples)
        self._compare_revisions(part, samples, sides, "rate")
        return samples

    async def _charge(self, sides: Sequence[Side[Any]]) -> None:
        """What the servers do within some seconds after the last load is that load's too."""
        await asyncio.sleep(4 * self._options.seconds)
        for side in sides:
            side.probe.charge(await side.probe.read())

    def _compare_revisions(
        self, part: str, samples: Sequence[Sample], sides: Sequence[Side[Any]], figure: str
    ) -> None:
        for revision in self._revisions[1:]:
            for name in {side.name for side in sides}:
                if name.endswith(revision.suffix):
                    own = name.removesuffix(revision.suffix)
                    self.report.compare(part, samples, own, name, figure)


async def _pilot(server: Server, definition: Mapping[str, Any], *, is_pending: bool = False) -> str:
    """The taskId of a task that has been run, or only created."""
    pilot = server.new_task(**definition)
    for what in CYCLE[:1] if is_pending else CYCLE:
        await server.call(what, 0, pilot)
    await server.probe.rest()
    return pilot.task_id


def _short_life() -> dict[str, str]:
    """The times of a task that expires as soon as it may."""
    soon = format_time(datetime.now(UTC) + timedelta(seconds=5))
    return {"deadline": soon, "expires": soon}


def _rotated(sides: Sequence[Side[Any]], number: int) -> list[Side[Any]]:
    start = number % len(sides)
    return [*sides[start:], *sides[:start]]


PARTS = {
    "cycle": Benchmark.cycle,
    "calls": Benchmark.calls,
    "growth": Benchmark.growth,
    "holds": Benchmark.holds,
    "processes": Benchmark.processes,
    "waiting": Benchmark.waiting,
}


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _parts(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - PARTS.keys():
        raise argparse.ArgumentTypeError(f"there is no part {', '.join(unknown)}")
    return names


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", type=_parts, default=list(PARTS), metavar="PARTS", help="some parts: cycle,growth")
    add("--rounds", type=int, default=5, help="of each comparison (default 5; growth: half)")
    add("--seconds", type=float, default=2, help="of each load in a round (default 2)")
    add("--clients", type=_numbers, default=[1, 16, 64], help="at least two numbers (default 1,16,64)")
    add("--share", type=_numbers, default=[1, 8], help="requests that share a timer, of each floor (1,8)")
    add("--calls", type=int, default=10, help="calls: of each in a round, at least (default 10)")
    add("--tasks", type=_numbers, default=[100, 200000], help="growth, holds: tasks (default 100,200000)")
    add("--group", type=int, default=5000, help="growth: tasks of a group (default 5000; 0: none)")
    add("--messages", type=int, default=10000, help="growth: pending messages (default 10000; 0: none)")
    add("--hold-seconds", type=int, default=60, help="holds: how long each takes (default 60)")
    add("--polls", type=int, default=1000, help="waiting: polls (default 1000)")
    add("--poll-seconds", type=int, default=20, help="waiting: how long a poll waits (default 20)")
    add("--compare", metavar="REF", help="run another revision beside this one")
    add("--json", type=Path, metavar="FILE", help="also write all figures")
    add("--quick", action="store_true", help="the least of everything: shows that it works, measures nothing")
    add("serve", nargs="*", metavar="-- OPTION", help="options of `legacy-queue serve`")
    if "--quick" in sys.argv:
        parser.set_defaults(**_QUICK)
    options = parser.parse_args()
    if len(options.clients) < 2:
        parser.error("--clients: at least two numbers")
    return options


def main() -> None:
    """Measure, print, write."""
    options, begun = _options(), time.perf_counter()
    with ExitStack() as stack:
        revisions = [this_revision()]
        if options.compare:
            revisions.append(stack.enter_context(other_revision(options.compare)))
        benchmark = Benchmark(options, revisions)
        head = {
            "commits": {revision.suffix or "this": revision.commit for revision in revisions},
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "loadAverage": os.getloadavg()[0],
        }
        print(json.dumps(head))
        for name in options.only:
            asyncio.run(PARTS[name](benchmark))
    head["seconds"] = time.perf_counter() - begun
    say(f"done in {head['seconds']:.0f} s")
    report = benchmark.report
    if options.json:
        whole = {
            **head,
            "options": vars(options),
            "rows": report.rows,
            "ratios": report.ratios,
            "figures": report.figures,
        }
        options.json.write_text(json.dumps(whole, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
