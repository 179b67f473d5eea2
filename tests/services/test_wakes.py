"""Processes on Azure tell each other what they offer: see the theory in services/claim_work/wakes.py."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.adapters.clock import SystemWaiter
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.services.claim_work.wakes import Wakes
from legacy_queue.services.composition import Services
from legacy_queue.stores import OfferStore, Storage
from tests.memory_server import FakeClock, MemoryTable
from tests.services.harness import (
    ALICE,
    HIGH,
    NOW,
    PREFIX,
    PROVISIONER,
    QUEUE,
    SECOND,
    SECRET,
    WORKER_TYPE,
    FaultAt,
    Harness,
    failing,
    task_body,
)
from tests.services.ports import intercept_port
from tests.simulation.world import SETTINGS
from tests.system.processes import wait_until

NO_DELAY = timedelta(0)
BEGAN = FakeClock(NOW).monotonic()


class Shared:
    """The rows of some processes, on one clock."""

    def __init__(self) -> None:
        self.clock = FakeClock(NOW)
        self.store = OfferStore(MemoryTable())

    def process(self, store: OfferStore | None = None) -> "Process":
        return Process(Wakes(store or self.store, self.clock, slugid))


@dataclass
class Process:
    """``polls`` are the queues to poll since the last look, None for all."""

    wakes: Wakes
    polls: list[WorkQueue | None] = field(default_factory=list)

    def offer(self, queue: WorkQueue = QUEUE, delay: timedelta = NO_DELAY) -> None:
        self.wakes.on_offer(queue, delay)
        self.exchange(waits=False)

    def exchange(self, *, waits: bool = True) -> list[WorkQueue | None]:
        self.polls = []
        self.wakes.exchange(self.polls.append, lambda: self.polls.append(None), waits=waits)
        return self.polls


@pytest.fixture
def shared() -> Shared:
    return Shared()


def test_a_process_that_waits_is_told_of_each_offer_of_another_once(shared: Shared) -> None:
    here, there = shared.process(), shared.process()
    assert here.exchange() == []
    there.offer()
    assert here.exchange() == [QUEUE]
    assert here.exchange() == []
    there.offer(HIGH)
    assert here.exchange() == [HIGH]
    there.offer()
    there.offer()
    assert here.exchange() == [QUEUE]


def test_a_process_is_not_told_of_its_own_offers(shared: Shared) -> None:
    here = shared.process()
    here.offer()
    assert here.exchange() == []


def test_the_forks_of_a_process_tell_each_other(shared: Shared) -> None:
    here = shared.process()
    there = Process(copy(here.wakes))
    here.exchange()
    there.offer()
    assert here.exchange() == [QUEUE]


def test_a_message_that_is_hidden_is_told_of_once_it_is_visible_to_its_own_process_too(
    shared: Shared,
) -> None:
    here, there = shared.process(), shared.process()
    there.offer(delay=10 * SECOND)
    assert here.exchange() == []
    shared.clock.advance(10 * SECOND)  # storage counts whole seconds
    assert there.exchange(waits=False) == here.exchange() == []
    shared.clock.advance(SECOND)
    assert there.exchange(waits=False) == [QUEUE]
    assert here.exchange() == [QUEUE]


def test_a_process_that_has_not_read_for_a_while_begins_anew(shared: Shared) -> None:
    process = shared.process()
    process.exchange()
    for _ in range(3):
        shared.clock.advance(5 * SECOND)
        process.exchange()
    assert process.wakes.is_told(BEGAN)
    shared.clock.advance(10 * SECOND)
    assert not process.wakes.is_told(BEGAN)
    process.exchange()
    assert process.wakes.is_told(BEGAN + 25 * SECOND)
    assert not process.wakes.is_told(BEGAN + 24 * SECOND)


def test_an_offer_stays_in_its_row_for_longer_than_a_process_relies_on_what_it_read(shared: Shared) -> None:
    here, there = shared.process(), shared.process()
    here.exchange()
    there.offer()
    shared.clock.advance(10 * SECOND)
    there.offer(HIGH)
    assert set(here.exchange()) == {QUEUE, HIGH}
    shared.clock.advance(20 * SECOND)
    there.offer(HIGH)
    assert [[*offers.numbers] for offers in shared.store.read() if offers.numbers] == [[HIGH]]


def test_the_others_poll_once_for_a_process_that_died_once_its_messages_are_visible(shared: Shared) -> None:
    here, other, dead = shared.process(), shared.process(), shared.process()
    dead.exchange(waits=False)
    for _ in range(27):  # it polled when it was to write again, and its messages are hidden for 20 s
        assert here.exchange() == other.exchange() == []
        shared.clock.advance(SECOND)
    assert here.exchange() == other.exchange() == [None]
    assert len(shared.store.read()) == 2
    assert here.exchange() == other.exchange() == []


def test_a_process_that_lives_is_not_dead_whether_it_waits_or_not(shared: Shared) -> None:
    here, idle = shared.process(), shared.process()
    idle.exchange(waits=False)
    for _ in range(10):
        shared.clock.advance(5 * SECOND)
        assert here.exchange() == idle.exchange(waits=False) == []
    assert len(shared.store.read()) == 2


def test_a_dead_process_leaves_nothing_where_no_request_waits(shared: Shared) -> None:
    here, dead = shared.process(), shared.process()
    dead.exchange(waits=False)
    for _ in range(25):
        here.exchange(waits=False)
        shared.clock.advance(5 * SECOND)
    assert len(shared.store.read()) == 1


@pytest.mark.parametrize("applied", ["before", "after"])
def test_an_offer_is_told_after_storage_was_away(shared: Shared, applied: str) -> None:
    here = shared.process()
    fault = FaultAt(1, **{applied: failing(ServiceUnavailable("away"))}, of="write")
    there = shared.process(intercept_port(OfferStore, shared.store, fault))
    there.exchange(waits=False)  # else it would write again in any case
    here.exchange()
    with pytest.raises(ServiceUnavailable):
        there.offer()
    there.exchange(waits=False)
    assert here.exchange() == [QUEUE]


# --- with pollers


class Servers:
    """Two servers on one storage, which tell each other."""

    def __init__(self) -> None:
        self.harness = Harness()
        self.here, self.there = self._server(), self._server()

    def _server(self) -> Services:
        harness = self.harness
        storage = Storage(harness.account, PREFIX, harness.clock)
        settings = replace(SETTINGS, secrets=[SECRET], claim_work_wait=60 * SECOND, tells_offers_as=slugid)
        return Services(storage, harness.broker, harness.clock, SystemWaiter(), settings)

    def wait_here(self, act: Callable[[], object]) -> Any:
        """The taskIds of a claimWork that waits here while ``act`` is done. No poll is due by itself."""
        is_left: list[bool] = []
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(
                self.here.claim_work.claim, PROVISIONER, WORKER_TYPE, ALICE, 1, lambda: bool(is_left)
            )
            wait_until(self.here.pollers.waiting)
            try:
                act()
                return [claim["status"]["taskId"] for claim in waiting.result(30)["tasks"]]
            finally:
                is_left.append(True)
                self.here.stopping.set()
                self.here.pollers.end()

    def create(self, task_id: str) -> None:
        self.there.tasks.create(task_id, task_body(self.harness.clock.now()))

    def exchange(self) -> None:
        self.there.pollers.watch()
        self.here.pollers.watch()


def test_a_process_that_ends_tells_its_last_offers() -> None:
    servers, task_id = Servers(), slugid()

    def offer_and_end() -> None:
        servers.exchange()
        servers.create(task_id)
        servers.there.background().stop()
        servers.here.pollers.watch()

    assert servers.wait_here(offer_and_end) == [task_id]


def test_a_message_that_another_process_releases_is_told_of() -> None:
    servers = Servers()
    task_id = servers.harness.create()  # by a process that does not tell
    storage = Storage(servers.harness.account, PREFIX, servers.harness.clock)
    [message] = storage.work_queues.receive(QUEUE, 1, 20 * SECOND)

    def release() -> None:
        servers.there.pollers.release(QUEUE, message)
        servers.exchange()

    assert servers.wait_here(release) == [task_id]
