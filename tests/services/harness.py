"""The services on memory storage and a clock moved by hand, with every port call open to a fault."""

import base64
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from legacy_queue.adapters.memory import MemoryAccount
from legacy_queue.domain.authentication import Client
from legacy_queue.domain.events import Event
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import Task, Worker
from legacy_queue.domain.timer import Timer, timers_of
from legacy_queue.domain.times import format_time
from legacy_queue.ports import Broker, Clock, ObjectStore
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.queue import MessageNotFound, PopReceiptMismatch, QueuedMessage, QueueNotFound
from legacy_queue.services import Services
from legacy_queue.services.claims import ClaimProof, ClaimRules
from legacy_queue.services.concurrency import Threads
from legacy_queue.services.core import Core, Rules, build_core
from legacy_queue.stores import ReceivedMessage, Storage, TaskStore
from tests.memory_server import FakeClock, messages_in
from tests.services.ports import (
    FakeBroker,
    ForgetfulTasks,
    InOrder,
    Intercept,
    intercept_port,
    intercept_storage,
    with_stores,
)

PublishedEvent = tuple[str, str, int | None]  # an event: exchange, taskId or taskGroupId, runId

NOW = datetime(2030, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
CLAIM_TIMEOUT = timedelta(minutes=20)
POLL_VISIBILITY = timedelta(minutes=5)
CLAIM_WORK_WAIT = timedelta(seconds=20)
SAS_LIFE = timedelta(minutes=30)
UPLOAD_URL = "http://queue.test/uploads"
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
SECRET, OLD_SECRET = b"the-first-secret-signs", b"an-older-one-verifies"
PREFIX = "q"
PROVISIONER, WORKER_TYPE = "provisioner", "worker-Type_1"
QUEUE = WorkQueue(PROVISIONER, WORKER_TYPE, "lowest")
HIGH = WorkQueue(PROVISIONER, WORKER_TYPE, "high")
ISSUER = Client("queue", "the-access-token-of-the-issuer", ("*",))
ALICE, BOB = Worker("group", "alice"), Worker("group", "bob")


def task_body(now: datetime = NOW, **changes: Any) -> dict[str, Any]:
    """What createTask is given; the deadline is a day away."""
    return {
        "provisionerId": PROVISIONER,
        "workerType": WORKER_TYPE,
        "created": format_time(now),
        "deadline": format_time(now + timedelta(days=1)),
        "payload": {"command": ["true"]},
        "metadata": {
            "name": "a name",
            "description": "a description",
            "owner": "owner@example.com",
            "source": "https://example.com/source",
        },
        **changes,
    }


@dataclass(frozen=True)
class Message:
    """What a worker reads in a message that it polled."""

    task_id: str
    run_id: int
    signature: str
    lease: MessageLease

    @classmethod
    def read(cls, received: QueuedMessage) -> "Message":
        text = json.loads(base64.b64decode(received.text, validate=True))
        assert set(text) == {"taskId", "runId", "signature"}
        return cls(text["taskId"], text["runId"], text["signature"], received.lease)

    @property
    def proof(self) -> ClaimProof:
        """All that a worker of the draft tells of it."""
        return ClaimProof(self.lease.message_id, self.lease.receipt, self.signature)

    @property
    def received(self) -> ReceivedMessage:
        """As a server has it that polls for claimWork."""
        wire = {"taskId": self.task_id, "runId": self.run_id, "signature": self.signature}
        return ReceivedMessage(self.lease, base64.b64encode(json.dumps(wire).encode()).decode())


def call_through(_name: str, call: Callable[[], Any]) -> Any:
    return call()


def one_by_one(act: Callable[[ReceivedMessage], None], items: list[ReceivedMessage]) -> None:
    for item in items:
        act(item)


def published_event(event: Event) -> PublishedEvent:
    payload = event.payload
    if event.exchange.startswith("task-group-"):
        return event.exchange, payload["taskGroupId"], None
    return event.exchange, payload["status"]["taskId"], payload.get("runId")


class Harness:
    """One storage, and as many replicas of the server on it as a test asks for."""

    def __init__(
        self,
        *,
        required: Iterable[str] = (),
        secrets: Sequence[bytes] = (SECRET, OLD_SECRET),
        broker: FakeBroker | None = None,
        objects: ObjectStore | None = None,
    ) -> None:
        self.clock = FakeClock(NOW)
        self.account = MemoryAccount(self.clock, "http://127.0.0.1:1/azure", PREFIX)
        self.storage = Storage(self.account, PREFIX, self.clock)
        self.timer_queue = self.account.queue(f"{PREFIX}-timers")
        self.broker = broker or FakeBroker()
        self.objects = objects
        self._required, self._secrets = frozenset(required), secrets
        self._heard = 0
        self.core = self.server()
        self.services = self.core.services

    def server(
        self,
        around: Intercept = call_through,
        *,
        remembers: bool = False,
        wrapped: Callable[[TaskStore], TaskStore] | None = None,
        secrets: Sequence[bytes] | None = None,
        clock: Clock | None = None,
        resolves: bool = True,
        claim_work_wait: timedelta = CLAIM_WORK_WAIT,
        max_waiting: int = 3000,
        account: StorageAccount | None = None,
        threads: Threads = InOrder,
    ) -> Core:
        """A server process. ``around`` sees each call of its stores; it reads tasks unless it ``remembers``.

        ``wrapped`` gives it a task store made of its own. Its stores are those of the bench's account, or of
        that one. Its threads are not started; what it calls concurrently happens in order, unless ``threads``
        are given.
        """
        secrets = secrets or self._secrets
        storage = intercept_storage(Storage(account or self.account, PREFIX, clock or self.clock), around)
        if wrapped or not remembers:
            storage = with_stores(storage, tasks=(wrapped or ForgetfulTasks)(storage.tasks))
        broker = intercept_port(Broker, self.broker, around, "broker.")
        claims = ClaimRules(secrets, CLAIM_TIMEOUT, self._required, ISSUER)
        rules = Rules(
            claims,
            SAS_LIFE,
            POLL_VISIBILITY,
            claim_work_wait,
            UPLOAD_URL,
            resolves,
            max_waiting,
            renewed_every=24 * HOUR,  # in real time, of which a busy machine may need any amount
        )
        return build_core(storage, broker, clock or self.clock, rules, self.objects, threads)

    def replica(self, around: Intercept = call_through, **changes: Any) -> Services:
        """The services of a ``server`` like that."""
        return self.server(around, **changes).services

    def run_timers(self, advance: timedelta = timedelta(0), server: Core | None = None) -> int:
        """Let time pass, then the server's threads do all there is to do; how many timers it handled."""
        server = server or self.core
        self.clock.advance(advance)
        handled, found = 0, 1
        while found:
            server.publisher.check()
            server.timers.tick()
            server.timers.receive()
            found = server.resolver.handle_all()
            handled += found
        return handled

    def sweep(self, advance: timedelta = timedelta(0), server: Core | None = None) -> None:
        """Let time pass, then it does the periodic jobs that are due; its timers are not looked at."""
        self.clock.advance(advance)
        periodic_jobs = (server or self.core).periodic_jobs
        assert periodic_jobs
        periodic_jobs.do_due(FakeEvent(self.clock))

    def events(self) -> list[PublishedEvent]:
        """What was published since the last look: exchange, taskId (or taskGroupId), runId."""
        heard = self.broker.published[self._heard :]
        self._heard += len(heard)
        return [published_event(event) for event in heard]

    def timers(self) -> list[tuple[Timer, timedelta]]:
        """Each timer that is stored, and in how long its message becomes visible; the next first."""
        now = self.clock.now()
        return [
            (timer, one.next_visible - now) for one in self.timer_messages() for timer in timers_of(one.text)
        ]

    def lose_timers(self) -> None:
        """Every message with timers."""
        for message in self.timer_messages():
            self.timer_queue.delete(message.lease)

    def lose_process(self) -> None:
        """The process is killed and its timers are lost; another serves from now on."""
        self.lose_timers()
        self.core = self.server()
        self.services = self.core.services

    def double_timers(self) -> None:
        """There is another message like each with timers."""
        for message in self.timer_messages():
            delay = max(timedelta(0), message.next_visible - self.clock.now())
            self.timer_queue.put(message.text, delay)

    def hasten_timers(self) -> None:
        """Each message with timers is visible now."""
        for message in self.timer_messages():
            self.timer_queue.update(message.lease, message.text, timedelta(0))

    def timer_messages(self) -> list[QueuedMessage]:
        """All messages with timers, visible or not; nobody is served."""
        return messages_in(self.account, self.timer_queue.name)

    def create(self, **changes: Any) -> str:
        task_id = slugid()
        self.services.tasks.create(task_id, task_body(self.clock.now(), **changes))
        return task_id

    def task(self, task_id: str) -> Task:
        stored = self.storage.tasks.load(task_id)
        assert stored
        return stored.task

    def states(self, task_id: str) -> list[str]:
        """``pending``, ``running by alice``, ``exception claim-expired``, ... for each run."""
        words = []
        for run in self.task(task_id).runs:
            worker = run.worker.worker_id if run.worker else "nobody"
            more = {"pending": "", "running": f"by {worker}"}.get(run.state, run.reason_resolved)
            words.append(f"{run.state} {more}".strip())
        return words

    def receive(self, count: int = 32, queue: WorkQueue = QUEUE) -> list[Message]:
        """What a worker gets that polls now."""
        try:
            received = self.account.queue(queue.name(PREFIX)).receive(count, POLL_VISIBILITY)
        except QueueNotFound:
            return []
        return [Message.read(one) for one in received]

    def receive_one(self) -> Message:
        (message,) = self.receive()
        return message

    def delete(self, message: Message, queue: WorkQueue = QUEUE) -> None:
        """What a worker does with its delete URL."""
        self.account.queue(queue.name(PREFIX)).delete(message.lease)

    def delete_if_leased(self, message: Message, queue: WorkQueue = QUEUE) -> None:
        """The same, by a worker that takes Azure's 400 and 404 as they come."""
        with suppress(MessageNotFound, PopReceiptMismatch):
            self.delete(message, queue)

    def claim(
        self,
        message: Message,
        worker: Worker = ALICE,
        services: Services | None = None,
        proof: ClaimProof | None = None,
        run_id: int | None = None,
    ) -> Mapping[str, Any]:
        """The draft's claim, unless told what is proof (``ClaimProof()`` is the deployed protocol's)."""
        services = services or self.services
        return services.claims.claim(
            services.tasks.recall(message.task_id),
            message.run_id if run_id is None else run_id,
            worker,
            message.proof if proof is None else proof,
        )

    def claimed(self, worker: Worker = ALICE, **changes: Any) -> str:
        """A new task that the worker has claimed as the draft says."""
        task_id = self.create(**changes)
        self.claim(self.receive_one(), worker)
        return task_id

    def run(self, task_id: str, state: str = "completed", worker: Worker = ALICE) -> Task:
        """The worker claims the last run by its name, and reports it ``completed`` or ``failed``."""
        run_id = len(self.task(task_id).runs) - 1
        self.services.claims.claim(self.task(task_id), run_id, worker, ClaimProof())
        return self.services.tasks.report(task_id, run_id, state, state)

    def complete_by(self, server: Core, task_id: str) -> None:
        """The task is claimed and completed by that server, which does all that follows from it."""
        server.services.claims.claim(self.task(task_id), 0, ALICE, ClaimProof())
        self.complete(task_id, services=server.services)
        self.run_timers(server=server)

    def shut_down(self, task_id: str, run_id: int = 0, services: Services | None = None) -> Task:
        """The worker reports worker-shutdown."""
        return (services or self.services).tasks.report(task_id, run_id, "exception", "worker-shutdown")

    def complete(self, task_id: str, run_id: int = 0, services: Services | None = None) -> Task:
        return (services or self.services).tasks.report(task_id, run_id, "completed", "completed")

    def messages(self, queue: WorkQueue = QUEUE) -> list[QueuedMessage]:
        """All there are, visible or not, in the order in which they become visible. Nobody is served."""
        return messages_in(self.account, queue.name(PREFIX))

    def runs_to_come(self) -> list[tuple[int, timedelta]]:
        """Of each message, its run and in how long it becomes visible."""
        now = self.clock.now()
        return [(Message.read(one).run_id, one.next_visible - now) for one in self.messages()]


class Calls:
    """The port calls that are made, in their order."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, name: str, call: Callable[[], Any]) -> Any:
        self.names.append(name)
        return call()


class Crash(BaseException):
    """The process is gone: nothing after this line happens."""


class FaultAt:
    """Lets ``before`` or ``after`` happen at the ``call``-th (from 0) call of a port, or of that method.

    After a Crash there are no more calls: whatever the code does on its way out does not happen either.
    """

    def __init__(
        self,
        call: int,
        *,
        of: str = "",
        before: Callable[[], object] | None = None,
        after: Callable[[], object] | None = None,
    ) -> None:
        self._left, self._of, self._before, self._after = call, of, before, after
        self._crash: Crash | None = None
        self.happened = False

    def __call__(self, name: str, call: Callable[[], Any]) -> Any:
        if self._crash:
            raise self._crash
        try:
            return self._call(name, call)
        except Crash as crash:
            self._crash = crash
            raise

    @property
    def crashed(self) -> bool:
        return self._crash is not None

    def _call(self, name: str, call: Callable[[], Any]) -> Any:
        is_now = False
        if self._of in ("", name):
            is_now = self._left == 0
            self._left -= 1
        self.happened |= is_now
        if is_now and self._before:
            self._before()
        result = call()
        if is_now and self._after:
            self._after()
        return result


class FakeEvent(threading.Event):
    """Time passes by hand while somebody waits for it; from ``end`` on it is set."""

    def __init__(self, clock: FakeClock, end: datetime | None = None) -> None:
        super().__init__()
        self._clock, self._end = clock, end
        self.waits: list[float] = []

    def is_set(self) -> bool:
        return super().is_set() or (self._end is not None and self._clock.now() >= self._end)

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        if not self.is_set():
            self.waits.append(timeout)
            self._clock.advance(timedelta(seconds=timeout))
        return self.is_set()


def failing(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail
