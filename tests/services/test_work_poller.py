"""Waiting requests of a pool share their polls, and a process learns what other processes offer."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from legacy_queue.adapters.clock import SystemWaiter
from legacy_queue.domain.priority import PRIORITIES, WorkQueue, work_queues
from legacy_queue.ports import Flag, Waiter
from legacy_queue.ports.queue import QueuedMessage
from legacy_queue.services.background_gate import BackgroundGate
from legacy_queue.services.claim_work.work_poller import WaitingRequest, WorkPoller
from tests.domain.sample_tasks import HOUR, MS, NOW, SECOND
from tests.memory_server import FakeClock
from tests.services.harness import PROVISIONER, WORKER_TYPE
from tests.services.processes import World
from tests.system.processes import wait_until

QUEUES = dict(zip(PRIORITIES, work_queues(PROVISIONER, WORKER_TYPE), strict=True))
NO_DELAY = timedelta(0)


class PassingWaiter(SystemWaiter):
    """A wait advances the clock instead of waiting. Then it calls ``after``."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.after: Callable[[], object] = lambda: None

    def wait(self, flag: Flag, seconds: float) -> bool:
        if not flag.is_set():
            self.clock.advance(timedelta(seconds=seconds))
            self.after()
        return flag.is_set()


class FlagWaiter(SystemWaiter):
    """A wait takes no time on the clock. It ends when there is something to do."""

    def wait(self, flag: Flag, seconds: float) -> bool:
        return flag.wait(max(30, seconds))


class PollerHarness:
    """A poller and its polls.

    ``polls`` are the priorities of the queues that it polled, ``counts`` how many messages it asked for, and
    ``times`` when, in seconds since the beginning.
    """

    def __init__(self, tells: bool = False) -> None:
        self.world = World()
        self.clock = self.world.clock
        self.begin = self.clock.monotonic()
        self.gate = BackgroundGate()
        self.storage = self.world.storage
        self.polls: list[str] = []
        self.counts: list[int] = []
        self.times: list[float] = []
        self.released: list[str] = []
        self.disconnected: set[int] = set()  # the numbers of requests in ``asked_together``, counted from 1
        self.during: Callable[[], object] = lambda: None
        self.offers = self.world.process().offers if tells else None
        self.waiter = PassingWaiter(self.clock)
        self.poller = self.new_poller(self.waiter)

    def new_poller(self, waiter: Waiter) -> WorkPoller:
        queues: Any = self
        return WorkPoller(queues, self.clock, waiter, self.gate, 1, self.offers)

    def receive(self, queue: WorkQueue, count: int, hidden_for: timedelta) -> Sequence[QueuedMessage]:
        self.polls.append(queue.priority)
        self.counts.append(count)
        seconds = (self.clock.monotonic() - self.begin) / SECOND
        self.times += [] if seconds in self.times else [seconds]
        received = self.storage.work_queues.receive(queue, count, hidden_for)
        self.during()
        return received

    def hide(self, _queue: WorkQueue, _lease: object, text: str, _delay: timedelta) -> None:
        self.released.append(text)

    def offer(self, *texts: str, priority: str = "lowest") -> None:
        for text in texts:
            self.storage.work_queues.put(QUEUES[priority], text, HOUR, NO_DELAY)

    def ask(
        self,
        count: int = 1,
        timeout: timedelta = NO_DELAY,
        is_disconnected: Callable[[], bool] = lambda: False,
        worker_type: str = WORKER_TYPE,
    ) -> list[str]:
        """What a request gets. It waits until the timeout. Without a timeout it does not wait."""
        request = WaitingRequest(count, is_disconnected, self.clock.monotonic())
        polled = self.poller.wait((PROVISIONER, worker_type), request, timeout or MS)
        return [message.text for _, message in polled]

    def has_waiting(self, number: int) -> bool:
        return self.poller.waiting() == number

    @contextmanager
    def asked_together(self, *counts: int) -> Iterator[list[Future[list[str]]]]:
        """Requests that all wait before the first poll begins. When the block ends, all are answered."""
        self.poller = self.new_poller(FlagWaiter())
        asked: list[Future[list[str]]] = []
        with ThreadPoolExecutor(len(counts)) as threads:
            with self.gate.closed(lambda: None):
                for number, count in enumerate(counts, 1):
                    is_disconnected = partial(self.disconnected.issuperset, {number})
                    asked.append(threads.submit(self.ask, count, HOUR, is_disconnected))
                    assert wait_until(partial(self.has_waiting, number))
                    self.clock.advance(MS)
            try:
                yield asked
            finally:
                self.poller.end()


@pytest.fixture
def harness() -> PollerHarness:
    return PollerHarness()


def test_one_poll_asks_for_at_most_32_messages(harness: PollerHarness) -> None:
    harness.offer(*map(str, range(40)), priority="highest")
    with harness.asked_together(32, 4) as asked:
        assert [len(each.result(60)) for each in asked] == [32, 4]
    assert harness.counts == [32, 4]


def test_messages_are_given_to_the_waiting_requests_in_turn(harness: PollerHarness) -> None:
    harness.offer(*"abcdef")
    with harness.asked_together(32, 1, 2) as asked:
        assert [each.result(60) for each in asked] == [["a", "d", "f"], ["b"], ["c", "e"]]


@pytest.mark.parametrize("moment", ["received", "given"])
def test_messages_that_no_request_waits_for_are_released_and_announced_to_other_processes(
    moment: str,
) -> None:
    harness = PollerHarness(tells=True)
    there = harness.world.process().offers

    def answer() -> bool:
        if harness.polls:
            harness.poller.end()
        return False

    harness.offer("a", "b", priority="highest")
    harness.during = answer if moment == "received" else lambda: None
    assert harness.ask(2, HOUR, answer if moment == "given" else lambda: False) == []
    assert harness.released == ["a", "b"]
    told: list[WorkQueue] = []
    for offers in (harness.offers, there):
        assert offers
        offers.exchange(told.append, harness.poller.poll_now, waits=True)
    assert told == [QUEUES["highest"]]


def test_the_next_message_goes_to_the_request_with_the_fewest_and_no_request_waits_to_be_full(
    harness: PollerHarness,
) -> None:
    harness.offer("high", priority="high")
    harness.offer("low", priority="low")
    with harness.asked_together(2, 2) as asked:
        assert [each.result(60) for each in asked] == [["high"], ["low"]]


def test_when_the_request_that_polls_has_its_message_the_next_request_polls(harness: PollerHarness) -> None:
    harness.offer("high", priority="high")
    harness.offer("low", priority="low")
    with harness.asked_together(1, 0, 1) as asked:
        assert [asked[number].result(20) for number in (0, 2)] == [["high"], ["low"]]
        assert not asked[1].done()
    assert asked[1].result() == []


def test_an_empty_queue_is_polled_again_after_the_interval(harness: PollerHarness) -> None:
    assert harness.ask(timeout=2 * SECOND) == []
    assert harness.times == [0, 0.9, 1.8]
    assert harness.polls == [*PRIORITIES] * 3


def test_the_next_request_does_not_poll_a_queue_that_was_empty_a_moment_ago(harness: PollerHarness) -> None:
    for worker_type in (WORKER_TYPE, WORKER_TYPE, *map(str, range(1000)), WORKER_TYPE):
        harness.ask(worker_type=worker_type)
        harness.clock.advance(-MS)
    assert len(harness.polls) == 1002 * len(PRIORITIES), (
        "after 1,000 other pools, this one was forgotten and is polled again"
    )


def test_a_message_that_arrives_while_its_queue_is_polled_is_polled_next(harness: PollerHarness) -> None:
    def offer() -> None:
        if harness.polls[-1] == "high":
            harness.during = lambda: None
            harness.offer("a task", priority="high")
            harness.poller.on_offer(QUEUES["high"])

    harness.during = offer
    assert harness.ask(timeout=HOUR) == ["a task"]
    assert (harness.polls, harness.times) == ([*PRIORITIES, "high"], [0])


def test_a_message_that_arrives_while_no_request_waits_goes_to_the_next_request(
    harness: PollerHarness,
) -> None:
    assert harness.ask() == []
    harness.offer("a task", priority="high")
    harness.poller.on_offer(QUEUES["high"])
    assert harness.ask() == ["a task"]


def test_no_request_waits_longer_because_storage_is_slow(harness: PollerHarness) -> None:
    harness.during = lambda: harness.clock.advance(10 * SECOND)
    assert harness.ask(timeout=20 * SECOND) == []
    assert harness.polls == ["highest", "very-high"]


@pytest.mark.parametrize("count", [0, 1])
def test_a_request_ends_soon_after_its_client_disconnected(harness: PollerHarness, count: int) -> None:
    assert harness.ask(count, HOUR, lambda: harness.clock.monotonic() - harness.begin > 6 * SECOND) == []
    assert harness.clock.monotonic() - harness.begin <= 10 * SECOND


def test_the_polling_request_also_ends_the_requests_of_disconnected_clients(harness: PollerHarness) -> None:
    with harness.asked_together(1, 1) as asked:
        assert wait_until(lambda: len(harness.polls) == len(PRIORITIES))
        harness.disconnected.add(2)
        harness.clock.advance(5 * SECOND)
        harness.poller.poll_now()
        assert asked[1].result(20) == []
        assert not asked[0].done()


def test_nothing_is_polled_until_a_move_of_the_clock_has_ended(harness: PollerHarness) -> None:
    harness.offer("a task")
    with harness.asked_together(1) as asked:
        assert asked[0].result(60) == ["a task"]
    assert harness.times == [0.001], "it polled when the move of the clock had ended"


def test_few_pools_are_polled_at_a_time_but_a_pool_with_a_new_message_is_polled_immediately() -> None:
    """Otherwise a client that waits for 1,200 pools would slow down all other calls."""
    polled: list[str] = []
    go_on = threading.Event()

    class Queues:
        def receive(self, queue: WorkQueue, *_: Any) -> Sequence[QueuedMessage]:
            polled.append(queue.worker_type)
            assert go_on.wait(30)
            return []

    def ask(worker_type: str, *, polls_once: bool = True) -> None:
        request = WaitingRequest(1, lambda: False, 0 * SECOND, polls_once)
        poller.wait((PROVISIONER, worker_type), request, HOUR)

    queues: Any = Queues()
    poller = WorkPoller(queues, FakeClock(NOW), SystemWaiter(), BackgroundGate())
    go_on.set()
    with ThreadPoolExecutor(9) as threads:
        threads.submit(ask, "waiting", polls_once=False)
        assert wait_until(lambda: len(polled) == len(PRIORITIES))
        go_on.clear()
        for number in range(8):
            threads.submit(ask, f"w{number}")
        assert wait_until(lambda: len(polled) == len(PRIORITIES) + 4)
        poller.on_offer(WorkQueue(PROVISIONER, "waiting", "lowest"))
        assert wait_until(lambda: len(polled) == len(PRIORITIES) + 5)
        assert polled[-1] == "waiting"
        go_on.set()
        assert wait_until(lambda: len(polled) == 9 * len(PRIORITIES) + 1)
        poller.end()
    assert Counter(polled) == {f"w{number}": len(PRIORITIES) for number in range(8)} | {"waiting": 8}


def test_a_request_that_is_over_before_its_turn_to_poll_gives_the_turn_to_the_next() -> None:
    polled: list[str] = []
    held_up: list[Flag] = []
    go_on = threading.Event()
    clock = FakeClock(NOW)

    class Queues:
        def receive(self, queue: WorkQueue, *_: Any) -> Sequence[QueuedMessage]:
            polled.append(queue.worker_type)
            assert go_on.wait(30)
            return []

    class Waiter(SystemWaiter):
        def wait(self, flag: Flag, seconds: float) -> bool:
            held_up.append(flag)
            return flag.wait(1000 * seconds)

    def ask(worker_type: str, timeout: timedelta) -> None:
        request = WaitingRequest(1, lambda: False, 0 * SECOND, polls_once=worker_type == "once")
        poller.wait((PROVISIONER, worker_type), request, timeout)

    queues: Any = Queues()
    poller = WorkPoller(queues, clock, Waiter(), BackgroundGate(), 1)
    with ThreadPoolExecutor(3) as threads:
        threads.submit(ask, "once", HOUR)
        assert wait_until(lambda: bool(polled))
        threads.submit(ask, "short", SECOND)
        assert wait_until(lambda: len(held_up) == 1)
        threads.submit(ask, "next", HOUR)
        assert wait_until(lambda: len(held_up) == 2)
        clock.advance(2 * SECOND)
        go_on.set()
        try:
            assert wait_until(lambda: polled[-1] == "next")
        finally:
            poller.end()
    assert "short" not in polled


def test_an_empty_queue_is_polled_rarely_while_other_processes_announce_their_messages() -> None:
    harness = PollerHarness(tells=True)
    offers = harness.offers
    assert offers

    def exchange() -> None:
        if harness.clock.monotonic() - harness.begin < 9 * SECOND:
            offers.exchange(harness.poller.offered, harness.poller.poll_now, waits=True)

    harness.waiter.after = exchange
    assert harness.ask(timeout=25 * SECOND) == []
    assert harness.times[:6] == [0, 0.9, 7.9, 14.9, 19.9, 20.8]
