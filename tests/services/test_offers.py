"""Processes announce new messages to each other in their rows. services/process/offers.py has the theory."""

from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.services.process.liveness import DEAD_AFTER
from tests.domain.sample_tasks import NOW, SECOND
from tests.memory_server import FakeClock
from tests.services import processes
from tests.services.fake_ports import FaultAt, Intercept, call_through
from tests.services.harness import HIGH, QUEUE

NO_DELAY = 0 * SECOND
BEGAN = FakeClock(NOW).monotonic()


@dataclass
class Process:
    """A process.

    ``polls`` are the queues that its last exchange told it to poll. None stands for all queues.
    """

    process: processes.Process
    polls: list[WorkQueue | None] = field(default_factory=list)

    def offer(self, queue: WorkQueue = QUEUE, delay: timedelta = NO_DELAY) -> None:
        self.process.offers.on_offer(queue, delay)
        self.exchange(waits=False)

    def exchange(self, *, waits: bool = True) -> list[WorkQueue | None]:
        self.polls = []
        self.process.offers.exchange(self.polls.append, lambda: self.polls.append(None), waits=waits)
        return self.polls


class World(processes.World):
    def telling(self, intercept: Intercept = call_through) -> Process:
        return Process(self.process(intercept))


@pytest.fixture
def world() -> World:
    return World()


def test_a_waiting_process_learns_once_of_each_offer_of_another(world: World) -> None:
    here, there = world.telling(), world.telling()
    assert here.exchange() == []
    there.offer()
    assert (here.exchange(), here.exchange(), there.exchange()) == ([QUEUE], [], [])
    there.offer(HIGH)
    there.offer()
    there.offer()
    assert sorted(here.exchange(), key=str) == sorted([QUEUE, HIGH], key=str)


def test_a_hidden_message_is_announced_when_it_becomes_visible_also_to_its_own_process(world: World) -> None:
    here, there = world.telling(), world.telling()
    there.offer(delay=10 * SECOND)
    assert here.exchange() == []
    world.clock.advance(10 * SECOND)  # not yet, because storage counts whole seconds
    assert there.exchange(waits=False) == here.exchange() == []
    world.clock.advance(SECOND)
    assert there.exchange(waits=False) == [QUEUE]
    assert here.exchange() == [QUEUE]


def test_a_process_that_has_not_read_the_rows_for_a_while_does_not_rely_on_them(world: World) -> None:
    process = world.telling()
    process.exchange()
    offers = process.process.offers
    for _ in range(3):
        world.clock.advance(5 * SECOND)
        process.exchange()
    assert offers.knows_offers_since(BEGAN)
    world.clock.advance(10 * SECOND)
    assert not offers.knows_offers_since(BEGAN)
    process.exchange()
    assert offers.knows_offers_since(BEGAN + 25 * SECOND)
    assert not offers.knows_offers_since(BEGAN + 24 * SECOND)


def test_an_offer_stays_in_the_row_for_longer_than_other_processes_rely_on_their_last_reading(
    world: World,
) -> None:
    here, there = world.telling(), world.telling()
    here.exchange()
    there.offer()
    world.clock.advance(10 * SECOND)
    there.offer(HIGH)
    assert {*here.exchange()} == {QUEUE, HIGH}
    world.clock.advance(20 * SECOND)
    there.offer(HIGH)
    assert [*world.rows()["p2"].offers] == [HIGH]


def test_when_a_process_has_died_the_others_poll_immediately_and_again_when_its_messages_are_visible(
    world: World,
) -> None:
    """Its messages may have been hidden for 20 s just before it should have renewed its row."""
    here, other, dead = world.telling(), world.telling(), world.telling()
    dead.process.processes.tick()
    polls: list[list[WorkQueue | None]] = []
    for _ in range(40):
        here.process.processes.tick()
        other.process.processes.tick()
        polls.append(here.exchange())
        assert other.exchange() == polls[-1]
        world.clock.advance(SECOND)
    found = int(DEAD_AFTER / SECOND)
    assert [second for second, each in enumerate(polls) if each] == [found, found + 10]
    assert {*world.rows()} == {"p1", "p2"}


@pytest.mark.parametrize("applied", ["before", "after"])
def test_an_offer_is_announced_when_storage_is_back(world: World, applied: str) -> None:
    here = world.telling()
    there = world.telling(FaultAt(0, **{applied: ServiceUnavailable("away")}, of="write"))
    here.exchange()
    with pytest.raises(ServiceUnavailable):
        there.offer()
    there.exchange(waits=False)
    assert here.exchange() == [QUEUE]
