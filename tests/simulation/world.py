"""Server processes on one storage and one broker, in virtual time.

Each call of a port takes time. At each call, the faults of the world can happen:

- The call is refused, carried out without an answer, or repeated by the adapter.
- A message is lost, doubled, late, forged or put into a wrong queue.
- The row of a process is lost.
- A page ends early.
- The process is killed or stands still.

Storage and broker are outside the processes and outlive them.
"""

import hashlib
import random
import re
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar, cast

import gevent
from gevent.event import AsyncResult

from legacy_queue.adapters.embedded import EmbeddedAccount
from legacy_queue.domain.authentication import Client
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import Event
from legacy_queue.domain.ids import TASK_ID
from legacy_queue.domain.messages import message_text, read_message
from legacy_queue.ports import Broker, BrokerAway
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.blob import BlobContainer
from legacy_queue.ports.queue import Queue
from legacy_queue.ports.table import PARTITION, RowPage, Table
from legacy_queue.services.recovery.job_definitions import Intervals
from legacy_queue.services.service_settings import ServiceSettings
from legacy_queue.services.services import Services
from legacy_queue.stores import ProcessStore, Storage
from tests.services.fake_ports import with_stores
from tests.simulation.virtual_time import VirtualClock, VirtualTime, VirtualWaiter

Result = TypeVar("Result")

PREFIX = "q"
TABLES = ("tasks", "groups", "dependencies", "artifacts", "processes", "workers")
SETTINGS = ServiceSettings(
    secrets=[b"the-secret-of-all-processes"],
    issuer=Client("queue", "the-access-token-of-the-issuer", ("*",)),
    claim_timeout=timedelta(minutes=2),
    sas_life=timedelta(minutes=30),
    poll_visibility=timedelta(seconds=30),
    claim_work_wait=timedelta(seconds=20),
    upload_url="http://queue.test/uploads",
)
# with shorter intervals, half of all calls would check the broker, and a third of all steps would do nothing
INTERVALS = Intervals(check=timedelta(seconds=5), flush=timedelta(seconds=5))
LATENCY = 0.008  # seconds that a call takes on average
_TIMEOUT = 30.0  # seconds after which a client gives up a request, like JavaScript clients
_BEFORE = ("broker.publish", "tasks.insert")
_AFTER = ("groups.batch", "tasks.merge")
_LIKELY = 8  # times as likely at the calls above
_AWAKE = 20.0  # seconds after standing still, in which a process finishes what it had begun
_READS = ("get", "page", "peek", "receive", "check", "count", "metadata", "copy")
_NOT_REPEATED = ("receive", "publish", "check")
_ID = re.compile(rf"\b{TASK_ID}\b")


class ConnectionLost(Exception):
    """The process died before it answered, or took too long."""


@dataclass(frozen=True)
class Faults:
    """The probability of each fault at a call of a port. By default none happens."""

    refused: float = 0.0  # the call is not carried out, and the answer is an error
    unanswered: float = 0.0  # the call is carried out, and the answer is an error
    repeated: float = 0.0  # the call is carried out twice, and the second answer counts
    slow: float = 0.0  # the call takes up to 5 s
    paged: float = 0.0  # the page ends early or is empty
    lost: float = 0.0  # the work message is lost
    doubled: float = 0.0
    late: float = 0.0
    forged: float = 0.0  # another message for the same run is put, signed by another server
    misplaced: float = 0.0  # the same message is also put into another queue
    forgotten: float = 0.0  # the row of the process is lost
    hung_up: float = 0.0  # the client of claimWork disconnects while it waits
    skew: float = 0.0  # not a probability: the clock of a process is wrong by up to this many seconds
    killed: float = 0.0  # the process is killed; only at calls that write or publish
    frozen: float = 0.0  # the process stands still for up to a minute; only at calls that write or publish
    away_every: float = 0.0  # not a probability: the broker is away about once in this many seconds

    @property
    def kinds(self) -> list[str]:
        return [name for name, value in vars(self).items() if value]

    def without(self, kind: str) -> "Faults":
        return replace(self, **{kind: 0.0})


@dataclass(frozen=True)
class Call:
    """A call of a port by a process. ``place`` is the queue or partition, for which Azure has limits."""

    process: "Process"
    service: str  # table, queue, blob or broker
    name: str  # the port and the method, such as tasks.insert or work.put
    place: str
    port: Any
    method: str
    words: tuple[Any, ...]
    named: Mapping[str, Any]

    def apply(self) -> Any:
        return getattr(self.port, self.method)(*self.words, **self.named)


Hook = Callable[[Call], None]


class World:
    """The world. ``seed`` decides what happens and in which order. ``note`` gets a line for each step.

    ``before`` and ``after`` are called before and after each call of a port is carried out.
    """

    def __init__(
        self,
        seed: int = 0,
        faults: Faults = Faults(),
        note: Callable[[str], None] | None = None,
        settings: ServiceSettings = SETTINGS,
    ) -> None:
        self.seed = seed
        self.faults = faults
        self.settings = settings
        self.intervals = INTERVALS  # for processes that are created from now on
        self.time = VirtualTime()
        self.clock = VirtualClock(self.time)
        self.account = EmbeddedAccount(None, self.clock, "http://127.0.0.1:1/azure", PREFIX)
        self.broker = SimulatedBroker(self)
        self.processes: list[Process] = []
        self.calls: Counter[str] = Counter()
        self.kills = 0
        # the tasks whose rows may have been written since the record last looked
        self.written: set[str] = set()
        # taskIds and runIds of the work messages that were lost
        self.lost: set[tuple[str, int]] = set()
        # taskIds for which there is a forged message
        self.forged: set[str] = set()
        # taskIds that were named in a lost row of a process
        self.forgotten: set[str] = set()
        # begin and end of each time in which a process stood still or the broker was away
        self.stalls: list[tuple[float, float]] = []
        self.failure: Exception | None = None
        # how many seconds a call takes
        self.latency: Callable[[Call], float] = lambda _: LATENCY * self.random("latency").uniform(0.5, 1.5)
        self.before: Hook = lambda _: None
        self.after: Hook = lambda _: None
        self._note = note
        self._names: dict[str, str] = {}
        self._randoms: dict[str, random.Random] = {}
        self._ids = 0
        for table in TABLES:
            self.account.table(PREFIX + table)
        self.account.check()

    def random(self, kind: str) -> random.Random:
        if kind not in self._randoms:
            self._randoms[kind] = random.Random(f"{self.seed} {kind}")
        return self._randoms[kind]

    def happens(self, kind: str, times: int = 1) -> bool:
        """Whether the fault happens now. Here it is ``times`` times as likely."""
        probability: float = getattr(self.faults, kind) * times
        return probability > 0 and self.random(kind).random() < probability

    def task_id(self) -> str:
        """A new taskId. Runs with the same seed get the same ids."""
        self._ids += 1
        raw = bytearray(hashlib.sha256(f"{self.seed} {self._ids}".encode()).digest()[:16])
        raw[0] &= 0x7F
        raw[6] = 0x40 | raw[6] & 0x0F
        raw[8] = 0x80 | raw[8] & 0x3F
        task_id = urlsafe_b64encode(raw).decode()[:22]
        self._names[task_id] = f"T{self._ids}"
        return task_id

    def note(self, text: str) -> None:
        """Write a line of the trace. Each taskId is replaced by T and a number, in the order of creation."""
        if self._note:
            self._note(f"{self.time.now:10.3f} {self.named(text)}")

    def named(self, text: str) -> str:
        return _ID.sub(lambda found: self._names.get(found[0], "?"), text)

    def new_process(self, *, starts: bool = True) -> "Process":
        process = Process(self, len(self.processes))
        self.processes.append(process)
        if starts:
            process.start()
        return process

    @property
    def alive(self) -> list["Process"]:
        return [process for process in self.processes if not process.is_dead]

    def spawn(self, act: Callable[[], object], after: float = 0.0) -> None:
        """Start a greenlet outside all processes. If it raises an error, ``run`` ends with this error."""

        def run() -> None:
            try:
                act()
            except Exception as error:  # noqa: BLE001 - ``run`` raises it
                self.failure = self.failure or error

        self.time.after(after, lambda: gevent.spawn(run))

    def run(self, until: float = float("inf"), ended: Callable[[], bool] = lambda: False) -> None:
        """Let time pass until ``until`` or until ``ended()``. Raises the error of a greenlet."""
        self.time.run(until, lambda: self.failure is not None or ended())
        if self.failure:
            raise self.failure

    def call(self, call: Call) -> Any:
        """Carry out a call, which takes time. Returns or raises what the process gets."""
        self.calls[call.name] += 1
        call.process.resume()
        self.before(call)
        self._stop_process(call, _BEFORE)
        call.process.resume()
        latency = self.latency(call)
        if self.happens("slow"):
            latency += self.random("slow").uniform(0, 5)
        self.time.sleep(latency / 2)
        call.process.resume()
        try:
            result = self._applied(call)
        except Exception as error:
            self._note_call(call, f": {type(error).__name__}")
            raise
        else:
            self._note_call(call, "")
            return result
        finally:
            if call.name.startswith("tasks."):
                self.written.add(call.place.partition("/")[2])
            self.after(call)
            self._stop_process(call, _AFTER)
            call.process.resume()
            self.time.sleep(latency / 2)
            call.process.resume()

    def _stop_process(self, call: Call, likely: Sequence[str]) -> None:
        """Maybe kill the process or let it stand still.

        At the calls in ``likely`` this is more likely, because there others see a half-finished change.
        """
        if call.method in _READS:
            return
        times = _LIKELY if call.name in likely else 1
        # a process that stood still before its write and dies after it may lose events: see recovery.md
        is_awake = self.time.now > call.process.frozen_until + _AWAKE
        if is_awake and self.happens("killed", times):
            call.process.kill()
        elif self.happens("frozen", times):
            call.process.freeze(self.random("frozen").uniform(1, 60))

    def _applied(self, call: Call) -> Any:
        if self.happens("refused"):
            raise _failure(call)
        result = self._apply(call)
        if call.method not in _NOT_REPEATED and self.happens("repeated"):
            result = self._apply(call)
        if self.happens("unanswered"):
            raise _failure(call)
        return result

    def _apply(self, call: Call) -> Any:
        if call.method == "page" and self.happens("paged"):
            conditions, after, limit, *rest = call.words
            if after and self.random("paged").random() < 0.3:
                return RowPage([], after)
            shorter = min(limit, self.random("paged").randint(1, 3))
            return call.port.page(conditions, after, shorter, *rest, **call.named)
        if call.name == "work.put":
            return self._put_message(call.port, *call.words, **call.named)
        result = call.apply()
        if call.name == "processes.put" and self.happens("forgotten"):
            partition, key, values = call.words
            call.port.delete(partition, key)
            self.forgotten |= {*_ID.findall(f"{values}")}
        return result

    def _put_message(self, queue: Any, text: str, hidden_for: timedelta, *time_to_live: timedelta) -> Any:
        if self.happens("late"):
            hidden_for += timedelta(seconds=self.random("late").randint(1, 20))
        task_id, run_id, _ = read_message(text)
        lease = queue.put(text, hidden_for, *time_to_live)
        if self.happens("lost"):
            queue.delete(lease)
            self.lost.add((task_id, run_id))
        elif self.happens("doubled"):
            queue.put(text, hidden_for, *time_to_live)
        if self.happens("forged"):
            queue.put(
                message_text(task_id, run_id, b"the secret of another server"), hidden_for, *time_to_live
            )
            self.forged.add(task_id)
        if self.happens("misplaced"):
            names = [name for name, _ in self.account.queues(PREFIX)]
            self.account.queue(self.random("misplaced").choice(names)).put(text, hidden_for, *time_to_live)
        return lease

    def _note_call(self, call: Call, result: str) -> None:
        if self._note and call.method != "check":
            about = " ".join(dict.fromkeys(_ID.findall(f"{call.words} {call.place}")))
            for text in call.words:
                with suppress(ValueError):
                    about = "{}/{}".format(*read_message(text)) if isinstance(text, str) else about
            self.note(f"p{call.process.number} {call.name} {about}{result}")


def _failure(call: Call) -> Exception:
    return BrokerAway("simulated") if call.service == "broker" else ServiceUnavailable("simulated")


class Process:
    """A server process. Its request handlers use ``services``."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.is_dead = False
        self.answers = 0
        self.frozen_until = float("-inf")
        self.clock = VirtualClock(world.time)
        # many clocks are wrong by the whole skew, so that two clocks often differ by twice as much
        wrong = world.random("skew").choice((-1, -1, -0.3, 0, 0.3, 1, 1))
        self.clock.skew = timedelta(seconds=wrong * world.faults.skew)
        self._requests: dict[AsyncResult[Any], None] = {}
        storage = Storage(cast(StorageAccount, _Account(self)), PREFIX, self.clock)
        table = storage.account.table(f"{PREFIX}processes")
        # the same name of its row in every run
        storage = with_stores(storage, processes=ProcessStore(table, self.clock, f"p{number:04}"))
        broker = cast(Broker, _Port(self, Broker, world.broker, "broker", "broker", "broker"))
        waiter = VirtualWaiter(world.time, self.resume)
        settings = replace(world.settings, announces_offers=True)
        self.services = Services(storage, broker, self.clock, waiter, settings)
        self.background = self.services.background(world.intervals)

    def start(self) -> None:
        self.world.note(f"p{self.number} starts")
        gevent.spawn(self.background.start)

    def resume(self) -> None:
        """Return when the process can go on. If it was killed, never return."""
        while self.world.time.now < self.frozen_until and not self.is_dead:
            self.world.time.sleep(self.frozen_until - self.world.time.now)
        if self.is_dead:
            while True:
                gevent.get_hub().switch()

    def freeze(self, seconds: float) -> None:
        self.world.note(f"p{self.number} stands still for {seconds:.1f} s")
        self.frozen_until = self.world.time.now + seconds
        self.world.stalls.append((self.world.time.now, self.frozen_until))

    def kill(self) -> None:
        """Kill the process. Its memory is lost, and its requests get no answer."""
        self.world.note(f"p{self.number} is killed")
        self.world.kills += 1
        self.is_dead = True
        for request in list(self._requests):
            request.set_exception(ConnectionLost())

    def request(self, act: Callable[[Services], Result]) -> Result:
        """Send a request. Returns the answer. Raises ConnectionLost, or an error of the services."""
        if self.is_dead:
            raise ConnectionLost
        answer: AsyncResult[Any] = AsyncResult()
        self._requests[answer] = None

        def handle() -> None:
            try:
                answer.set(act(self.services))
            except Exception as error:  # noqa: BLE001 - the caller gets it as the answer
                answer.set_exception(error)

        gevent.spawn(handle)
        try:
            self.world.time.wait(answer, _TIMEOUT)
        finally:
            del self._requests[answer]
        if not answer.ready():
            raise ConnectionLost
        self.answers += 1
        return cast(Result, answer.get())


def _partition(words: Sequence[Any]) -> str:
    """The partition that a call of a table is about. "" if it is about several."""
    if words and not isinstance(words[0], str):  # the call reads a page
        named = [each.value for each in words[0] if (each.name, each.operator) == (PARTITION, "eq")]
        return str(named[0]) if named else ""
    return words[0] if words else ""


class _Port:
    """A port of a process. Each call of a method becomes a Call."""

    def __init__(self, process: Process, kind: type, port: Any, service: str, name: str, place: str) -> None:
        self._port = port
        methods = [name for name, method in vars(kind).items() if callable(method) and name[0] != "_"]
        for method in set(methods) - {"now", "signed_urls", "upload_url", "download_url", "close"}:

            def call(*words: Any, method: str = method, **named: Any) -> Any:
                at = f"{place}/{_partition(words)}" if service == "table" else place
                made = Call(process, service, f"{name}.{method}", at, port, method, words, named)
                return process.world.call(made)

            setattr(self, method, call)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


class _Account:
    """The account of a process.

    Like Azure's, it does not say that another process has written, and does not show all messages.
    """

    version = None
    shown_messages = None

    def __init__(self, process: Process) -> None:
        self._process = process
        self._account = process.world.account
        self._ports: dict[str, Any] = {}
        blobs = _Port(process, BlobContainer, self._account.container, "blob", "blob", "artifacts")
        self.container = cast(BlobContainer, blobs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._account, name)

    def table(self, name: str) -> Any:
        short = name.removeprefix(PREFIX)
        return self._port(Table, self._account.table(name), "table", short, short)

    def queue(self, name: str) -> Any:
        return self._port(Queue, self._account.queue(name), "queue", "work", name)

    def _port(self, kind: type, port: Any, service: str, name: str, place: str) -> Any:
        if place not in self._ports:
            self._ports[place] = _Port(self._process, kind, port, service, name, place)
        return self._ports[place]

    def queues(self, prefix: str) -> Iterator[tuple[str, Mapping[str, str]]]:
        named = [*self._account.queues(prefix)]
        listing = Call(self._process, "queue", "account.queues", "queues", named, "copy", (), {})
        yield from self._process.world.call(listing)


class SimulatedBroker:
    """A broker that keeps the delivered events with their times. Until ``away_until`` it is away."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.away_until = 0.0
        self.delivered: list[tuple[float, Event]] = []

    def publish(self, events: Sequence[Event]) -> None:
        self.check()
        for event in events:
            self._world.note(f"delivered {event.exchange} {event.routing_key}")
            self.delivered.append((self._world.time.now, event))

    def check(self) -> None:
        if self._world.time.now < self.away_until:
            raise BrokerAway("simulated")

    def close(self) -> None:
        """There is no connection to close."""
