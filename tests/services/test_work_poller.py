"""The poller of a pool polls for all requests of a process that wait, and is told what others offer."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.adapters.clock import SystemWaiter
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.priority import PRIORITIES, WorkQueue, work_queues
from legacy_queue.ports.queue import QueuedMessage
from legacy_queue.services.claim_work.poller_registry import PollerRegistry
from legacy_queue.services.claim_work.wakes import Wakes
from legacy_queue.services.claim_work.work_poller import SharedPolling, WaitingRequest, WorkPoller
from legacy_queue.services.gate import Gate
from legacy_queue.stores import OfferStore
from tests.domain.tasks import HOUR, MS, NOW, SECOND
from tests.memory_server import FakeClock, MemoryTable, memory_storage
from tests.services.harness import HIGH, PREFIX, PROVISIONER, QUEUE, WORKER_TYPE
from tests.services.ports import FaultAt, intercept_port
from tests.system.processes import wait_until

QUEUES = dict(zip(PRIORITIES, work_queues(PROVISIONER, WORKER_TYPE), strict=True))


class NotedGate(Gate):
    """``reached`` is set once a thread has come to it."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()

    @contextmanager
    def pass_through(self) -> Iterator[None]:
        self.reached.set()
        with super().pass_through():
            yield


class Scene:
    """A poller that polls when the test says so.

    ``polls`` are the priorities of the queues it received from, ``counts`` how many messages it asked for.
    """

    def __init__(self) -> None:
        self.clock = FakeClock(NOW)
        self.stopping = threading.Event()
        self.gate = NotedGate()
        self.storage = memory_storage(self.clock, "http://127.0.0.1:1/azure", PREFIX)
        self.polls: list[str] = []
        self.counts: list[int] = []
        self.released: list[str] = []
        self.during: Callable[[], object] = lambda: None
        self.wakes: Wakes | None = None
        self.poller = self.new_poller()

    def new_poller(self) -> WorkPoller:
        queues: Any = self
        one = threading.BoundedSemaphore()
        waiter = SystemWaiter()
        shared = SharedPolling(queues, self.clock, waiter, self.stopping, self.gate, one, self.wakes)
        return WorkPoller(tuple(QUEUES.values()), shared)

    def receive(self, queue: WorkQueue, count: int, hidden_for: timedelta) -> Sequence[QueuedMessage]:
        self.polls.append(queue.priority)
        self.counts.append(count)
        received = self.storage.work_queues.receive(queue, count, hidden_for)
        self.during()
        return received

    def hide(self, _queue: WorkQueue, _lease: object, text: str, _delay: timedelta) -> None:
        self.released.append(text)

    def offer(self, *texts: str, priority: str = "lowest") -> None:
        for text in texts:
            self.storage.work_queues.put(QUEUES[priority], text, HOUR, timedelta(0))

    def wait(self, count: int = 1, is_disconnected: Callable[[], bool] = lambda: False) -> WaitingRequest:
        request = WaitingRequest(count, is_disconnected, self.clock.monotonic())
        self.poller.add(request)
        self.clock.advance(MS)
        return request

    def ask(self, count: int = 1) -> list[str]:
        """What a request gets that polls itself unless another does."""
        request = WaitingRequest(count, lambda: False, self.clock.monotonic())
        polled = self.poller.wait(request, HOUR, starts=self.poller.add(request))
        return [message.text for _, message in polled]


def texts(request: WaitingRequest) -> list[str]:
    return [message.text for _, message in request.polled]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_receive_asks_for_32_messages_at_most(scene: Scene) -> None:
    scene.offer(*map(str, range(40)), priority="highest")
    requests = [scene.wait(32), scene.wait(4)]
    scene.poller.poll_once()
    assert scene.counts == [32, 4]
    assert [len(request.polled) for request in requests] == [32, 4]


def test_messages_are_given_to_the_waiting_requests_in_turn(scene: Scene) -> None:
    scene.offer(*"abcdef")
    greedy, modest, other = scene.wait(32), scene.wait(1), scene.wait(2)
    scene.poller.poll_once()
    assert (texts(greedy), texts(modest), texts(other)) == (["a", "d", "f"], ["b"], ["c", "e"])


@pytest.mark.parametrize("moment", ["received", "given"])
def test_messages_that_no_request_waits_for_are_released_and_other_processes_are_told(
    scene: Scene, moment: str
) -> None:
    def remove() -> bool:
        if scene.polls:
            scene.poller.remove(request)
        return False

    scene.wakes, there = (Wakes(scene.storage.offers, scene.clock, slugid) for _ in range(2))
    scene.poller = scene.new_poller()
    scene.offer("a", "b", priority="highest")
    request = scene.wait(2, remove if moment == "given" else lambda: False)
    scene.during = remove if moment == "received" else lambda: None
    scene.poller.poll_once()
    assert (texts(request), scene.released) == ([], ["a", "b"])
    told: list[WorkQueue] = []
    for wakes in (scene.wakes, there):
        wakes.exchange(told.append, scene.poller.poll_now, waits=True)
    assert told == [QUEUES["highest"]]


def test_the_request_with_the_fewest_messages_gets_the_next_and_is_answered_with_fewer(scene: Scene) -> None:
    scene.offer("high", priority="high")
    scene.offer("low", priority="low")
    requests = [scene.wait(2), scene.wait(2)]
    scene.poller.poll_once()
    assert [texts(request) for request in requests] == [["high"], ["low"]]
    assert all(request.ready.is_set() for request in requests)


def test_an_empty_queue_is_polled_again_after_the_interval(scene: Scene) -> None:
    request = scene.wait()
    for polls in (1, 1, 2):
        scene.poller.poll_once()
        assert scene.polls == [*PRIORITIES] * polls
        scene.clock.advance(SECOND / 2)
    assert not request.ready.is_set()


def test_an_offer_during_the_poll_of_its_queue_is_polled_next(scene: Scene) -> None:
    request = scene.wait()

    def offer() -> None:
        if scene.polls[-1] == "high":
            scene.during = lambda: None
            scene.offer("a task", priority="high")
            scene.poller.on_offer(QUEUES["high"])

    scene.during = offer
    scene.poller.poll_once()
    assert texts(request) == []
    scene.poller.poll_once()
    assert texts(request) == ["a task"]


def test_requests_that_come_while_the_poller_runs_share_it(scene: Scene) -> None:
    with ThreadPoolExecutor(3) as threads:
        idle, *asked = [threads.submit(scene.ask, count) for count in (0, 1, 1)]
        scene.offer("a", "b")
        scene.poller.on_offer(QUEUES["lowest"])
        try:
            assert sorted(text for call in asked for text in call.result(60)) == ["a", "b"]
            assert not idle.done()
        finally:
            scene.stopping.set()
    assert idle.result() == []


def test_nothing_is_polled_before_a_move_of_the_clock_has_ended(scene: Scene) -> None:
    scene.offer("a task")
    with ThreadPoolExecutor(1) as threads:
        with scene.gate.closed(lambda: None):
            asked = threads.submit(scene.ask)
            assert scene.gate.reached.wait(30)
            scene.polls.append("the move has ended")
        assert asked.result(60) == ["a task"]
    assert scene.polls[0] == "the move has ended"


def test_a_poller_that_cannot_start_is_started_by_the_next_request(scene: Scene) -> None:
    scene.offer("a task")
    usual = threading.stack_size(2**46)  # no machine has that much
    try:
        with pytest.raises(ServiceUnavailable, match="work cannot be polled now"):
            scene.ask()
    finally:
        threading.stack_size(usual)
    assert scene.ask() == ["a task"]


def test_few_worker_types_are_polled_at_a_time_and_one_with_new_work_at_once() -> None:
    """A client that waits on 1,200 pools would slow all other calls."""
    polled: list[str] = []
    go_on = threading.Event()

    class Queues:
        def receive(self, queue: WorkQueue, *_: Any) -> Sequence[QueuedMessage]:
            polled.append(queue.worker_type)
            assert go_on.wait(30)
            return []

    def ask(worker_type: str) -> None:
        request = WaitingRequest(1, lambda: False, 0 * SECOND, polls_once=True)
        registry.wait(PROVISIONER, worker_type, request, HOUR)

    queues: Any = Queues()
    registry = PollerRegistry(queues, FakeClock(NOW), SystemWaiter(), threading.Event(), Gate())
    go_on.set()
    ask("w7")
    go_on.clear()
    polled.clear()
    with ThreadPoolExecutor(8) as threads:
        for number in range(4):
            threads.submit(ask, f"w{number}")
        assert wait_until(lambda: len(polled) == 4)
        registry.on_offer(WorkQueue(PROVISIONER, "w7", "lowest"))
        for number in range(4, 8):
            threads.submit(ask, f"w{number}")
        assert wait_until(lambda: registry.waiting() == 8)
        assert wait_until(lambda: len(polled) == 5)
        assert polled[4] == "w7"
        go_on.set()
    assert Counter(polled) == {f"w{number}": len(PRIORITIES) for number in range(8)}


def test_an_empty_queue_is_polled_seldom_while_other_processes_tell_of_their_offers(scene: Scene) -> None:
    wakes = scene.wakes = Wakes(scene.storage.offers, scene.clock, slugid)
    scene.poller = scene.new_poller()

    def polls_after(seconds: float) -> int:
        scene.polls.clear()
        scene.clock.advance(seconds * SECOND)
        wakes.exchange(scene.poller.on_offer, scene.poller.poll_now, waits=True)
        scene.poller.poll_once()
        return len(scene.polls)

    scene.wait()
    assert [polls_after(seconds) for seconds in (0, 1, 5, 1, 1)] == [7, 0, 0, 7, 0]
    assert scene.poller.seconds_until_next_poll() == 5  # connections are checked
    scene.clock.advance(11 * SECOND)
    assert scene.poller.seconds_until_next_poll() == 0
    assert polls_after(0) == 7
    assert polls_after(1) == 0


# processes on Azure tell each other what they offer: see the theory in services/claim_work/wakes.py

NO_DELAY = timedelta(0)
BEGAN = FakeClock(NOW).monotonic()


class Shared:
    def __init__(self) -> None:
        self.clock, self.store = FakeClock(NOW), OfferStore(MemoryTable())

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
    there.offer()
    there.offer()
    assert here.exchange() == [QUEUE, HIGH]


def test_the_forks_of_a_process_tell_each_other(shared: Shared) -> None:
    here = shared.process()
    there = Process(copy(here.wakes))
    here.exchange()
    there.offer()
    assert here.exchange() == [QUEUE]


def test_a_hidden_message_is_told_of_once_it_is_visible_to_its_own_process_too(shared: Shared) -> None:
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
    """It leaves no row, also where no request waits."""
    here, other, dead = shared.process(), shared.process(), shared.process()
    dead.exchange(waits=False)
    for _ in range(27):  # it polled when it was to write again, and its messages are hidden for 20 s
        assert here.exchange() == other.exchange() == []
        shared.clock.advance(SECOND)
    assert here.exchange() == other.exchange() == [None]
    assert len(shared.store.read()) == 2
    assert here.exchange() == other.exchange() == []
    for _ in range(25):
        here.exchange(waits=False)
        shared.clock.advance(5 * SECOND)
    assert len(shared.store.read()) == 1


def test_a_row_that_was_written_since_is_not_removed(shared: Shared) -> None:
    process = shared.process()
    process.exchange()
    [offers] = shared.store.read()
    process.offer()
    shared.store.remove(offers)
    assert [list(offers.numbers) for offers in shared.store.read()] == [[QUEUE]]


@pytest.mark.parametrize("applied", ["before", "after"])
def test_an_offer_is_told_after_storage_was_away(shared: Shared, applied: str) -> None:
    here = shared.process()
    fault = FaultAt(1, **{applied: ServiceUnavailable("away")}, of="write")
    there = shared.process(intercept_port(shared.store, fault))
    there.exchange(waits=False)  # else it would write again in any case
    here.exchange()
    with pytest.raises(ServiceUnavailable):
        there.offer()
    there.exchange(waits=False)
    assert here.exchange() == [QUEUE]
