"""A broker that stops or takes nothing, and returns: calls go on, and all is told in the end, in order.

It is told by three servers: one of one process, one of two, and one that is killed while events wait.
"""

import os
import secrets
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from legacy_queue.adapters.azurite import Azurite
from tests.rabbitmq import RabbitMQ

from .accounts import as_root, on_account
from .http_queue import Json, Queue, definition, slugid
from .listeners import Listener, Published, ReceivedEvent
from .processes import Server, serve

TYPE = "lasting"
TASKS = 4  # of each server, each time
FULL_DISK = {"disk_free_limit.absolute": "1000000GB"}
HALF = ["defined", "pending 0", "running 0 one", "pending 1"]
WHOLE = [*HALF, "running 1 two", "completed 1 two", "group-resolved"]


class Broker:
    """A broker of the tests' own, whose password no log may hold."""

    def __init__(self, folder: Path, home: Path) -> None:
        self._folder, self._home = folder, home
        self._login = {"default_user": "queue", "default_pass": secrets.token_hex(16)}
        self.start()

    def start(self, **settings: str) -> None:
        self._running = RabbitMQ(self._folder, self._home, settings={**self._login, **settings}).start()

    def stop(self) -> None:
        self._running.stop()

    @property
    def url(self) -> str:
        user, password = self._login.values()
        return self._running.url.replace("guest:guest@", f"{user}:{password}@")


@dataclass
class Teller:
    """A server and its tasks, which are heard of in a queue that outlives the broker's restarts."""

    start: Callable[[], Server]  # another one on the same queue
    server: Server
    published: Published
    tasks: list[str] = field(default_factory=list)  # that have begun
    heard: list[ReceivedEvent] = field(default_factory=list)

    @property
    def queue(self) -> Queue:
        return as_root(self.server)

    def begin_and_end(self) -> list[str]:
        """The second half of those tasks' lives that have begun, which are answered; the first of others."""
        begun, self.tasks = self.tasks, [slugid() for _ in range(TASKS)]
        with ThreadPoolExecutor(TASKS) as pool:
            list(pool.map(self._end, begun))
            list(pool.map(self._begin, self.tasks))
        return begun

    @contextmanager
    def listening(self, url: str) -> Iterator[Listener]:
        listener = Listener(url, self.published, self.published.project)
        listener.all = self.heard
        try:
            yield listener
        finally:
            listener.close()

    def hears(self, url: str, ended: list[str]) -> None:
        with self.listening(url) as listener:
            expected = {**dict.fromkeys(ended, WHOLE), **dict.fromkeys(self.tasks, HALF)}
            listener.hears(expected, more_than_once=True)

    def _begin(self, task_id: str) -> None:
        self.queue.create(definition(TYPE), task_id)
        self._report(task_id, 0, "one", "exception", {"reason": "worker-shutdown"})

    def _end(self, task_id: str) -> None:
        self._report(task_id, 1, "two", "completed")

    def _report(self, task_id: str, run_id: int, worker: str, verb: str, body: Json | None = None) -> None:
        claim = self.queue.claim_by_name(task_id, run_id, worker)
        assert claim.status_code == 200, claim.text
        holder = self.queue.with_credentials(claim.json()["credentials"])
        for one in ("reclaim", verb):
            answer = holder.on_run((task_id, run_id), one, body if one == verb else None)
            assert answer.status_code == 200, answer.text


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, rabbitmq_home: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("broker"), rabbitmq_home)
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def tellers(
    tmp_path_factory: pytest.TempPathFactory, azurite: Azurite, broker: Broker
) -> Iterator[list[Teller]]:
    with ExitStack() as stack:

        def teller(*options: str) -> Teller:
            env = on_account(azurite, broker.url)

            def start() -> Server:
                return stack.enter_context(serve(tmp_path_factory.mktemp("teller"), *options, env=env))

            server = start()
            return Teller(start, server, Published(server.root_url))

        tellers = [teller("--workers", "1"), teller("--workers", "2"), teller("--workers", "2")]
        for one in tellers:
            with one.listening(broker.url) as listener:
                listener.bind_to_all("primary.#")
        yield tellers


def live_on(tellers: list[Teller]) -> list[list[str]]:
    """All at once begin and end tasks; those that have ended."""
    with ThreadPoolExecutor(len(tellers)) as pool:
        return list(pool.map(Teller.begin_and_end, tellers))


def test_calls_go_on_while_the_broker_is_stopped_and_all_is_told_in_order_when_it_is_back(
    tellers: list[Teller], broker: Broker
) -> None:
    live_on(tellers)
    broker.stop()
    ended = live_on(tellers)
    mortal = tellers[-1]
    mortal.server.kill()
    mortal.server = mortal.start()
    mortal.begin_and_end()
    broker.start()
    for teller, tasks in zip(tellers, ended, strict=True):
        teller.hears(broker.url, tasks)


def test_calls_go_on_while_the_broker_takes_nothing_and_all_is_told_in_order_when_it_does(
    tellers: list[Teller], broker: Broker
) -> None:
    live_on(tellers)
    broker.stop()
    broker.start(**FULL_DISK)
    ended = live_on(tellers)
    for teller in tellers:
        with teller.listening(broker.url) as listener:
            assert listener.told(teller.tasks) == {task_id: [] for task_id in teller.tasks}
    broker.stop()
    broker.start()
    for teller, tasks in zip(tellers, ended, strict=True):
        teller.hears(broker.url, tasks)


def test_what_waits_is_told_before_what_another_server_tells_once_the_broker_is_back(
    tellers: list[Teller], broker: Broker
) -> None:
    first = tellers[0]
    other = Teller(first.start, first.start(), first.published, heard=first.heard)
    task_id = slugid()
    other.queue.create(definition(TYPE), task_id)
    broker.stop()
    assert first.queue.claim_by_name(task_id, 0).status_code == 200
    os.killpg(first.server.process.pid, signal.SIGSTOP)
    broker.start()
    other.queue.ask("POST", f"/task/{task_id}/cancel")
    os.killpg(first.server.process.pid, signal.SIGCONT)
    with first.listening(broker.url) as listener:
        expected = ["defined", "pending 0", "running 0 one", "exception 0 one canceled", "group-resolved"]
        listener.hears({task_id: expected}, more_than_once=True)
