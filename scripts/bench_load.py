"""The load of scripts/bench and what it costs: closed loops of calls to a server, or of its floor."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from bench_http import Connection, request
from served import Line, authorization, cpu, definition, processes_of

from legacy_queue.domain.ids import slugid

CYCLE = ("createTask", "claimTask", "reportCompleted")
_QUIET = 0.1  # of a core, in a quarter of a second
_LONGEST_REST = 5.0  # seconds

Task = TypeVar("Task")


@dataclass
class Reading:
    """CPU seconds of each kind of process and requests to storage of each operation, so far."""

    cpu: dict[str, float]
    operations: Counter[str]


class Probe:
    """Looks at a server's processes, and asks its Azurite what it has counted.

    With ``is_floor`` it leaves the server out, and counts the floor's operations instead of all others.
    """

    def __init__(self, line: Line, *, is_floor: bool = False) -> None:
        self._is_floor = is_floor
        self._processes = {name: pids for name, pids in processes_of(line).items() if pids}
        if is_floor:
            del self._processes["server"]
        self._last: tuple[Sample, Reading] | None = None
        table = urlsplit(line["storage"]["table"] or "")
        self._table = Connection(table.hostname or "", table.port or 80)
        self._ask = request("GET", table.netloc, "/bench/counts") if table.netloc else b""

    async def read(self) -> Reading:
        return Reading(self.cpu(), await self.operations())

    def cpu(self) -> dict[str, float]:
        """Seconds of each kind of process."""
        return {name: sum(map(cpu, pids)) for name, pids in self._processes.items()}

    async def operations(self) -> Counter[str]:
        """``"verb name"`` -> requests that Azurite was sent; empty with memory storage."""
        if not self._ask:
            return Counter()
        counts = json.loads((await self._table.send(self._ask)).body)
        return Counter({name: n for name, n in counts.items() if (" floor" in name) is self._is_floor})

    def charge(self, now: Reading) -> None:
        """Add what the server has done since the last sample to that: it works some things off later."""
        if self._last and not self._is_floor:
            sample, then = self._last
            sample.cpu["server"] += now.cpu["server"] - then.cpu["server"]
            sample.operations += now.operations - then.operations
        self._last = None

    def keep(self, sample: "Sample", now: Reading) -> None:
        """The sample to which ``charge`` adds."""
        self._last = sample, now

    async def rest(self) -> None:
        """Return once the processes are idle, after 5 s at most: what a load leaves is a part of it."""
        end = time.perf_counter() + _LONGEST_REST
        while time.perf_counter() < end:
            before = sum(self.cpu().values())
            await asyncio.sleep(0.25)
            if sum(self.cpu().values()) - before < _QUIET * 0.25:
                return


class Side(Protocol[Task]):
    """Something that can be put under load; ``slot`` tells the concurrent clients apart."""

    name: str
    probe: Probe

    def new_task(self, **definition: Any) -> Task:
        """What the calls of one task are given."""

    async def call(self, what: str, slot: int, task: Task) -> None:
        """One call of the task's life; raises where it fails."""


@dataclass
class BenchTask:
    """A task of the server under load."""

    definition: Mapping[str, Any]
    task_id: str = field(default_factory=slugid)
    credentials: Mapping[str, str] | None = None  # those of its claim


class Server:
    """A server, called as a worker and a scheduler call it: Hawk-signed, over connections that are kept.

    ``definition`` is a part of every task's.
    """

    def __init__(self, name: str, line: Line, **definition: Any) -> None:
        self.name, self.line, self.probe = name, line, Probe(line)
        self._definition = {"workerType": "bench", **definition}
        url = urlsplit(line["baseUrl"])
        self._address, self._host, self._path = (url.hostname or "", url.port or 80), url.netloc, url.path
        self._connections: dict[int, Connection] = {}

    def new_task(self, **definition: Any) -> BenchTask:
        return BenchTask({**self._definition, **definition})

    async def call(self, what: str, slot: int, task: BenchTask) -> None:
        path = f"/task/{task.task_id}"
        worker = {"workerGroup": "bench", "workerId": f"w{slot}"}
        match what:
            case "createTask":
                options = dict(task.definition)
                await self.send(slot, "PUT", path, definition(options.pop("workerType"), **options))
            case "status":
                await self.send(slot, "GET", f"{path}/status")
            case "claimTask":
                claim = await self.send(slot, "POST", f"{path}/runs/0/claim", worker)
                task.credentials = claim["credentials"]
            case "claimWork":
                path = f"/claim-work/waiting/{task.definition['workerType']}"
                claims = (await self.send(slot, "POST", path, {**worker, "tasks": 1}))["tasks"]
                if not claims:
                    raise RuntimeError("claimWork found nothing though tasks are pending")
                claim = claims[0]
                task.task_id, task.credentials = claim["status"]["taskId"], claim["credentials"]
            case "reportCompleted":
                path = f"{path}/runs/0/completed"
                done = await self.send(slot, "POST", path, {}, task.credentials)
                if done["status"]["state"] != "completed":
                    raise RuntimeError(f"{path}: the task is {done['status']['state']}")
            case _:
                raise ValueError(what)

    async def send(
        self,
        slot: int,
        method: str,
        path: str,
        body: Any = None,
        credentials: Mapping[str, str] | None = None,
    ) -> Any:
        """The body of the answer, which must be a success."""
        if slot not in self._connections:
            self._connections[slot] = Connection(*self._address)
        target = self._path + path
        data = b"" if body is None else json.dumps(body).encode()
        signed = authorization(self.line, method, target, credentials)
        headers = f"Content-Type: application/json\r\nAuthorization: {signed}\r\n"
        answer = await self._connections[slot].send(request(method, self._host, target, data, headers))
        return json.loads(answer.body)


Latencies = dict[str, list[float]]


@dataclass
class Sample:
    """One measurement: ``unit`` is ``cycle`` or a call; ``latencies`` of it and its calls are in seconds."""

    unit: str
    side: str
    clients: int
    latencies: Latencies
    seconds: float
    load: float  # CPU seconds of this process meanwhile
    cpu: dict[str, float]
    operations: Counter[str]

    @property
    def count(self) -> int:
        return len(self.latencies[self.unit])

    @property
    def rate(self) -> float:
        """Units in a second."""
        return self.count / self.seconds


async def measured(side: Side[Any], unit: str, clients: int, load: Awaitable[Latencies]) -> Sample:
    """Run the load. CPU and operations include what the server does before its next load; the rate does not.

    What Azurite computes for that while another side is under load is that side's.
    """
    before = await side.probe.read()
    side.probe.charge(before)
    computed, start = time.process_time(), time.perf_counter()
    latencies = await load
    seconds, computed = time.perf_counter() - start, time.process_time() - computed
    await side.probe.rest()
    after = await side.probe.read()
    spent = {name: after.cpu[name] - before.cpu[name] for name in after.cpu}
    operations = after.operations - before.operations
    sample = Sample(unit, side.name, clients, latencies, seconds, computed, spent, operations)
    side.probe.keep(sample, after)
    return sample


async def cycles(side: Side[Any], clients: int, seconds: float) -> Latencies:
    """Each client runs whole cycles one after the other until the time is up, at least one cycle."""
    found: Latencies = {"cycle": [], **{what: [] for what in CYCLE}}
    end = time.perf_counter() + seconds

    async def client(slot: int) -> None:
        while True:
            task, start = side.new_task(), time.perf_counter()
            for what in CYCLE:
                begun = time.perf_counter()
                await side.call(what, slot, task)
                found[what].append(time.perf_counter() - begun)
            found["cycle"].append(time.perf_counter() - start)
            if time.perf_counter() >= end:
                return

    await asyncio.gather(*map(client, range(clients)))
    return found


async def _each(side: Side[Any], what: str, clients: int, tasks: Sequence[Any]) -> Latencies:
    """The same call for every task, each client takes the next task."""
    found: Latencies = {what: []}

    async def act(slot: int, task: Any) -> None:
        start = time.perf_counter()
        await side.call(what, slot, task)
        found[what].append(time.perf_counter() - start)

    await concurrently(act, clients, tasks)
    return found


async def each_call(side: Side[Any], clients: int, tasks: int) -> list[Sample]:
    """One call of all tasks after the other; claimWork claims tasks that nothing else does."""
    claimed = [side.new_task(workerType="bench-claimed") for _ in range(tasks)]
    worked = [side.new_task(workerType="bench-worked") for _ in range(tasks)]
    spare = [side.new_task(workerType="bench-worked") for _ in range(clients)]  # no poll finds nothing
    await _each(side, "createTask", clients, spare)
    samples = []
    for what, subjects in (
        ("createTask", [*claimed, *worked]),
        ("status", claimed),
        ("claimTask", claimed),
        ("claimWork", worked),
        ("reportCompleted", [*claimed, *worked]),
    ):
        samples.append(await measured(side, what, clients, _each(side, what, clients, subjects)))
    return samples


async def concurrently(
    act: Callable[[int, Any], Awaitable[None]], clients: int, items: Iterable[Any]
) -> None:
    """Each of the clients does the next item that is left."""
    left = iter(items)

    async def client(slot: int) -> None:
        for item in left:
            await act(slot, item)

    await asyncio.gather(*map(client, range(clients)))
