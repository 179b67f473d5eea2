"""Stores and ports as a test wants them: with something around each call, or kept by hand."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from copy import copy
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar, cast

from legacy_queue.domain.events import Event
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.timer import Timer
from legacy_queue.ports import Broker, BrokerAway
from legacy_queue.stores import (
    ArtifactStore,
    Blobs,
    DependencyStore,
    GroupStore,
    LeaseStore,
    Storage,
    TaskStore,
    TimerStore,
    UsageStore,
    WorkerStore,
    WorkQueues,
)
from legacy_queue.stores.timer_store import TimerMessage
from tests.topics import matches

Port = TypeVar("Port")
Intercept = Callable[[str, Callable[[], Any]], Any]  # told the port's method, and what would do it

_TICK = 0.02  # seconds between two looks of a reader at a broker that has no event for it


class TasksOf:
    """Another task store as it is: what a test makes different, it overrides."""

    def __init__(self, tasks: TaskStore) -> None:
        self.tasks = tasks

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tasks, name)


class ForgetfulTasks(TasksOf):
    """Recalls nothing, so that what is decided on is always read."""

    def recall(self, task_id: str) -> None:
        """Not known without a read."""


class FakeBroker(Broker):
    """Keeps what it is told, in order. ``room`` is how many more events it takes: None any number, 0 away.

    While it ``is_silent`` it takes events and does not confirm them.
    """

    def __init__(self) -> None:
        self.published: list[Event] = []
        self.room: int | None = None
        self.is_silent = False
        self._more = threading.Condition()

    def publish(self, events: Sequence[Event]) -> None:
        for event in events:
            self.check()
            with self._more:
                self.published.append(event)
                self._more.notify_all()
            if self.room:
                self.room -= 1
        if self.is_silent:
            raise BrokerAway

    def check(self) -> None:
        if self.room == 0:
            raise BrokerAway

    def follow(self, exchange: str | None, pattern: str) -> Iterator[Event | None]:
        seen = len(self.published)
        while True:
            self.check()
            new = self.published[seen:]
            seen += len(new)
            for event in new:
                if exchange in (None, event.exchange) and matches(pattern, event.routing_key):
                    yield event
            yield None
            with self._more:
                if len(self.published) == seen:
                    self._more.wait(_TICK)

    def close(self) -> None:
        """It has no connection."""


@cache
def _promises(kind: type) -> frozenset[str]:
    """The methods of a port that ask it: all but those that only recall what the process knows."""
    asks_nobody = ("recall", "begin_backlog")
    return frozenset(name for name in dir(kind) if not name.startswith("_") and name not in asks_nobody)


class _Port:
    """A port each promise of which is kept by way of ``around``, which is told ``<prefix><method>``."""

    def __init__(self, kind: type, port: object, around: Intercept, prefix: str) -> None:
        self._kind, self._port, self._around, self._prefix = kind, port, around, prefix

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if name not in _promises(self._kind):
            return found
        around, told = self._around, self._prefix + name
        made = lambda *args: around(told, lambda: found(*args))  # noqa: E731
        setattr(self, name, made)  # thousands of ports are made, and of each a few methods are called
        return made


def intercept_port(kind: type, port: Port, around: Intercept, prefix: str = "") -> Port:
    """The port or store, each of whose calls goes through ``around``."""
    return cast(Port, _Port(kind, port, around, prefix))


class InOrder(Executor):
    """Makes each call as it comes, in the thread that asks for it: the order is always the same."""

    def __init__(self, _at_once: int) -> None:
        """As a pool of threads is made."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **options))
        except BaseException as error:  # noqa: BLE001 - it is the answer, a crash too
            future.set_exception(error)
        return future


class _PutAtOnce(TimerStore):
    """Timers of which all messages are put by the call itself, not as its answer is read."""

    def __init__(self, timers: TimerStore) -> None:
        self._timers = timers

    def put(self, timers: Iterable[Timer], hidden_for: timedelta) -> Iterator[TimerMessage]:
        return iter(list(self._timers.put(timers, hidden_for)))

    def receive(self, hidden_for: timedelta) -> Sequence[TimerMessage]:
        return self._timers.receive(hidden_for)

    def remove(self, lease: MessageLease) -> None:
        self._timers.remove(lease)


def with_stores(storage: Storage, **stores: object) -> Storage:
    """The same stores, but for these."""
    changed = copy(storage)
    vars(changed).update(stores)
    return changed


def intercept_storage(storage: Storage, around: Intercept) -> Storage:
    """The same stores, each call of which goes through ``around``."""
    return with_stores(
        storage,
        tasks=intercept_port(TaskStore, storage.tasks, around),
        groups=intercept_port(GroupStore, storage.groups, around),
        work_queues=intercept_port(WorkQueues, storage.work_queues, around),
        dependencies=intercept_port(DependencyStore, storage.dependencies, around, "dependency."),
        timers=intercept_port(TimerStore, _PutAtOnce(storage.timers), around, "timer."),
        leases=intercept_port(LeaseStore, storage.leases, around, "lease."),
        artifacts=intercept_port(ArtifactStore, storage.artifacts, around, "artifact."),
        blobs=intercept_port(Blobs, storage.blobs, around, "blob."),
        usage=intercept_port(UsageStore, storage.usage, around, "usage."),
        workers=intercept_port(WorkerStore, storage.workers, around, "worker."),
    )
