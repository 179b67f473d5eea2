"""Fake ports, and wrappers that intercept each call of a store or a port."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from copy import copy
from functools import cache
from typing import Any, TypeVar, cast

from legacy_queue.domain.events import Event
from legacy_queue.ports import Broker, BrokerAway
from legacy_queue.ports.account import StorageAccount
from legacy_queue.services.events.event_buffer import MAX_EVENTS, BufferedEvent, EventBuffer
from legacy_queue.stores import Storage, TaskStore

Port = TypeVar("Port")
# gets the name of the method, and a function that makes the call
Intercept = Callable[[str, Callable[[], Any]], Any]
Deed = BaseException | Callable[[], object] | None


class DelegatingTasks:
    """Passes each call to another task store. A test overrides the methods that shall differ."""

    def __init__(self, tasks: TaskStore) -> None:
        self.tasks = tasks

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tasks, name)


class UncachedTasks(DelegatingTasks):
    """A task store without a cache, so that the services read the task for each decision."""

    def recall(self, task_id: str) -> None:
        """Returns None, so that the caller reads the task."""


class ShowsMessages:
    """An account that shows other messages than it has. By default it shows none, like Azure."""

    def __init__(self, account: StorageAccount, shown_messages: object = None) -> None:
        self.shown_messages = shown_messages
        self._account = account

    def __getattr__(self, name: str) -> Any:
        return getattr(self._account, name)


class FakeBroker(Broker):
    """A broker that keeps the published events in order.

    ``capacity`` is how many more events it accepts. None means any number, and 0 that the broker is away.
    """

    def __init__(self) -> None:
        self.published: list[Event] = []
        self.capacity: int | None = None

    def publish(self, events: Sequence[Event]) -> None:
        for event in events:
            self.check()
            self.published.append(event)
            if self.capacity:
                self.capacity -= 1

    def check(self) -> None:
        if self.capacity == 0:
            raise BrokerAway from ConnectionRefusedError()

    def close(self) -> None:
        """There is no connection to close."""


@cache
def _remote_methods(kind: type) -> frozenset[str]:
    """The public methods of a store or port, except those that only read the memory of the process."""
    local = ("recall", "begin_open_tasks", "knows_age")
    names = (name for name in dir(kind) if not name.startswith("_") and name not in local)
    return frozenset(name for name in names if callable(getattr(kind, name)))


class _Port:
    """Passes each remote method to ``intercept`` under the name ``<prefix><method>``."""

    def __init__(self, port: Any, intercept: Intercept, prefix: str) -> None:
        self._port, self._intercept, self._prefix = port, intercept, prefix
        self._kind: type = type(port)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if name not in _remote_methods(self._kind):
            return method
        intercept, full_name = self._intercept, self._prefix + name
        wrapper = lambda *args, **more: intercept(full_name, lambda: method(*args, **more))  # noqa: E731
        setattr(self, name, wrapper)  # cached: tests make thousands of ports and call few methods of each
        return wrapper


def intercept_port(port: Port, intercept: Intercept, prefix: str = "") -> Port:
    return cast(Port, _Port(port, intercept, prefix))


class SequentialExecutor(Executor):
    """Makes each call immediately in the calling thread, so that the order is always the same."""

    def __init__(self, _max_workers: int) -> None:
        """Accepts the parameter of ThreadPoolExecutor."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **options))
        except BaseException as error:  # noqa: BLE001 - the future carries it, a Crash too
            future.set_exception(error)
        return future


def events_in(buffer: EventBuffer) -> list[tuple[str, Event]]:
    """The events in the buffer, with their ids."""
    return [(entry.id, event_of(entry)) for entry in buffer.page(0, buffer.last, MAX_EVENTS).events]


def event_of(entry: BufferedEvent) -> Event:
    return Event(entry.exchange, entry.routing_key, tuple(entry.routes), json.loads(entry.payload))


def with_stores(storage: Storage, **stores: object) -> Storage:
    changed = copy(storage)
    vars(changed).update(stores)
    return changed


def intercept_storage(storage: Storage, intercept: Intercept) -> Storage:
    prefixes = {
        "processes": "process.",
        "tasks": "",
        "groups": "",
        "work_queues": "",
        "dependencies": "dependency.",
    }
    prefixes |= {name: f"{name[:-1]}." for name in ("artifacts", "blobs", "workers")}
    stores = ((name, getattr(storage, name), prefix) for name, prefix in prefixes.items())
    return with_stores(storage, **{name: intercept_port(store, intercept, at) for name, store, at in stores})


def call_through(_name: str, call: Callable[[], Any]) -> Any:
    return call()


class CallRecorder:
    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, name: str, call: Callable[[], Any]) -> Any:
        self.names.append(name)
        return call()


class Crash(BaseException):
    """The process dies at this line."""


class FaultAt:
    """Injects a fault at one call: number ``call``, from 0, of the method ``of``, or of all methods together.

    ``before`` and ``after`` happen just before and just after the call. A function is called, an error
    raised.

    After a Crash every later call fails too, so no ``finally`` or ``except`` of the code changes anything.
    """

    def __init__(self, call: int, *, of: str = "", before: Deed = None, after: Deed = None) -> None:
        self._left, self._of, self._before, self._after = call, of, before, after
        self._crash: Crash | None = None
        self.happened = False

    def __call__(self, name: str, call: Callable[[], Any]) -> Any:
        if self._crash:
            raise self._crash
        if self._of not in ("", name):
            return call()
        self._left -= 1
        if self._left != -1:
            return call()
        self.happened = True
        try:
            self._do(self._before)
            result = call()
            self._do(self._after)
        except Crash as crash:
            self._crash = crash
            raise
        return result

    def _do(self, deed: Deed) -> None:
        if isinstance(deed, BaseException):
            raise deed
        if deed:
            deed()
