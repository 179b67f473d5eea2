"""A broker stops and returns: calls go on, and all events arrive in the end, in order.

Two servers publish: one of one process, and one of two that is killed while events wait.
"""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from legacy_queue.local_processes.azurite import Azurite
from tests.rabbitmq import RabbitMQ

from .accounts import as_root, on_account
from .http_queue import Json, Queue, definition, slugid
from .listeners import Listener, ReceivedEvent, Reference
from .processes import Server, serve

TYPE = "lasting"
TASKS = 3  # that each server begins at a time
HALF = ["defined", "pending 0", "running 0 one", "pending 1"]
WHOLE = [*HALF, "running 1 two", "completed 1 two", "group-resolved"]


class Broker:
    """A broker of this module, with a password that no log may hold."""

    def __init__(self, folder: Path, home: Path) -> None:
        self._folder, self._home = folder, home
        self.start()

    def start(self) -> None:
        self._running = RabbitMQ(self._folder, self._home).start()

    def stop(self) -> None:
        self._running.stop()

    @property
    def url(self) -> str:
        return self._running.url


@dataclass
class Publisher:
    """A server and its tasks. Their events wait in a queue that survives restarts of the broker."""

    start: Callable[[], Server]  # another server on the same queue
    server: Server
    reference: Reference
    tasks: list[str] = field(default_factory=list)  # half of their lives is over
    events: list[ReceivedEvent] = field(default_factory=list)

    @property
    def queue(self) -> Queue:
        return as_root(self.server)

    def begin_and_end(self) -> list[str]:
        """Live the second half of the tasks, which are returned, and the first half of new tasks."""
        ended, self.tasks = self.tasks, [slugid() for _ in range(TASKS)]
        with ThreadPoolExecutor(TASKS) as pool:
            list(pool.map(self._end, ended))
            list(pool.map(self._begin, self.tasks))
        return ended

    @contextmanager
    def listening(self, url: str) -> Iterator[Listener]:
        listener = Listener(url, self.reference, self.reference.project)
        listener.all = self.events
        try:
            yield listener
        finally:
            listener.close()

    def assert_published(self, url: str, ended: list[str]) -> None:
        with self.listening(url) as listener:
            expected = {**dict.fromkeys(ended, WHOLE), **dict.fromkeys(self.tasks, HALF)}
            listener.wait_for(expected, may_repeat=True)

    def _begin(self, task_id: str) -> None:
        self.queue.create(definition(TYPE), task_id)
        self._report(task_id, 0, "one", "exception", {"reason": "worker-shutdown"})

    def _end(self, task_id: str) -> None:
        self._report(task_id, 1, "two", "completed")

    def _report(self, task_id: str, run_id: int, worker: str, verb: str, body: Json | None = None) -> None:
        claim = self.queue.claim_by_name(task_id, run_id, worker)
        assert claim.status_code == 200, claim.text
        holder = self.queue.with_credentials(claim.json()["credentials"])
        assert holder.on_run((task_id, run_id), "reclaim").status_code == 200
        answer = holder.on_run((task_id, run_id), verb, body)
        assert answer.status_code == 200, answer.text


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, rabbitmq_home: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("broker"), rabbitmq_home)
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def publishers(
    tmp_path_factory: pytest.TempPathFactory, azurite: Azurite, broker: Broker
) -> Iterator[list[Publisher]]:
    with ExitStack() as stack:

        def publisher(workers: str) -> Publisher:
            env = on_account(azurite, broker.url)

            def start() -> Server:
                folder = tmp_path_factory.mktemp("publisher")
                return stack.enter_context(serve(folder, "--workers", workers, env=env))

            server = start()
            return Publisher(start, server, Reference(server.root_url))

        publishers = [publisher("1"), publisher("2")]
        for each in publishers:
            with each.listening(broker.url) as listener:
                listener.bind_to_all("primary.#")
        yield publishers


def begin_and_end(publishers: list[Publisher]) -> list[list[str]]:
    """All at once; the ended tasks of each."""
    with ThreadPoolExecutor(len(publishers)) as pool:
        return list(pool.map(Publisher.begin_and_end, publishers))


@dataclass(frozen=True)
class Outage:
    """``ended`` has the tasks that each publisher ended while the broker was stopped.

    While the broker was stopped, the first publisher wrote that ``canceled`` is running. It was frozen until
    the broker was back and another server on its queue had canceled the task.
    """

    ended: list[list[str]]
    canceled: str


@pytest.fixture(scope="module")
def outage(publishers: list[Publisher], broker: Broker) -> Outage:
    begin_and_end(publishers)
    first, killed = publishers
    other = as_root(first.start())
    canceled = other.create(definition(TYPE))
    broker.stop()
    ended = begin_and_end(publishers)
    assert first.queue.claim_by_name(canceled, 0).status_code == 200
    killed.server.kill()
    killed.server = killed.start()
    os.killpg(first.server.process.pid, signal.SIGSTOP)
    broker.start()
    other.ask("POST", f"/task/{canceled}/cancel")
    os.killpg(first.server.process.pid, signal.SIGCONT)
    return Outage(ended, canceled)


def test_events_of_calls_without_a_broker_arrive_in_order_after_it_is_back(
    publishers: list[Publisher], outage: Outage, broker: Broker
) -> None:
    for publisher, ended in zip(publishers, outage.ended, strict=True):
        publisher.assert_published(broker.url, ended)


def test_waiting_events_of_one_server_arrive_before_later_events_of_another(
    publishers: list[Publisher], outage: Outage, broker: Broker
) -> None:
    with publishers[0].listening(broker.url) as listener:
        expected = ["defined", "pending 0", "running 0 one", "exception 0 one canceled", "group-resolved"]
        listener.wait_for({outage.canceled: expected}, may_repeat=True)
