"""Events reach the broker at least once and in order for each task, whatever becomes of it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from legacy_queue.domain.errors import RequestConflict, ServiceUnavailable
from legacy_queue.domain.events import Event
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from legacy_queue.ports import BrokerAway
from legacy_queue.services import Services
from legacy_queue.services.claims import Presented
from legacy_queue.services.event_feed import EventFeed
from legacy_queue.services.event_publisher import EventPublisher
from tests.services.bench import (
    ALICE,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    At,
    Bench,
    Calls,
    Crash,
    Told,
    failing,
    task_body,
)
from tests.services.ports import HandBroker

LIFE = [("task-defined", None), ("task-pending", 0), ("task-running", 0), ("task-completed", 0)]
OF_ITS_GROUP = [*LIFE, ("task-group-resolved", None)]  # the task is a group of its own
ONE, TWO = (Event("task-pending", "a.b", (), {"number": number}) for number in (1, 2))


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def broker() -> HandBroker:
    return HandBroker()


def away(bench: Bench) -> None:
    bench.broker.room = 0


def back(bench: Bench) -> None:
    bench.broker.room = None


def live(services: Services, task_id: str) -> None:
    """A task is created, claimed and completed."""
    services.tasks.create(task_id, task_body())
    services.claims.claim(services.tasks.load(task_id), 0, ALICE, Presented())
    services.tasks.report(task_id, 0, "completed", "completed")


def of_task(events: list[Told], task_id: str) -> list[tuple[str, int | None]]:
    """What was published of the task: each when it first came."""
    return list(dict.fromkeys((name, run_id) for name, about, run_id in events if about == task_id))


# Publishing


def test_without_a_broker_events_are_in_the_feed() -> None:
    feed = EventFeed(None, NOW)
    publisher = EventPublisher(None, feed)
    publisher.publish([ONE, TWO])
    publisher.check()
    publisher.close()
    assert not publisher.is_away
    assert [one for _, one in feed._events] == [ONE, TWO]


def test_no_events_cost_nothing(broker: HandBroker) -> None:
    broker.room = 0
    EventPublisher(broker, EventFeed(broker, NOW)).publish([])


def test_while_the_broker_is_away_it_is_not_asked_but_by_the_check(broker: HandBroker) -> None:
    publisher = EventPublisher(broker, EventFeed(broker, NOW))
    broker.room = 0
    with pytest.raises(BrokerAway):
        publisher.publish([ONE])
    publisher.check()
    broker.room = None
    with pytest.raises(BrokerAway):
        publisher.publish([ONE])
    assert (publisher.is_away, broker.told) == (True, [])
    publisher.check()
    publisher.publish([ONE])
    publisher.check()
    assert (publisher.is_away, broker.told) == (False, [ONE])


# What a task's events are promised


def test_events_cost_no_storage_operation_while_the_broker_is_there(bench: Bench) -> None:
    calls, task_id = Calls(), slugid()
    live(bench.replica(calls, remembers=True), task_id)
    assert calls.names.count("broker.publish") == 3
    assert of_task(bench.events(), task_id) == LIFE


def test_while_the_broker_is_away_calls_go_on_and_all_events_arrive_in_order_afterwards(
    bench: Bench,
) -> None:
    away(bench)
    tasks = [slugid() for _ in range(40)]
    for task_id in tasks:
        live(bench.services, task_id)
    bench.run_timers(100 * HOUR)
    assert bench.events() == []
    back(bench)
    bench.run_timers(MINUTE)
    events = bench.events()
    assert [of_task(events, task_id) for task_id in tasks] == [OF_ITS_GROUP] * len(tasks)
    bench.run_timers(HOUR)
    assert (bench.events(), bench.timers()) == ([], [])


def test_a_transition_after_the_broker_is_back_does_not_overtake_what_waits(bench: Bench) -> None:
    task_id = slugid()
    away(bench)
    bench.services.tasks.create(task_id, task_body())
    back(bench)
    bench.core.publisher.check()
    bench.run(task_id)  # before the timer fired
    bench.run_timers(MINUTE)
    assert of_task(bench.events(), task_id) == OF_ITS_GROUP


def test_a_transition_does_not_overtake_what_waits_though_the_task_does_not_say_that_it_does(
    bench: Bench,
) -> None:
    task_id = slugid()
    server = bench.server(At(0, of="replace", before=failing(ServiceUnavailable("storage is away"))))
    away(bench)
    server.services.tasks.create(task_id, task_body())
    assert not bench.task(task_id).is_unpublished
    back(bench)
    server.publisher.check()
    server.services.claims.claim(server.services.tasks.load(task_id), 0, ALICE, Presented())
    bench.run_timers(SECOND, server=server)
    assert of_task(bench.events(), task_id) == LIFE[:3]


def test_a_transition_of_another_process_does_not_overtake_what_waits(bench: Bench) -> None:
    task_id = slugid()
    away(bench)
    bench.services.tasks.create(task_id, task_body())
    back(bench)
    other = bench.server().services
    other.claims.claim(other.tasks.load(task_id), 0, ALICE, Presented())
    other.tasks.report(task_id, 0, "completed", "completed")
    bench.run_timers(MINUTE)
    assert of_task(bench.events(), task_id) == OF_ITS_GROUP


def test_a_timer_publishes_all_that_happened_to_a_task_that_another_process_could_not(
    bench: Bench,
) -> None:
    away(bench)
    task_id = bench.create()
    bench.clock.advance(SECOND)
    other = bench.server()
    other.services.tasks.create(slugid(), task_body())  # it finds that the broker is away
    other.services.claims.claim(other.services.tasks.load(task_id), 0, ALICE, Presented())
    back(bench)
    bench.run_timers(SECOND, server=other)
    assert of_task(bench.events(), task_id) == LIFE[:3]


def test_what_another_process_has_marked_as_unpublished_is_not_marked_again(bench: Bench) -> None:
    calls = Calls()
    away(bench)
    task_id = bench.create()
    assert bench.task(task_id).is_unpublished
    other = bench.server(calls).services
    other.tasks.create(slugid(), task_body())  # it finds that the broker is away
    calls.names.clear()
    other.claims.claim(other.tasks.load(task_id), 0, ALICE, Presented())
    assert calls.names.count("replace") == 1
    assert bench.task(task_id).is_unpublished


def test_other_tasks_are_published_directly_as_soon_as_the_broker_is_back(bench: Bench) -> None:
    away(bench)
    waiting = bench.create()
    back(bench)
    bench.core.publisher.check()
    task_id = bench.create()
    assert of_task(bench.events(), task_id) == LIFE[:2]
    bench.run_timers()
    assert of_task(bench.events(), waiting) == LIFE[:2]


def test_what_the_broker_took_and_did_not_confirm_is_published_again(bench: Bench) -> None:
    bench.broker.is_silent = True
    task_id = bench.create()
    bench.broker.is_silent = False
    bench.run_timers(MINUTE)
    told = bench.events()
    assert of_task(told, task_id) == LIFE[:2]
    assert told.count(("task-defined", task_id, None)) == 2


def test_a_broker_that_goes_away_again_gets_the_rest_when_it_is_back(bench: Bench) -> None:
    away(bench)
    tasks = [slugid() for _ in range(10)]
    for task_id in tasks:
        live(bench.services, task_id)
    bench.broker.room = 17
    bench.core.publisher.check()
    bench.run_timers(MINUTE)
    assert bench.core.publisher.is_away
    back(bench)
    bench.run_timers(MINUTE)
    events = bench.events()
    assert [of_task(events, task_id) for task_id in tasks] == [OF_ITS_GROUP] * len(tasks)


def test_ends_that_nobody_asked_for_while_the_broker_was_away_are_published(bench: Bench) -> None:
    expired, late = bench.claimed(), bench.create(deadline=format_time(NOW + HOUR))
    bench.events()
    away(bench)
    unpublished = bench.create()
    bench.claim(next(one for one in bench.receive() if one.task_id == unpublished))
    bench.run_timers(HOUR)
    for task_id in (expired, unpublished):
        assert bench.states(task_id) == ["exception claim-expired", "pending"]
    assert bench.states(late) == ["exception deadline-exceeded"]
    assert bench.events() == []
    back(bench)
    bench.run_timers(MINUTE)
    events = bench.events()
    assert of_task(events, expired)[-1] == ("task-pending", 1)
    assert of_task(events, unpublished) == [*LIFE[:3], ("task-pending", 1)]
    assert of_task(events, late)[-2:] == [("task-exception", 0), ("task-group-resolved", None)]


def create(_bench: Bench, services: Services, task_id: str) -> None:
    services.tasks.create(task_id, task_body())


def claim(bench: Bench, services: Services, task_id: str) -> None:
    bench.services.tasks.create(task_id, task_body())
    services.claims.claim(bench.task(task_id), 0, ALICE, Presented())


def complete(bench: Bench, services: Services, task_id: str) -> None:
    claim(bench, bench.services, task_id)
    services.tasks.report(task_id, 0, "completed", "completed")


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("call", range(7))
@pytest.mark.parametrize("act", [create, claim, complete])
def test_a_process_that_dies_while_the_broker_is_away_loses_nothing(
    bench: Bench, act: Callable[[Bench, Services, str], None], call: int, is_done: bool
) -> None:
    task_id = slugid()
    away(bench)
    fault = At(call, after=failing(Crash())) if is_done else At(call, before=failing(Crash()))
    try:
        act(bench, bench.replica(fault), task_id)
    except Crash:
        bench.run_timers(MINUTE)
    back(bench)
    bench.run_timers(MINUTE)
    stored = bench.storage.tasks.load(task_id)
    assert stored or fault.crashed
    if stored:
        happened = {"pending": LIFE[:2], "running": LIFE[:3]}.get(stored.task.state, OF_ITS_GROUP)
        assert of_task(bench.events(), task_id) == happened


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("call", range(9))
def test_a_process_that_dies_while_it_catches_up_loses_nothing(
    bench: Bench, call: int, is_done: bool
) -> None:
    task_id = slugid()
    fault = At(call, after=failing(Crash())) if is_done else At(call, before=failing(Crash()))
    arounds = [lambda _, act: act()]
    dying = bench.server(lambda name, act: arounds[-1](name, act))
    away(bench)
    live(dying.services, task_id)
    back(bench)
    arounds.append(fault)
    try:
        bench.run_timers(server=dying)
    except Crash:
        bench.run_timers(MINUTE)
    bench.run_timers(MINUTE)
    assert of_task(bench.events(), task_id) == OF_ITS_GROUP


def test_what_a_repeated_create_has_to_publish_of_its_group_waits_for_the_broker(bench: Bench) -> None:
    task_id, group = slugid(), slugid()
    body = task_body(taskGroupId=group)
    bench.services.tasks.create(task_id, body)
    bench.run(task_id)
    bench.run_timers()
    bench.events()
    away(bench)
    bench.services.tasks.create(task_id, body)
    with pytest.raises(RequestConflict):
        bench.services.tasks.create(task_id, {**body, "retries": 1})
    back(bench)
    bench.run_timers(MINUTE)
    assert ("task-group-resolved", group, None) in bench.events()
    assert bench.storage.groups.all_active("", 9)[0] == []


def test_the_broker_is_closed_with_the_publisher() -> None:
    class Closing(HandBroker):
        is_closed = False

        def close(self) -> None:
            self.is_closed = True

    broker = Closing()
    EventPublisher(broker, EventFeed(broker, NOW)).close()
    assert broker.is_closed


def test_a_task_says_that_events_of_it_are_missing_though_it_changes_in_that_moment(bench: Bench) -> None:
    task_id = bench.create()

    def change_elsewhere() -> None:
        stored = bench.storage.tasks.load(task_id)
        assert stored
        bench.storage.tasks.replace(stored, replace(stored.task, newest_blob="2030-01-02T03:04:05.678Z"))

    bench.broker.room = 0
    server = bench.server(At(1, of="replace", before=change_elsewhere), remembers=True)  # 0 is the claim
    bench.claim(bench.receive_one(), services=server.services)
    assert bench.task(task_id).newest_blob
    assert bench.task(task_id).is_unpublished
