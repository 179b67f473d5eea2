"""What a call costs the server in CPU, storage in memory, and where it goes; run by scripts/http-cost.

Each call goes over kept connections, first without credentials (a call that needs some is refused then), then
with. --compare REF calls another revision in the same rounds, so that other load of the machine slows both.
--profile samples the stacks of the server of this revision, which costs a few per cent.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench_http import Answer, Connection, request
from bench_load import concurrently
from bench_revision import other_revision, this_revision
from served import Line, authorization, computed, definition, process_of, served

from legacy_queue.domain.ids import slugid

_AT_ONCE = 8  # connections
_OPTIONS = ("--storage", "memory", "--no-resolvers")
_SAMPLER = Path(__file__).with_name("http_samples.py")
_CYCLE = ("createTask", "claimTask", "reportCompleted")

Call = tuple[str, str, Any, Any]  # method, path, body, credentials or None for the server's own


class Server:
    """A revision's, called over connections of its own."""

    def __init__(self, line: Line) -> None:
        url = urlsplit(line["rootUrl"])
        self._line, self._host, self._pid = line, url.netloc, process_of(line)
        self._connections = [Connection(str(url.hostname), int(url.port or 80)) for _ in range(_AT_ONCE)]
        self.spent: dict[str, list[float]] = defaultdict(list)  # us of CPU for a call in each round

    async def run_round(self, count: int) -> None:
        """Each call so often."""
        tasks, works = ([slugid() for _ in range(count)] for _ in range(2))
        worker = {"workerGroup": "http-cost", "workerId": "worker"}
        credentials: dict[str, Any] = {}

        def on_task(method: str, path: str, body: Any = None) -> list[Call]:
            return [(method, f"/task/{task}{path}", body, credentials.get(task)) for task in tasks]

        async def both(name: str, calls: Sequence[Call]) -> list[Answer]:
            await self._measured(f"{name}, no credentials", calls, is_signed=False)
            return await self._measured(name, calls, is_signed=True)

        await both("ping", [("GET", "/ping", None, None)] * count)
        await both("createTask", on_task("PUT", "", definition("http-cost-tasks")))
        await both("status", on_task("GET", "/status"))
        for answer in await both("claimTask", on_task("POST", "/runs/0/claim", worker)):
            claim = json.loads(answer.body)
            credentials[claim["status"]["taskId"]] = claim["credentials"]
        await both("reportCompleted", on_task("POST", "/runs/0/completed", {}))
        work = definition("http-cost-works")
        await self._all([("PUT", f"/task/{task}", work, None) for task in works], is_signed=True)
        await both("claimWork", [("POST", "/claim-work/waiting/http-cost-works", worker, None)] * count)

    async def _measured(self, name: str, calls: Sequence[Call], is_signed: bool) -> list[Answer]:
        before = computed(self._pid)
        answers = await self._all(calls, is_signed)
        self.spent[name].append(1e6 * (computed(self._pid) - before) / len(calls))
        return answers

    async def _all(self, calls: Sequence[Call], is_signed: bool) -> list[Answer]:
        answers: list[Answer] = []
        requests = [self._request(call, is_signed) for call in calls]

        async def act(slot: int, request: bytes) -> None:
            answers.append(await self._connections[slot].send(request, may_be_refused=not is_signed))

        await concurrently(act, _AT_ONCE, requests)
        return answers

    def _request(self, call: Call, is_signed: bool) -> bytes:
        method, path, wire, credentials = call
        target = urlsplit(self._line["baseUrl"]).path + path
        body = b"" if wire is None else json.dumps(wire).encode()
        headers = "Content-Type: application/json\r\n" if body else ""
        if is_signed:
            covered = body if wire is not None else None
            headers += f"Authorization: {authorization(self._line, method, target, credentials, covered)}\r\n"
        return request(method, self._host, target, body, headers)

    def write_samples(self) -> None:
        """Of a server that scripts/http_samples.py runs."""
        os.kill(self._pid, signal.SIGRTMIN)


def _print(servers: dict[str, Server]) -> None:
    names = "".join(f"{name:>16}" for name in servers)
    print(f"{'us of CPU for each call':<34}{names}{'  ratio, min-max' if len(servers) > 1 else ''}")
    columns = [server.spent for server in servers.values()]
    for column in columns:
        column["cycle of the three"] = [sum(costs) for costs in zip(*map(column.get, _CYCLE), strict=True)]
    for name in columns[0]:
        words = [f"{statistics.median(column[name]):>16.0f}" for column in columns]
        if len(columns) > 1:
            ratios = sorted(
                ours / theirs for ours, theirs in zip(*(column[name] for column in columns), strict=True)
            )
            words.append(f"  {statistics.median(ratios):.2f}, {ratios[0]:.2f}-{ratios[-1]:.2f}")
        print(f"{name:<34}" + "".join(words))


def _print_profile(file: Path, by: str) -> None:
    own, whole, total = Counter[str](), Counter[str](), 0
    for stack, times in json.loads(file.read_text()):
        names = [_short(frame, by) for frame in stack]
        own[names[0]] += times
        whole.update(dict.fromkeys(names, times))
        total += times
    print(f"\n{total} samples; the share with all that it calls, and its own")
    for name, times in whole.most_common():
        if max(times / 4, own[name]) >= total / 200:
            print(f"{times / total:>7.1%}{own[name] / total:>8.1%}  {name}")


def _short(frame: str, by: str) -> str:
    file, _, function = frame.rpartition(":")
    name = re.sub(r".*/(?:site-packages|python3\.\d+|legacy_queue(?=/))/?", "", file)
    return f"{name}:{function}" if by == "functions" else name


async def _measure(servers: Sequence[Server], rounds: int, calls: int) -> None:
    for server in servers:
        await server.run_round(calls)
        server.spent.clear()
    for number in range(rounds):
        for server in servers[:: -1 if number % 2 else 1]:
            await server.run_round(calls)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--rounds", "--turns", type=int, default=10, help="of all calls on each server (default 10)")
    add("--calls", type=int, default=200, help="of each kind in a round (default 200)")
    add("--compare", metavar="REF", help="run another revision beside this one")
    add("--profile", choices=("modules", "functions"), help="print where this revision's time goes")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        revisions, samples = {"this": this_revision()}, folder / "samples"
        if options.compare:
            revisions[options.compare] = stack.enter_context(other_revision(options.compare))
        servers = {}
        for name, revision in revisions.items():
            is_sampled = options.profile and name == "this"
            program = (sys.executable, str(_SAMPLER), str(samples)) if is_sampled else revision.program
            server = served(folder / name, *_OPTIONS, program=program, variables=revision.variables)
            servers[name] = Server(stack.enter_context(server)[0])
        asyncio.run(_measure([*servers.values()], options.rounds, options.calls))
        _print(servers)
        if options.profile:
            servers["this"].write_samples()
            while not samples.exists():
                time.sleep(0.1)
            _print_profile(samples, options.profile)


if __name__ == "__main__":
    main()
