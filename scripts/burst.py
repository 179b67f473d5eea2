"""What a burst leaves for the background, and whether that slows the calls after it; run by scripts/burst.

A cycle is createTask, claimTask and reportCompleted, one after the other. Before the burst, cycles run at
their usual pace. The burst is so many createTask, then as many claimTask, then as many reportCompleted. Then
cycles run again: their pace in each window is shown as a share of the usual pace, and so is the processor
time of the server and of Azurite for a cycle, which other load of the machine hardly changes.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from served import Line, cpu, definition, processes_of, served
from waiting import Connection, worker

from legacy_queue.domain.ids import slugid

_WINDOW = 5.0  # seconds

Act = Callable[[Connection, str], Awaitable[Any]]


async def create(connection: Connection, task_id: str) -> None:
    await connection.send("PUT", f"/task/{task_id}", definition("burst"))


async def claim(connection: Connection, task_id: str) -> None:
    await connection.send("POST", f"/task/{task_id}/runs/0/claim", worker("w"))


async def report(connection: Connection, task_id: str) -> None:
    await connection.send("POST", f"/task/{task_id}/runs/0/completed")


async def cycles(line: Line, connections: list[Connection], lasts: float) -> tuple[float, float]:
    """Cycles in a second, and the seconds of processor time for each; a connection runs one at a time."""
    start, before, ended = time.perf_counter(), computed(line), 0

    async def run(connection: Connection) -> None:
        nonlocal ended
        while time.perf_counter() - start < lasts:
            task_id = slugid()
            for act in (create, claim, report):
                await act(connection, task_id)
            ended += 1

    await asyncio.gather(*map(run, connections))
    return ended / (time.perf_counter() - start), (computed(line) - before) / ended


def computed(line: Line) -> float:
    """Seconds of the server and of Azurite so far."""
    return sum(cpu(pid) for pids in processes_of(line).values() for pid in pids)


async def phase(what: str, act: Act, connections: list[Connection], task_ids: list[str]) -> None:
    """Do it to every task, each connection takes the next task."""
    left, start = iter(task_ids), time.perf_counter()

    async def run(connection: Connection) -> None:
        for task_id in left:
            await act(connection, task_id)

    await asyncio.gather(*map(run, connections))
    print(f"  {len(task_ids)} {what}: {len(task_ids) / (time.perf_counter() - start):.0f} a second")


async def measure(line: Line, clients: int, burst: int, windows: int) -> None:
    """Print the shares of the usual pace and of its processor time after the burst."""
    connections = [Connection(line) for _ in range(clients)]
    await cycles(line, connections, 2 * _WINDOW)  # warm, and what it leaves is a part of the usual pace
    pace, time_of_each = await cycles(line, connections, 3 * _WINDOW)
    await asyncio.sleep(20)  # nothing is left of it
    print(f"{clients} clients: usually {pace:.1f} cycles a second of {1000 * time_of_each:.1f} ms")
    task_ids = [slugid() for _ in range(burst)]
    for what, act in (("createTask", create), ("claimTask", claim), ("reportCompleted", report)):
        await phase(what, act, connections, task_ids)
    after = [await cycles(line, connections, _WINDOW) for _ in range(windows)]
    show("pace", [cycle_rate / pace for cycle_rate, _ in after])
    show("processor time", [cpu / time_of_each for _, cpu in after])


def show(what: str, shares: list[float]) -> None:
    listed = ", ".join(f"{share:.2f}" for share in shares)
    print(f"  {what} in windows of {_WINDOW:g} s: {listed} of that; median {statistics.median(shares):.2f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--burst", type=int, default=1000, help="tasks")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16])
    parser.add_argument(
        "--windows", type=int, default=6, help="of 5 s each that are looked at after the burst"
    )
    parser.add_argument("--storage", default="embedded", choices=["embedded", "azurite", "memory"])
    options = parser.parse_args()
    for clients in options.clients:
        with (
            tempfile.TemporaryDirectory() as folder,
            served(Path(folder), "--storage", options.storage) as (line, _),
        ):
            asyncio.run(measure(line, clients, options.burst, options.windows))


if __name__ == "__main__":
    main()
