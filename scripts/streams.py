"""createTask beside open event streams on a real server; run by scripts/streams.

Rounds without and with streams alternate on one server, so that other load of the machine slows both.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from served import definition, served
from waiting import Connection

from legacy_queue.domain.ids import slugid

_OF_ONE_ADDRESS = 50  # streams that one address may open


@dataclass
class Round:
    """Seconds of each createTask, and how long all of them took together."""

    lasted: list[float] = field(default_factory=list)
    elapsed: float = 0.0

    @property
    def p50(self) -> float:
        """In ms."""
        return 1000 * statistics.median(self.lasted)

    @property
    def rate(self) -> float:
        """Tasks in a second."""
        return len(self.lasted) / self.elapsed


async def stream(line: dict[str, Any], number: int, pattern: str) -> "asyncio.Task[None]":
    """An open stream that is read until it is cancelled; each 50 come from an address of their own."""
    url = urlsplit(line["rootUrl"])
    address = f"127.0.1.{1 + number // _OF_ONE_ADDRESS}"
    reader, writer = await asyncio.open_connection(url.hostname, url.port, local_addr=(address, 0))
    writer.write(f"GET /events?routingKey={pattern} HTTP/1.1\r\nHost: {url.netloc}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise RuntimeError(head.decode())
    await reader.readuntil(b"retry:")

    async def read() -> None:
        try:
            while await reader.read(65536):
                pass
        finally:
            writer.close()

    return asyncio.create_task(read())


async def create(connections: list[Connection], tasks: int) -> Round:
    """So many tasks over these connections."""
    found, start = Round(), time.perf_counter()

    async def some(connection: Connection) -> None:
        for _ in range(tasks // len(connections)):
            found.lasted.append(
                await connection.timed("PUT", f"/task/{slugid()}", definition("streams-measured"))
            )

    await asyncio.gather(*(some(connection) for connection in connections))
    found.elapsed = time.perf_counter() - start
    return found


async def beside(
    line: dict[str, Any],
    streams: int,
    pattern: Callable[[int], str],
    connections: list[Connection],
    tasks: int,
) -> Round:
    """A round while the streams are open."""
    opened = [await stream(line, number, pattern(number)) for number in range(streams)]
    found = await create(connections, tasks)
    for stream in opened:
        stream.cancel()
    for stream in opened:
        with suppress(asyncio.CancelledError):
            await stream
    await asyncio.sleep(2.5)  # the server hears of it with its next look at each
    return found


async def measure(line: dict[str, Any], options: argparse.Namespace) -> None:
    """The rounds, and what they say."""
    connections = [Connection(line) for _ in range(4)]
    await create(connections, options.tasks)  # warm
    patterns: dict[str, Callable[[int], str]] = {
        f"{options.streams} streams of as many patterns that match nothing": lambda n: (
            f"primary.*.*.*.*.*.type-{n}.%23"
        ),
        f"{options.streams} streams that match everything": lambda _: "%23",
    }
    for what, pattern in patterns.items():
        alone, crowded = [], []
        for _ in range(options.rounds):
            alone.append(await create(connections, options.tasks))
            crowded.append(await beside(line, options.streams, pattern, connections, options.tasks))
        without, with_ = (
            (statistics.median(done.p50 for done in rounds), statistics.median(done.rate for done in rounds))
            for rounds in (alone, crowded)
        )
        print(f"{what}:")
        print(f"    createTask p50 {without[0]:.1f} ms without, {with_[0]:.1f} ms with")
        print(f"    {without[1]:.0f} tasks/s without, {with_[1]:.0f} with: {with_[1] / without[1]:.2f} of it")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--tasks", type=int, default=400, help="in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--storage", default="embedded", choices=["embedded", "azurite", "memory"])
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder), "--storage", options.storage) as (line, _),
    ):
        asyncio.run(measure(line, options))


if __name__ == "__main__":
    main()
