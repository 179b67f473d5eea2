"""The poller that feeds all requests of a process that wait for one worker type's work."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.priority import PRIORITIES, WorkQueue, work_queues
from legacy_queue.services.gate import Gate
from legacy_queue.services.work_poller import LEASE, Wait, WorkPoller
from legacy_queue.stores import ReceivedMessage, WorkQueues
from tests.memory_server import FakeClock, memory_storage
from tests.services.harness import (
    HOUR,
    NOW,
    PREFIX,
    PROVISIONER,
    SECOND,
    WORKER_TYPE,
    CallRecorder,
    FaultAt,
    failing,
)
from tests.services.ports import intercept_port

QUEUES = dict(zip(PRIORITIES, work_queues(PROVISIONER, WORKER_TYPE), strict=True))
MS = timedelta(milliseconds=1)


@dataclass
class Scene:
    """A poller whose looks the test says; ``polls`` are the receives that it made, by priority."""

    clock: FakeClock = field(default_factory=lambda: FakeClock(NOW))
    stopping: threading.Event = field(default_factory=threading.Event)
    put_back: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.storage = memory_storage(self.clock, "http://127.0.0.1:1/azure", PREFIX)
        self.polls: list[str] = []
        self.asked: list[int] = []
        self.during: Callable[[], object] = lambda: None
        self.poller = self.another()

    def another(self, work_queues: WorkQueues | None = None) -> WorkPoller:
        scene = self

        class Queues:
            def receive(
                self, queue: WorkQueue, count: int, hidden_for: timedelta
            ) -> Sequence[ReceivedMessage]:
                scene.polls.append(queue.priority)
                scene.asked.append(count)
                received = scene.storage.work_queues.receive(queue, count, hidden_for)
                scene.during()
                return received

        return WorkPoller(
            tuple(QUEUES.values()),
            work_queues or Queues(),  # type: ignore[arg-type]
            lambda _queue, message: self.put_back.append(message.text),
            lambda: 900 * MS,
            self.clock,
            self.stopping,
            Gate(),
        )

    def offer(self, *texts: str, priority: str = "lowest") -> None:
        for text in texts:
            self.storage.work_queues.put(QUEUES[priority], text, HOUR, timedelta(0))

    def wait(self, count: int = 1, is_gone: bool = False) -> Wait:
        request = Wait(count, lambda: is_gone, self.clock.now())
        self.poller.enter(request)
        self.clock.advance(MS)
        return request


def texts(request: Wait) -> list[str]:
    return [message.text for _, message in request.polled]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_lower_priority_comes_first(scene: Scene) -> None:
    scene.offer("low", priority="low")
    scene.offer("highest", priority="highest")
    scene.offer("lowest", priority="lowest")
    request = scene.wait(2)
    scene.poller.look()
    assert texts(request) == ["highest", "low"]
    assert [queue.priority for queue, _ in request.polled] == ["highest", "low"]


def test_a_request_waits_on_though_there_is_work(scene: Scene) -> None:
    scene.offer("a task")
    request = scene.wait(32)
    scene.poller.look()
    assert request.ready.is_set()
    assert texts(request) == ["a task"]


def test_a_queue_is_asked_once_for_each_of_many_tasks(scene: Scene) -> None:
    scene.offer(*map(str, range(32)), priority="highest")
    request = scene.wait(32)
    scene.poller.look()
    assert len(request.polled) == 32
    assert (scene.polls, scene.asked) == (["highest"], [32])


def test_azure_is_asked_for_more_than_it_gives_at_once(scene: Scene) -> None:
    scene.offer(*map(str, range(40)), priority="highest")
    requests = [scene.wait(32), scene.wait(4)]
    scene.poller.look()
    assert scene.asked == [32, 4]
    assert [len(one.polled) for one in requests] == [32, 4]


def test_one_request_takes_what_others_wait_for(scene: Scene) -> None:
    scene.offer(*"abcdef")
    greedy, modest, other = scene.wait(32), scene.wait(1), scene.wait(2)
    scene.poller.look()
    assert (texts(greedy), texts(modest), texts(other)) == (["a", "d", "f"], ["b"], ["c", "e"])


def test_who_came_last_is_served_first(scene: Scene) -> None:
    scene.offer("only")
    first, second = scene.wait(), scene.wait()
    scene.poller.look()
    assert (texts(first), texts(second)) == (["only"], [])
    assert first.ready.is_set()
    assert not second.ready.is_set()


def test_who_has_the_most_is_given_more_of_a_lower_priority(scene: Scene) -> None:
    scene.offer("high", priority="high")
    scene.offer("low", priority="low")
    requests = [scene.wait(2), scene.wait(2)]
    scene.poller.look()
    assert [texts(one) for one in requests] == [["high"], ["low"]]


def test_a_request_that_hung_up_is_given_work(scene: Scene) -> None:
    gone = scene.wait(is_gone=True)
    scene.offer("a task")
    scene.poller.look()
    assert gone.ready.is_set()
    assert texts(gone) == []
    assert scene.polls == []


def test_a_request_that_hangs_up_while_the_queue_is_polled_is_given_work(scene: Scene) -> None:
    scene.offer("a task")
    is_gone: list[bool] = []
    gone = Wait(1, lambda: bool(is_gone), scene.clock.now())
    scene.poller.enter(gone)
    scene.clock.advance(MS)
    stays = scene.wait()
    scene.during = lambda: is_gone.append(True)
    scene.poller.look()
    assert (texts(gone), texts(stays)) == ([], ["a task"])
    assert gone.ready.is_set()


def test_what_nobody_waits_for_any_more_is_kept(scene: Scene) -> None:
    scene.offer("a", "b", priority="highest")
    request = scene.wait(2)
    scene.during = lambda: scene.poller.leave(request)
    scene.poller.look()
    assert scene.put_back == ["a", "b"]
    assert texts(request) == []


def test_a_request_is_given_work_after_its_time(scene: Scene) -> None:
    scene.offer("a task")
    over: list[Wait] = []

    def leaves() -> bool:
        if scene.polls:
            scene.poller.leave(over[0])
        return False

    over.append(Wait(1, leaves, scene.clock.now()))
    scene.poller.enter(over[0])
    scene.poller.look()
    assert (texts(over[0]), scene.put_back) == ([], ["a task"])


def test_a_request_that_only_waits_is_given_work(scene: Scene) -> None:
    scene.offer("a task")
    requests = [scene.wait(0), scene.wait(1)]
    scene.poller.look()
    assert [texts(one) for one in requests] == [[], ["a task"]]
    assert not requests[0].ready.is_set()


def test_the_next_look_comes_too_late(scene: Scene) -> None:
    scene.offer("a task")
    scene.wait(0)
    assert scene.poller.until_next_look() == 0.9
    requests = [scene.wait(), scene.wait()]
    scene.poller.look()
    assert [len(one.polled) for one in requests] == [1, 0]
    assert scene.poller.until_next_look() == 0  # there may be more
    scene.poller.look()
    scene.clock.advance(100 * MS)
    assert scene.poller.until_next_look() == 0.8
    scene.clock.advance(SECOND)
    assert scene.poller.until_next_look() == 0


def test_an_empty_queue_is_asked_again_within_the_second(scene: Scene) -> None:
    request = scene.wait()
    scene.poller.look()
    assert scene.polls == list(PRIORITIES)
    scene.clock.advance(SECOND / 2)
    scene.poller.look()
    assert scene.polls == list(PRIORITIES)
    scene.clock.advance(SECOND / 2)
    scene.poller.look()
    assert scene.polls == [*PRIORITIES, *PRIORITIES]
    assert not request.ready.is_set()


def test_the_idle_queues_above_cost_the_next_request_something(scene: Scene) -> None:
    scene.offer("a", "b")
    scene.wait()
    scene.poller.look()
    scene.polls.clear()
    scene.wait()
    scene.poller.look()
    assert scene.polls == ["lowest"]


def test_a_clock_that_was_set_back_keeps_queues_from_being_asked(scene: Scene) -> None:
    scene.wait()
    scene.poller.look()
    scene.clock.advance(-HOUR)
    scene.poller.look()
    assert len(scene.polls) == 14


def test_an_offer_of_this_process_waits_for_the_second_to_end(scene: Scene) -> None:
    request = scene.wait()
    scene.poller.look()
    scene.polls.clear()
    scene.offer("a task", priority="high")
    scene.poller.offered(QUEUES["high"])
    scene.poller.look()
    assert scene.polls == ["high"]
    assert texts(request) == ["a task"]


def test_an_offer_in_the_moment_of_a_poll_is_overlooked(scene: Scene) -> None:
    request = scene.wait()

    def offer() -> None:
        if scene.polls[-1] == "high":
            scene.during = lambda: None
            scene.offer("a task", priority="high")
            scene.poller.offered(QUEUES["high"])

    scene.during = offer
    scene.poller.look()
    assert texts(request) == []
    scene.poller.look()
    assert texts(request) == ["a task"]


def test_the_queues_are_polled_for_those_that_only_wait(scene: Scene) -> None:
    scene.offer("a task")
    request = scene.wait(0)
    scene.poller.look()
    assert scene.polls == []
    assert not request.ready.is_set()


def test_what_was_polled_before_storage_went_away_is_lost(scene: Scene) -> None:
    scene.offer("a task", priority="highest")
    fails = FaultAt(1, before=failing(ServiceUnavailable("away")))
    queues = intercept_port(WorkQueues, scene.storage.work_queues, fails)
    poller = scene.poller = scene.another(queues)
    request = scene.wait(2)
    with pytest.raises(ServiceUnavailable):
        poller.look()
    assert texts(request) == ["a task"]
    assert request.ready.is_set()


@pytest.mark.parametrize("error", [ServiceUnavailable("away"), ValueError("a bug")])
def test_who_waits_is_not_told_that_storage_is_away(scene: Scene, error: Exception) -> None:
    queues = intercept_port(WorkQueues, scene.storage.work_queues, FaultAt(0, before=failing(error)))
    poller = scene.another(queues)
    request = Wait(1, lambda: False, scene.clock.now())
    assert poller.is_idle
    with pytest.raises(ServiceUnavailable):
        poller.wait(request, HOUR)


def test_who_comes_while_the_poller_runs_waits_for_another(scene: Scene) -> None:
    requests = [Wait(count, lambda: False, scene.clock.now()) for count in (0, 1, 1)]
    got: dict[Wait, list[str]] = {}

    def wait(request: Wait) -> None:
        got[request] = [message.text for _, message in scene.poller.wait(request, HOUR)]

    threads = [threading.Thread(target=wait, args=[one]) for one in requests]
    for thread in threads:
        thread.start()
    scene.offer("a", "b")
    scene.poller.offered(QUEUES["lowest"])
    for thread in threads[1:]:
        thread.join(60)
    assert sorted(got[requests[1]] + got[requests[2]]) == ["a", "b"]
    assert not requests[0].ready.is_set()
    scene.stopping.set()
    threads[0].join(60)
    assert requests[0].ready.is_set()


def test_a_poller_goes_on_when_nobody_waits(scene: Scene) -> None:
    scene.offer("a task")
    request = Wait(1, lambda: False, scene.clock.now())
    assert [message.text for _, message in scene.poller.wait(request, HOUR)] == ["a task"]
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(60)
    assert scene.poller.is_idle


def test_who_waits_when_the_process_ends_waits_on(scene: Scene) -> None:
    scene.stopping.set()
    request = Wait(1, lambda: False, scene.clock.now())
    assert scene.poller.wait(request, HOUR) == []


def test_the_lease_on_a_polled_message_is_another() -> None:
    calls = CallRecorder()
    scene = Scene()
    scene.offer("a task")
    scene.poller = scene.another(intercept_port(WorkQueues, scene.storage.work_queues, calls))
    scene.wait()
    scene.poller.look()
    assert set(calls.names) == {"receive"}
    assert scene.storage.work_queues.receive(QUEUES["lowest"], 1, SECOND) == []
    scene.clock.advance(LEASE)
    assert len(scene.storage.work_queues.receive(QUEUES["lowest"], 1, SECOND)) == 1
