"""How fast the server is, beside the floor of its storage; run by scripts/bench.

Closed loops of create + claim + complete cycles, from this process, against a server of its own for each
part. What is compared runs in turn, in rounds, on the same machine and, for the floor, on the same Azurite:
ratios of one run mean something, figures of two runs do not. "storage" and "CPU" count what the background
does afterwards too; "load" is this process.

Parts: cycle (Azurite, and the floor: the operations of scripts/bench_floor.py by a bare client), memory
(storage in memory), calls (each call by itself, and its own operations in turn; what the background does
seconds later counts with a later call: scripts/operations counts exactly), growth (tasks stored, a
large group, pending messages), processes (one and two), waiting (claimWork polls that find nothing).
Options after -- go to `legacy-queue serve`.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench_fill import fill_messages, fill_tasks
from bench_floor import Floor
from bench_load import Sample, Server, Side, cycles, each_call, measured
from bench_plot import svg
from bench_report import Report
from bench_revision import Revision, other_revision, this_revision
from served import Line, served
from waiting import idle, reach

from legacy_queue.domain.ids import slugid

_QUICK = {
    "rounds": 1, "seconds": 0.1, "clients": [1, 4], "calls": 1, "tasks": [20], "group": 20, "messages": 20,
    "polls": 5, "poll_seconds": 1,
}  # fmt: skip


def say(text: str) -> None:
    """What is being done, on standard error."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Benchmark:
    """The parts; each starts what it needs and adds to the report."""

    def __init__(self, options: argparse.Namespace, revisions: Sequence[Revision]) -> None:
        self._options, self._revisions = options, revisions
        self.report = Report()

    async def cycle(self) -> None:
        """Cycles on Azurite, and the floor on that of this revision."""
        with self._lines("azurite") as lines:
            servers = self._servers("azurite", lines)
            floors = await self._floors(servers[0])
            samples = await self._rounds("cycle", [*servers, *floors], self._options.clients)
            for floor in floors:
                self.report.compare("cycle", samples, "azurite", floor.name, "rate")

    async def memory(self) -> None:
        with self._lines("memory") as lines:
            await self._rounds("memory", self._servers("memory", lines), self._options.clients)

    async def processes(self) -> None:
        """One and two server processes, each with an Azurite of its own."""
        with self._lines("azurite") as single, self._lines("azurite", "--workers", "2") as double:
            sides = [*self._servers("1 process", single), *self._servers("2 processes", double)]
            samples = await self._rounds("processes", sides, self._options.clients[1:2])
            self.report.compare("processes", samples, "2 processes", "1 process", "rate")

    async def growth(self) -> None:
        """An empty storage and a filled storage in rounds."""
        options = self._options
        with self._lines("azurite") as lines:
            with self._lines("azurite") as filled:
                stored = 0
                for tasks in options.tasks:
                    await self._grown(lines, filled, f"{tasks:,} tasks", fill_tasks, tasks - stored)
                    stored = tasks
            if options.group:
                with self._lines("azurite") as filled:
                    level, group = f"group of {options.group:,}", slugid()
                    await self._grown(lines, filled, level, fill_tasks, options.group, taskGroupId=group)
            if options.messages:
                with self._lines("azurite") as filled:
                    level = f"{options.messages:,} messages"
                    await self._grown(lines, filled, level, fill_messages, options.messages)

    async def calls(self) -> None:
        """Each call by itself, by one client and by some, and its operations in turn on the same Azurite."""
        with self._lines("azurite") as lines:
            servers = self._servers("azurite", lines)
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
            self._compare_revisions("calls", samples, servers, "p50")

    async def waiting(self) -> None:
        """Idle polls of claimWork, and how long work takes to reach a poll."""
        options = self._options
        with self._lines("azurite", "--claim-work-wait", f"{options.poll_seconds}s") as lines:
            for revision, line in zip(self._revisions, lines, strict=True):
                print(f"\nwaiting   claimWork of azurite{revision.suffix}", flush=True)
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
    def _lines(self, storage: str, *words: str) -> Iterator[list[Line]]:
        """A server of each revision."""
        with ExitStack() as stack:
            lines = []
            for revision in self._revisions:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                arguments = ("--storage", storage, *words, *self._options.serve)
                server = served(folder, *arguments, program=revision.program, variables=revision.variables)
                lines.append(stack.enter_context(server)[0])
            yield lines

    def _servers(self, name: str, lines: Sequence[Line], **definition: Any) -> list[Server]:
        return [
            Server(name + revision.suffix, line, **definition)
            for revision, line in zip(self._revisions, lines, strict=True)
        ]

    async def _floors(self, server: Server) -> list[Floor]:
        floors = [Floor(server.line, share) for share in self._options.share]
        for floor in floors:
            await floor.prepare()
        return floors

    async def _grown(
        self,
        lines: Sequence[Line],
        filled: Sequence[Line],
        level: str,
        fill: Callable[[Server, int], Awaitable[None]],
        count: int,
        **definition: Any,
    ) -> None:
        """Fill the second servers and run them beside the first; ``definition`` is that of their tasks."""
        small = self._servers(f"empty beside {level}", lines)
        grown = self._servers(level, filled, **definition)
        for server in grown:
            say(f"growth: filling {server.name}")
            await fill(server, count)
            await server.probe.rest()
        rounds = (self._options.rounds + 1) // 2  # filling takes the time that the other half would
        samples = await self._rounds("growth", [*small, *grown], self._options.clients[1:2], rounds)
        for grown_side, small_side in zip(grown, small, strict=True):
            self.report.compare("growth", samples, grown_side.name, small_side.name, "rate")

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


def _rotated(sides: Sequence[Side[Any]], number: int) -> list[Side[Any]]:
    start = number % len(sides)
    return [*sides[start:], *sides[:start]]


PARTS = {
    "cycle": Benchmark.cycle,
    "memory": Benchmark.memory,
    "calls": Benchmark.calls,
    "growth": Benchmark.growth,
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
    add("--tasks", type=_numbers, default=[10000, 50000], help="growth: stored tasks (default 10000,50000)")
    add("--group", type=int, default=5000, help="growth: tasks of a group (default 5000; 0: none)")
    add("--messages", type=int, default=10000, help="growth: pending messages (default 10000; 0: none)")
    add("--polls", type=int, default=1000, help="waiting: polls (default 1000)")
    add("--poll-seconds", type=int, default=20, help="waiting: how long a poll waits (default 20)")
    add("--compare", metavar="REF", help="run another revision beside this one")
    add("--json", type=Path, metavar="FILE", help="also write all figures")
    add("--plot", type=Path, metavar="FILE.svg", help="also draw cycles per second")
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
    if options.plot:
        options.plot.write_text(svg(report.rows, f"legacy-queue {head['commits']}"))


if __name__ == "__main__":
    main()
