"""Processes on Azure tell each other what they offer: see the theory in services/claim_work/wakes.py."""

from copy import copy
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.services.claim_work.wakes import Wakes
from legacy_queue.stores import OfferStore
from tests.memory_server import FakeClock, MemoryTable
from tests.services.harness import HIGH, NOW, QUEUE, SECOND, FaultAt, failing
from tests.services.ports import intercept_port

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
    assert (here.exchange(), here.exchange(), there.exchange()) == ([QUEUE], [], [])
    there.offer(HIGH)
    assert here.exchange() == [HIGH]
    there.offer()
    there.offer()
    assert here.exchange() == [QUEUE]


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
