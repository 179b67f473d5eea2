"""What a burst leaves for the background, and whether that slows the calls after it; run by scripts/burst.

A cycle is createTask, claimTask and reportCompleted, one after the other. Before the burst, cycles run at
their usual pace. The burst is so many createTask, then as many claimTask, then as many reportCompleted. Then
cycles run again: their pace in each window is shown as a share of the usual one.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from served import definition, served
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


async def cycles(connections: list[Connection], lasts: float) -> list[float]:
    """When each cycle ended, in seconds from now; every connection runs them one after the other."""
    start = time.perf_counter()
    ended: list[float] = []

    async def run(connection: Connection) -> None:
        while time.perf_counter() - start < lasts:
            task_id = slugid()
            for act in (create, claim, report):
                await act(connection, task_id)
            ended.append(time.perf_counter() - start)

    await asyncio.gather(*map(run, connections))
    return ended


async def phase(what: str, act: Act, connections: list[Connection], task_ids: list[str]) -> None:
    """Do it to every task, each connection to the next one that is left."""
    left, start = iter(task_ids), time.perf_counter()

    async def run(connection: Connection) -> None:
        for task_id in left:
            await act(connection, task_id)

    await asyncio.gather(*map(run, connections))
    print(f"  {len(task_ids)} {what}: {len(task_ids) / (time.perf_counter() - start):.0f} a second")


async def measure(line: dict[str, Any], clients: int, burst: int, windows: int) -> list[float]:
    """The share of the usual pace in each window after the burst."""
    connections = [Connection(line) for _ in range(clients)]
    await cycles(connections, 2 * _WINDOW)  # warm, and what it leaves is a part of the usual pace
    usual = len(await cycles(connections, 3 * _WINDOW)) / (3 * _WINDOW)
    await asyncio.sleep(20)  # nothing is left of it
    print(f"{clients} clients: usually {usual:.1f} cycles a second")
    task_ids = [slugid() for _ in range(burst)]
    for what, act in (("createTask", create), ("claimTask", claim), ("reportCompleted", report)):
        await phase(what, act, connections, task_ids)
    ended = await cycles(connections, windows * _WINDOW)
    shares = []
    for window in range(windows):
        count = sum(window * _WINDOW <= when < (window + 1) * _WINDOW for when in ended)
        shares.append(count / _WINDOW / usual)
    print(f"  then, in windows of {_WINDOW:g} s: {', '.join(f'{share:.2f}' for share in shares)} of that")
    return shares


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--burst", type=int, default=1000, help="tasks")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16])
    parser.add_argument(
        "--windows", type=int, default=6, help="of 5 s each that are looked at after the burst"
    )
    parser.add_argument("--storage", default="azurite", choices=["azurite", "memory"])
    options = parser.parse_args()
    for clients in options.clients:
        with (
            tempfile.TemporaryDirectory() as folder,
            served(Path(folder), "--storage", options.storage) as (line, _),
        ):
            shares = asyncio.run(measure(line, clients, options.burst, options.windows))
        print(f"  least {min(shares):.2f}, median {statistics.median(shares):.2f}")


if __name__ == "__main__":
    main()
