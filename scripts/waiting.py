"""Long polls of claimWork on a real server; run by scripts/waiting.

Everything is measured in one run, against the same server: without any poll, and with so many that wait.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from served import authorization, cpu, definition, memory, process_of, served

from legacy_queue.domain.ids import slugid

_POLL_TIME = 20.0  # seconds that a poll waits
_ROUNDS = 100


@dataclass
class Connection:
    """One kept alive, as a worker's is."""

    line: dict[str, Any]
    streams: "tuple[asyncio.StreamReader, asyncio.StreamWriter] | None" = field(default=None)

    async def send(self, method: str, path: str, body: Any = None) -> Any:
        """The body of the answer, which must be 200."""
        url = urlsplit(self.line["baseUrl"])
        host, port = url.hostname or "", url.port or 80
        if self.streams is None:
            self.streams = await asyncio.open_connection(host, port)
        reader, writer = self.streams
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {url.path}{path} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Length: {len(data)}\r\n"
        signed = authorization(self.line, method, url.path + path)
        head += f"Content-Type: application/json\r\nAuthorization: {signed}\r\n\r\n"
        writer.write(head.encode() + data)
        status, *headers = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        lengths = [
            header.partition(":")[2] for header in headers if header.lower().startswith("content-length:")
        ]
        answer = await reader.readexactly(int(lengths[0]))
        if " 200 " not in status:
            raise RuntimeError(f"{method} {path}: {status} {answer.decode()}")
        return json.loads(answer)

    async def timed(self, method: str, path: str, body: Any = None) -> float:
        """Seconds until the answer."""
        start = time.perf_counter()
        await self.send(method, path, body)
        return time.perf_counter() - start


def worker(name: str) -> dict[str, str]:
    """Who asks for work."""
    return {"workerGroup": "waiting", "workerId": name}


def figures(seconds: Sequence[float]) -> str:
    """p50, p99 and the longest, in ms."""
    ordered = sorted(1000 * second for second in seconds)
    p50, p99 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {ordered[-1]:.1f} ms"


async def pings(line: dict[str, Any], lasts: float) -> list[float]:
    """Ten a second."""
    connection, found = Connection(line), []
    end = time.perf_counter() + lasts
    while time.perf_counter() < end:
        found.append(await connection.timed("GET", "/ping"))
        await asyncio.sleep(0.1)
    return found


async def measured(what: str, line: dict[str, Any], pid: int, lasts: float) -> dict[str, float]:
    """What it does to the process and to a ping."""
    start, before = time.perf_counter(), cpu(pid)
    found = await pings(line, lasts)
    share = (cpu(pid) - before) / (time.perf_counter() - start)
    print(f"{what}: ping {figures(found)}; {memory(pid):.0f} MB; {100 * share:.1f} % of a core")
    return {"pingP50Ms": 1000 * statistics.median(found), "memoryMB": memory(pid), "cores": share}


async def idle(
    line: dict[str, Any], polls: int, poll_time: float = _POLL_TIME
) -> tuple[dict[str, float], dict[str, float]]:
    """So many that wait for a worker type without work, three times each; ``poll_time``: seconds of a poll.

    The figures of the first polls, while the workers are new to the server, and from half of the second on.
    """
    pid = process_of(line)
    await measured("without polls", line, pid, poll_time / 2)

    async def poll(number: int) -> list[float]:
        connection, body = Connection(line), worker(f"w{number}")
        return [await connection.timed("POST", "/claim-work/waiting/idle", body) for _ in range(3)]

    waiting = [asyncio.create_task(poll(number)) for number in range(polls)]
    await asyncio.sleep(poll_time / 4)  # their coming is not what is measured
    new = await measured(f"{polls} polls wait", line, pid, poll_time * 0.65)
    await asyncio.sleep(poll_time * 0.6)
    again = await measured("they end and come again", line, pid, poll_time)
    lasted = [duration for durations in await asyncio.gather(*waiting) for duration in durations]
    print(f"beyond {poll_time:g} s: {figures([duration - poll_time for duration in lasted])}")
    return new, again


async def reach(line: dict[str, Any], beside: int, rounds: int = _ROUNDS) -> float:
    """How long work takes to reach who waits: the median, as a multiple of a bare createTask's."""
    scheduler, other = Connection(line), Connection(line)
    crowd = [
        asyncio.create_task(Connection(line).send("POST", "/claim-work/waiting/idle", worker(f"c{number}")))
        for number in range(beside)
    ]
    await asyncio.sleep(2)
    bare, reached = [], []
    for _ in range(rounds):
        bare.append(await scheduler.timed("PUT", f"/task/{slugid()}", definition("unpolled")))
        claim = asyncio.create_task(other.send("POST", "/claim-work/waiting/claimed", worker("one")))
        await asyncio.sleep(0.02)
        start = time.perf_counter()
        create = asyncio.create_task(scheduler.send("PUT", f"/task/{slugid()}", definition("claimed")))
        assert (await claim)["tasks"]
        reached.append(time.perf_counter() - start)
        await create
    ratio = statistics.median(reached) / statistics.median(bare)
    print(f"beside {beside} that wait: createTask {figures(bare)}")
    print(f"    createTask to the claim's answer {figures(reached)}: {ratio:.2f} times a bare createTask")
    await asyncio.gather(*crowd)
    return ratio


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--polls", type=int, default=1000, help="that wait at once")
    parser.add_argument("--storage", default="embedded", choices=["embedded", "azurite", "memory"])
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder), "--storage", options.storage) as (line, _),
    ):
        asyncio.run(reach(line, 0))
        asyncio.run(reach(line, options.polls))
        asyncio.run(idle(line, options.polls))


if __name__ == "__main__":
    main()
