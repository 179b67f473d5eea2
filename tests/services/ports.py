"""The ports as a test wants them: with something around each call, or kept by hand."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar, cast

from legacy_queue.domain.events import Event
from legacy_queue.domain.task import Task
from legacy_queue.ports import (
    ArtifactStore,
    Blobs,
    Broker,
    BrokerAway,
    DependencyStore,
    EventLog,
    Expiring,
    GroupStore,
    OwnQueues,
    Storage,
    StoredTask,
    TaskPage,
    TaskStore,
    Turns,
    UsageStore,
    WorkerStore,
    WorkQueues,
)
from tests.topics import matches

Port = TypeVar("Port")
Around = Callable[[str, Callable[[], Any]], Any]  # told the port's method, and what would do it


class TasksOf(TaskStore):
    """Another task store as it is: what a test makes different, it overrides."""

    def __init__(self, tasks: TaskStore) -> None:
        self._tasks = tasks

    def load(self, task_id: str) -> StoredTask | None:
        return self._tasks.load(task_id)

    def insert(self, task: Task) -> StoredTask:
        return self._tasks.insert(task)

    def replace(self, stored: StoredTask, task: Task) -> StoredTask:
        return self._tasks.replace(stored, task)

    def pending(self, provisioner_id: str, worker_type: str) -> int | None:
        return self._tasks.pending(provisioner_id, worker_type)

    def unresolved(self, after: str, limit: int) -> TaskPage:
        return self._tasks.unresolved(after, limit)

    def remove_expired(self, now: datetime, after: str, limit: int) -> str | None:
        return self._tasks.remove_expired(now, after, limit)


class RememberingTasks(TasksOf):
    """Recalls what this process saw last, however old that is, as Azure's task store does."""

    def __init__(self, tasks: TaskStore) -> None:
        super().__init__(tasks)
        self._seen: dict[str, StoredTask] = {}

    def load(self, task_id: str) -> StoredTask | None:
        stored = super().load(task_id)
        return self._remember(stored) if stored else None

    def pending(self, provisioner_id: str, worker_type: str) -> None:  # noqa: ARG002
        """Not known without a scan, as Azure has it."""
        return

    def recall(self, task_id: str) -> StoredTask | None:
        return self._seen.get(task_id)

    def insert(self, task: Task) -> StoredTask:
        return self._remember(super().insert(task))

    def replace(self, stored: StoredTask, task: Task) -> StoredTask:
        return self._remember(super().replace(stored, task))

    def _remember(self, stored: StoredTask) -> StoredTask:
        self._seen[stored.task.task_id] = stored
        return stored


class HandBroker(Broker):
    """Keeps what it is told, in order. ``room`` is how many more events it takes: None any number, 0 away.

    While it ``is_silent`` it takes events and does not confirm them.
    """

    def __init__(self) -> None:
        self.told: list[Event] = []
        self.room: int | None = None
        self.is_silent = False

    def publish(self, events: Sequence[Event]) -> None:
        for event in events:
            self.check()
            self.told.append(event)
            if self.room:
                self.room -= 1
        if self.is_silent:
            raise BrokerAway

    def check(self) -> None:
        if self.room == 0:
            raise BrokerAway

    def follow(self, exchange: str | None, pattern: str) -> Iterator[Event | None]:
        seen = len(self.told)
        while True:
            self.check()
            for event in self.told[seen:]:
                if exchange in (None, event.exchange) and matches(pattern, event.routing_key):
                    yield event
            seen = len(self.told)
            yield None

    def close(self) -> None:
        """It has no connection."""


class _Port:
    """A port each promise of which is kept by way of ``around``, which is told ``<prefix><method>``."""

    def __init__(self, kind: Any, port: object, around: Around, prefix: str) -> None:
        self._port = port
        for name in kind.__abstractmethods__:
            setattr(self, name, self._around(getattr(port, name), around, prefix + name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    @staticmethod
    def _around(method: Callable[..., Any], around: Around, name: str) -> Callable[..., Any]:
        return lambda *args: around(name, lambda: method(*args))


def around_port(kind: Any, port: Port, around: Around, prefix: str = "") -> Port:
    """The port, each of whose calls goes through ``around``; the other calls do not count."""
    return cast(Port, _Port(kind, port, around, prefix))


class AroundStorage(Storage):
    """Another storage, each call of which goes through ``around``."""

    def __init__(self, storage: Storage, around: Around) -> None:
        self.tasks = around_port(TaskStore, storage.tasks, around)
        self.groups = around_port(GroupStore, storage.groups, around)
        self.work_queues = around_port(WorkQueues, storage.work_queues, around)
        self.dependencies = around_port(DependencyStore, storage.dependencies, around, "dependency.")
        self.own_queues = around_port(OwnQueues, storage.own_queues, around, "timer.")
        self.turns = around_port(Turns, storage.turns, around, "turn.")
        self.event_log = around_port(EventLog, storage.event_log, around, "log.")
        self.artifacts = around_port(ArtifactStore, storage.artifacts, around, "artifact.")
        self.blobs = around_port(Blobs, storage.blobs, around, "blob.")
        self.usage = around_port(UsageStore, storage.usage, around, "usage.")
        self.workers = around_port(WorkerStore, storage.workers, around, "worker.")
        self.expiring = {
            name: around_port(Expiring, one, around, "expire.") for name, one in storage.expiring.items()
        }
        self._storage = storage

    def check(self) -> None:
        self._storage.check()
