"""The services on memory storage and a clock moved by hand, with every port call open to a fault."""

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from legacy_queue.adapters.memory import MemoryStorage
from legacy_queue.adapters.memory_queue import MessageNotFound, PopReceiptMismatch, QueuedMessage
from legacy_queue.domain.credentials import Client
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.messages import Lease
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import Task, Worker
from legacy_queue.domain.times import format_time
from legacy_queue.ports import (
    Clock,
    Group,
    GroupStore,
    SignedUrls,
    Storage,
    StoredTask,
    TaskStore,
    WorkQueues,
)
from legacy_queue.services import Services
from legacy_queue.services.changes import Changes
from legacy_queue.services.claims import ClaimRules, Claims, Presented
from legacy_queue.services.polling import Polling
from legacy_queue.services.tasks import Tasks
from legacy_queue.services.work_messages import WorkMessages
from tests.memory_server import HandClock

Result = TypeVar("Result")
Around = Callable[[str, Callable[[], Any]], Any]  # told the port's method, and what would do it

NOW = datetime(2030, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
CLAIM_TIMEOUT = timedelta(minutes=20)
POLL_VISIBILITY = timedelta(minutes=5)
SAS_LIFE = timedelta(minutes=30)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
SECRET, OLD_SECRET = b"the-first-secret-signs", b"an-older-one-verifies"
PREFIX = "q"
PROVISIONER, WORKER_TYPE = "provisioner", "worker-Type_1"
QUEUE = WorkQueue(PROVISIONER, WORKER_TYPE, "lowest")
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
    lease: Lease

    @classmethod
    def read(cls, received: QueuedMessage) -> "Message":
        text = json.loads(base64.b64decode(received.text, validate=True))
        assert set(text) == {"taskId", "runId", "signature"}
        return cls(text["taskId"], text["runId"], text["signature"], received.lease)

    @property
    def presented(self) -> Presented:
        """All that a worker of the draft tells of it."""
        return Presented(self.lease.message_id, self.lease.receipt, self.signature)


def nothing_around(_name: str, call: Callable[[], Any]) -> Any:
    return call()


class Bench:
    """One storage, and as many replicas of the server on it as a test asks for."""

    def __init__(
        self,
        *,
        required: Iterable[str] = (),
        secrets: Sequence[bytes] = (SECRET, OLD_SECRET),
        storage: type[MemoryStorage] = MemoryStorage,
    ) -> None:
        self.clock = HandClock(NOW)
        self.storage = storage(self.clock, "http://127.0.0.1:1/azure", PREFIX)
        self._required, self._secrets = frozenset(required), secrets
        self.services = self.replica()

    def replica(
        self,
        around: Around = nothing_around,
        *,
        remembers: bool = False,
        wrapped: Callable[[TaskStore], TaskStore] | None = None,
        secrets: Sequence[bytes] | None = None,
        clock: Clock | None = None,
    ) -> Services:
        """A server process. ``around`` sees each of its port calls; ``remembers`` as Azure's store does.

        ``wrapped`` gives it a task store made of the one there is.
        """
        secrets, clock = secrets or self._secrets, clock or self.clock
        storage = AroundStorage(self.storage, around)
        wrapped = wrapped or (RememberingTasks if remembers else lambda tasks: tasks)
        tasks = wrapped(storage.tasks)
        messages = WorkMessages(storage.work_queues, clock, secrets)
        changes = Changes(tasks, messages)
        rules = ClaimRules(secrets, CLAIM_TIMEOUT, self._required, ISSUER)
        return Services(
            tasks=Tasks(tasks, storage.groups, changes, messages, clock),
            claims=Claims(changes, messages, clock, rules),
            polling=Polling(storage.work_queues, clock, SAS_LIFE, POLL_VISIBILITY),
        )

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

    def receive(self, count: int = 32) -> list[Message]:
        """What a worker gets that polls now."""
        received = self.storage.work_queues.receive(QUEUE.name(PREFIX), count, POLL_VISIBILITY)
        return [Message.read(one) for one in received]

    def receive_one(self) -> Message:
        (message,) = self.receive()
        return message

    def delete(self, message: Message) -> None:
        """What a worker does with its delete URL."""
        self.storage.work_queues.delete(QUEUE.name(PREFIX), message.lease)

    def delete_if_leased(self, message: Message) -> None:
        """The same, by a worker that takes Azure's 400 and 404 as they come."""
        with suppress(MessageNotFound, PopReceiptMismatch):
            self.delete(message)

    def claim(
        self,
        message: Message,
        worker: Worker = ALICE,
        services: Services | None = None,
        presented: Presented | None = None,
        run_id: int | None = None,
    ) -> Mapping[str, Any]:
        """The draft's claim, unless told what is presented (``Presented()`` is the deployed protocol's)."""
        services = services or self.services
        return services.claims.claim(
            services.tasks.recall(message.task_id),
            message.run_id if run_id is None else run_id,
            worker,
            message.presented if presented is None else presented,
        )

    def claimed(self, worker: Worker = ALICE, **changes: Any) -> str:
        """A new task that the worker has claimed as the draft says."""
        task_id = self.create(**changes)
        self.claim(self.receive_one(), worker)
        return task_id

    def shut_down(self, task_id: str, run_id: int = 0, services: Services | None = None) -> Task:
        """The worker reports worker-shutdown."""
        return (services or self.services).tasks.report(task_id, run_id, "exception", "worker-shutdown")

    def complete(self, task_id: str, run_id: int = 0, services: Services | None = None) -> Task:
        return (services or self.services).tasks.report(task_id, run_id, "completed", "completed")

    def messages(self) -> list[QueuedMessage]:
        """All there are, visible or not, in the order in which they become visible. Nobody is served."""
        queue = self.storage.work_queues._queues.get(QUEUE.name(PREFIX))
        now = self.clock.now()
        alive = [one for one in queue._messages.values() if one.expires > now] if queue else []
        return sorted(alive, key=lambda one: one.next_visible)

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


class Crash(Exception):
    """The process is gone: nothing after this line happens."""


class At:
    """Lets ``before`` or ``after`` happen at the ``call``-th (from 0) call of a port, or of that method."""

    def __init__(
        self,
        call: int,
        *,
        of: str = "",
        before: Callable[[], object] | None = None,
        after: Callable[[], object] | None = None,
    ) -> None:
        self._left, self._of, self._before, self._after = call, of, before, after
        self.happened = False

    def __call__(self, name: str, call: Callable[[], Any]) -> Any:
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


def failing(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


class RememberingTasks(TaskStore):
    """Recalls what this process saw last, however old that is, as Azure's task store does."""

    def __init__(self, tasks: TaskStore) -> None:
        self._tasks = tasks
        self._seen: dict[str, StoredTask] = {}

    def load(self, task_id: str) -> StoredTask | None:
        stored = self._tasks.load(task_id)
        return self._remember(stored) if stored else None

    def recall(self, task_id: str) -> StoredTask | None:
        return self._seen.get(task_id)

    def insert(self, task: Task) -> StoredTask:
        return self._remember(self._tasks.insert(task))

    def replace(self, stored: StoredTask, task: Task) -> StoredTask:
        return self._remember(self._tasks.replace(stored, task))

    def _remember(self, stored: StoredTask) -> StoredTask:
        self._seen[stored.task.task_id] = stored
        return stored


class AroundTasks(TaskStore):
    def __init__(self, tasks: TaskStore, around: Around) -> None:
        self._tasks, self._around = tasks, around

    def load(self, task_id: str) -> StoredTask | None:
        return self._around("load", lambda: self._tasks.load(task_id))

    def insert(self, task: Task) -> StoredTask:
        return self._around("insert", lambda: self._tasks.insert(task))

    def replace(self, stored: StoredTask, task: Task) -> StoredTask:
        return self._around("replace", lambda: self._tasks.replace(stored, task))


class AroundGroups(GroupStore):
    def __init__(self, groups: GroupStore, around: Around) -> None:
        self._groups, self._around = groups, around

    def join(self, task_id: str, task_group_id: str, scheduler_id: str, expires: datetime) -> Group:
        return self._around("join", lambda: self._groups.join(task_id, task_group_id, scheduler_id, expires))


class AroundQueues(WorkQueues):
    def __init__(self, queues: WorkQueues, around: Around) -> None:
        self._queues, self._around = queues, around

    def put(self, queue: WorkQueue, text: str, expires_in: timedelta, hidden_for: timedelta) -> Lease:
        return self._around("put", lambda: self._queues.put(queue, text, expires_in, hidden_for))

    def hide(self, queue: WorkQueue, lease: Lease, text: str, hidden_for: timedelta) -> Lease:
        return self._around("hide", lambda: self._queues.hide(queue, lease, text, hidden_for))

    def remove(self, queue: WorkQueue, lease: Lease) -> None:
        self._around("remove", lambda: self._queues.remove(queue, lease))

    def count(self, queue: WorkQueue) -> int:
        return self._around("count", lambda: self._queues.count(queue))

    def signed_urls(
        self, queues: Sequence[WorkQueue], start: datetime, expiry: datetime, visibility: timedelta
    ) -> list[SignedUrls]:
        return self._around(
            "signed_urls", lambda: self._queues.signed_urls(queues, start, expiry, visibility)
        )


class AroundStorage(Storage):
    """Another storage, each call of which goes through ``around``."""

    def __init__(self, storage: Storage, around: Around) -> None:
        self.tasks = AroundTasks(storage.tasks, around)
        self.groups = AroundGroups(storage.groups, around)
        self.work_queues = AroundQueues(storage.work_queues, around)
        self._storage = storage

    def check(self) -> None:
        self._storage.check()
