"""The services on memory storage and a fake clock. A test can intercept each call."""

import threading
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from legacy_queue.adapters.clock import SystemWaiter
from legacy_queue.adapters.embedded import EmbeddedAccount
from legacy_queue.domain.authentication import Client
from legacy_queue.domain.events import Event
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import Task, Worker
from legacy_queue.ports import Clock, Waiter
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.queue import QueuedMessage, QueueNotFound
from legacy_queue.services.process.liveness import DEAD_AFTER
from legacy_queue.services.service_settings import ServiceSettings
from legacy_queue.services.services import Services
from legacy_queue.services.tasks.claims import ClaimProof
from legacy_queue.stores import ProcessRow, ProcessStore, Storage, TaskStore
from tests.domain.sample_tasks import ALICE, CLAIM_TIMEOUT, MINUTE, NOW, SECOND, task_body
from tests.memory_server import FakeClock, messages_in
from tests.memory_server import Message as Message
from tests.services.fake_ports import (
    FakeBroker,
    Intercept,
    SequentialExecutor,
    UncachedTasks,
    call_through,
    intercept_port,
    intercept_storage,
    with_stores,
)

Logs = list[MutableMapping[str, Any]]
PublishedEvent = tuple[str, str, int | None]  # the exchange, the taskId or taskGroupId, and the runId

POLL_VISIBILITY = 5 * MINUTE
UPLOAD_URL = "http://queue.test/uploads"
SECRET, OLD_SECRET = b"the-first-secret-signs", b"an-older-one-verifies"
PREFIX = "q"
PROVISIONER, WORKER_TYPE = "provisioner", "worker-Type_1"
QUEUE = WorkQueue(PROVISIONER, WORKER_TYPE, "lowest")
HIGH = WorkQueue(PROVISIONER, WORKER_TYPE, "high")
ISSUER = Client("queue", "the-access-token-of-the-issuer", ("*",))
SETTINGS = ServiceSettings(
    (SECRET, OLD_SECRET), ISSUER, CLAIM_TIMEOUT, 30 * MINUTE, POLL_VISIBILITY, 20 * SECOND, UPLOAD_URL
)


def published_event(event: Event) -> PublishedEvent:
    payload = event.payload
    if event.exchange.startswith("task-group-"):
        return event.exchange, payload["taskGroupId"], None
    return event.exchange, payload["status"]["taskId"], payload.get("runId")


class Harness:
    """One storage, and any number of server replicas on it."""

    def __init__(self, required: Iterable[str] = ()) -> None:
        self.clock = FakeClock(NOW)
        self.account = EmbeddedAccount(None, self.clock, "http://127.0.0.1:1/azure", PREFIX)
        self.storage = Storage(self.account, PREFIX, self.clock)
        self.broker = FakeBroker()
        self._required = frozenset(required)
        self._events_read = 0
        self._replicas = 0
        self.services = self.replica()

    def replica(
        self,
        intercept: Intercept = call_through,
        *,
        caches_tasks: bool = False,
        wrap_tasks: Callable[[TaskStore], TaskStore] | None = None,
        clock: Clock | None = None,
        account: StorageAccount | None = None,
        waiter: Waiter | None = None,
        **settings: Any,
    ) -> Services:
        """The services of a new process, without threads. ``intercept`` wraps each call of its stores.

        Unless it ``caches_tasks``, it reads the task for each decision. ``wrap_tasks`` replaces its task
        store. ``account`` is by default the harness's. Calls that would be concurrent are made one after the
        other.
        """
        waiter, clock = waiter or SystemWaiter(), clock or self.clock
        storage = Storage(account or self.account, PREFIX, clock)
        self._replicas += 1  # the same names of rows in each run
        processes = ProcessStore(storage.account.table(f"{PREFIX}processes"), clock, f"p{self._replicas}")
        storage = intercept_storage(with_stores(storage, processes=processes), intercept)
        if wrap_tasks or not caches_tasks:
            storage = with_stores(storage, tasks=(wrap_tasks or UncachedTasks)(storage.tasks))
        broker = intercept_port(self.broker, intercept, "broker.")
        changed = replace(SETTINGS, proof_required=self._required, **settings)
        return Services(storage, broker, clock, waiter, changed, SequentialExecutor)

    def do_work(self, advance: timedelta = timedelta(0), services: Services | None = None) -> int:
        """Advance the clock, then do what the threads would do. Returns the number of looks at tasks."""
        services = services or self.services
        # if a row does not change from now on, its process is taken for dead
        services.processes.read_others()
        self.clock.advance(advance)
        total, handled = 0, 1
        while handled:
            if services.publisher.check():
                services.ledger.repeat_now()
            services.tick()
            services.processes.read_others()
            handled = services.resolver.handle_all()
            total += handled
        return total

    def sweep(self, advance: timedelta = timedelta(0), services: Services | None = None) -> None:
        """Advance the clock, then do the periodic jobs. By then, the other processes are taken for dead."""
        services = services or self.services
        services.processes.read_others()
        self.clock.advance(max(advance, DEAD_AFTER))
        services.processes.read_others()
        services.periodic_jobs.do_due(FakeEvent(self.clock))

    def events(self) -> list[PublishedEvent]:
        """The events published since the last call."""
        new = self.broker.published[self._events_read :]
        self._events_read += len(new)
        return [published_event(event) for event in new]

    def processes(self) -> Sequence[ProcessRow]:
        """The rows of the processes."""
        return self.storage.processes.others()

    def kill_process(self) -> None:
        """Kill the process and lose its row. From now on, a new process serves."""
        for row in self.processes():
            self.storage.processes.remove(row)
        self.services = self.replica()

    def create(self, **changes: Any) -> str:
        task_id = slugid()
        self.services.tasks.create(task_id, task_body(self.clock.now(), **changes))
        return task_id

    def task(self, task_id: str) -> Task:
        stored = self.storage.tasks.load(task_id)
        assert stored
        return stored.task

    def states(self, task_id: str) -> list[str]:
        """The state of each run, such as ``pending``, ``running by alice`` or ``exception claim-expired``."""
        words = []
        for run in self.task(task_id).runs:
            worker = run.worker.worker_id if run.worker else "no worker"
            more = {"pending": "", "running": f"by {worker}"}.get(run.state, run.reason_resolved)
            words.append(f"{run.state} {more}".strip())
        return words

    def receive(self, count: int = 32, queue: WorkQueue = QUEUE) -> list[Message]:
        """The messages that a worker gets when it polls now."""
        try:
            received = self.account.queue(queue.name(PREFIX)).receive(count, POLL_VISIBILITY)
        except QueueNotFound:
            return []
        return [Message.read(message) for message in received]

    def receive_one(self) -> Message:
        (message,) = self.receive()
        return message

    def delete(self, message: Message, queue: WorkQueue = QUEUE) -> None:
        self.account.queue(queue.name(PREFIX)).delete(message.lease)

    def claim(
        self,
        message: Message,
        worker: Worker = ALICE,
        services: Services | None = None,
        proof: ClaimProof | None = None,
    ) -> Mapping[str, Any]:
        """Claim with the message as proof, like the draft protocol.

        Deployed workers send ``ClaimProof()``.
        """
        services = services or self.services
        return services.claims.claim(
            services.tasks.recall(message.task_id),
            message.run_id,
            worker,
            message.proof if proof is None else proof,
        )

    def claimed(self, worker: Worker = ALICE, **changes: Any) -> str:
        """Create a task and claim it like the draft protocol. Returns its taskId."""
        task_id = self.create(**changes)
        self.claim(self.receive_one(), worker)
        return task_id

    def run(self, task_id: str, state: str = "completed", worker: Worker = ALICE) -> Task:
        """Claim the last run without proof, and resolve it as ``completed`` or ``failed``."""
        run_id = len(self.task(task_id).runs) - 1
        self.services.claims.claim(self.task(task_id), run_id, worker, ClaimProof())
        return self.services.tasks.report(task_id, run_id, state, state)

    def shut_down(self, task_id: str, services: Services | None = None) -> Task:
        return (services or self.services).tasks.report(task_id, 0, "exception", "worker-shutdown")

    def complete(self, task_id: str, run_id: int = 0, services: Services | None = None) -> Task:
        return (services or self.services).tasks.report(task_id, run_id, "completed", "completed")

    def messages(self, queue: WorkQueue = QUEUE) -> list[QueuedMessage]:
        """All messages of the queue, visible or not, ordered by next_visible. Reading them hides none."""
        return messages_in(self.account, queue.name(PREFIX))

    def offered_runs(self) -> list[tuple[int, timedelta]]:
        """The run of each message, and how long the message stays invisible."""
        offers = [(Message.read(message).run_id, message.next_visible) for message in self.messages()]
        return [(run_id, visible - self.clock.now()) for run_id, visible in offers if visible]


class FakeEvent(threading.Event):
    """An event on a fake clock. A wait advances the clock, and from ``end`` on the event is set."""

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
