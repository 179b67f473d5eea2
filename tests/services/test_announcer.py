"""Events reach the broker at least once and in order, whatever becomes of it; without one they are logged."""

import base64
import json
import zlib
from collections.abc import MutableMapping
from datetime import timedelta
from typing import Any

import pytest
from legacy_queue.services.announcer import Announcer

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import Event
from legacy_queue.ports import Broker
from tests.memory_server import HandClock, memory_storage
from tests.services.bench import HOUR, MINUTE, NOW, PREFIX, SECOND, At, Calls, Crash, HandEvent, failing
from tests.services.ports import Around, HandBroker, around_port, around_storage

AWAY = ServiceUnavailable("storage is away")


def event(
    number: int, exchange: str = "task-pending", key: str = "a.b", routes: tuple[str, ...] = ()
) -> Event:
    return Event(exchange, key, routes, {"version": 1, "number": number, "text": "é"})


class Replicas:
    """Announcers of several processes on one storage and one broker."""

    def __init__(self, *, has_broker: bool = True) -> None:
        self.clock = HandClock(NOW)
        self.storage = memory_storage(self.clock, "http://127.0.0.1:1/azure", PREFIX)
        self.broker = HandBroker() if has_broker else None

    def announcer(self, around: Around | None = None, *, is_direct: bool = True) -> Announcer:
        """``around`` is of its calls from then on when it is direct."""
        arounds: list[Around] = []
        outer: Around = lambda name, call: arounds[0](name, call) if arounds else call()  # noqa: E731
        storage = around_storage(self.storage, outer)
        broker = around_port(Broker, self.broker, outer, "broker.") if self.broker else None
        announcer = Announcer(broker, storage.event_log, storage.own_queues, storage.turns, self.clock)
        if is_direct:
            assert announcer.drain()
        if around:
            arounds.append(around)
        return announcer

    @property
    def told(self) -> list[int]:
        assert self.broker
        return [one.payload["number"] for one in self.broker.told]

    def waiting(self) -> int:
        return len(self.storage.own_queues.peek("events", 32))


@pytest.fixture
def replicas() -> Replicas:
    return Replicas()


def away(replicas: Replicas) -> None:
    assert replicas.broker
    replicas.broker.room = 0


def back(replicas: Replicas) -> None:
    assert replicas.broker
    replicas.broker.room = None


def drain(announcer: Announcer) -> None:
    for _ in range(3):
        if announcer.drain():
            return
    raise AssertionError("something waits, or the broker is away")


def test_while_the_broker_is_there_an_event_costs_one_call(replicas: Replicas) -> None:
    calls = Calls()
    replicas.announcer(calls).tell([event(1), event(2)])
    assert calls.names == ["broker.publish"]
    assert replicas.told == [1, 2]


def test_nothing_to_tell_costs_nothing(replicas: Replicas) -> None:
    calls = Calls()
    replicas.announcer(calls).tell([])
    assert calls.names == []


def test_an_event_is_the_same_after_it_has_waited(replicas: Replicas) -> None:
    away(replicas)
    announcer = replicas.announcer(is_direct=False)
    announcer.tell([event(1, "task-defined", "primary.x", ("a.route", "b"))])
    back(replicas)
    drain(announcer)
    assert replicas.broker
    assert replicas.broker.told == [event(1, "task-defined", "primary.x", ("a.route", "b"))]


def test_while_the_broker_is_away_events_wait_and_then_come_in_order(replicas: Replicas) -> None:
    announcer = replicas.announcer()
    announcer.tell([event(1)])
    away(replicas)
    for number in range(2, 90, 2):
        announcer.tell([event(number), event(number + 1)])
    assert not announcer.drain()
    back(replicas)
    drain(announcer)
    assert replicas.told == list(range(1, 90))
    assert replicas.waiting() == 0


def test_what_is_told_while_others_wait_goes_behind_them(replicas: Replicas) -> None:
    announcer = replicas.announcer()
    away(replicas)
    announcer.tell([event(1)])
    back(replicas)
    announcer.tell([event(2)])
    assert replicas.told == []
    drain(announcer)
    announcer.tell([event(3)])
    assert replicas.told == [1, 2, 3]


def test_events_go_to_the_broker_again_only_when_none_are_waiting(replicas: Replicas) -> None:
    announcer = replicas.announcer()
    away(replicas)
    announcer.tell([event(1)])
    back(replicas)
    announcer.tell([event(2)])
    assert replicas.told == []
    assert announcer.drain()
    assert replicas.told == [1, 2]
    announcer.tell([event(3)])
    assert replicas.told == [1, 2, 3]


def test_an_event_that_had_to_wait_while_others_were_published_is_overtaken(replicas: Replicas) -> None:
    announcers: list[Announcer] = []

    def told_meanwhile() -> None:
        announcers[0].tell([event(2)])

    # the second look finds nothing more to publish, and the third is to tell that nothing waits
    at = At(2, of="timer.peek", before=told_meanwhile)
    announcers.append(replicas.announcer(at))
    away(replicas)
    announcers[0].tell([event(1)])
    back(replicas)
    assert not announcers[0].drain()
    assert at.happened
    announcers[0].tell([event(3)])
    drain(announcers[0])
    assert replicas.told == [1, 2, 3]


def test_an_event_on_its_way_to_the_queue_keeps_the_next_from_overtaking_it(replicas: Replicas) -> None:
    """A drain finds the queue empty while the first event is being put there."""
    announcers: list[Announcer] = []

    def drains_meanwhile() -> None:
        back(replicas)
        assert not announcers[0].drain()
        announcers[0].tell([event(2)])

    at = At(0, of="timer.put", before=drains_meanwhile)
    announcers.append(replicas.announcer(at))
    away(replicas)
    announcers[0].tell([event(1)])
    assert at.happened
    assert replicas.told == []
    drain(announcers[0])
    assert sorted(replicas.told) == [1, 2]


def test_a_drain_that_began_before_an_event_had_to_wait_does_not_let_the_next_overtake_it(
    replicas: Replicas,
) -> None:
    announcers: list[Announcer] = []

    def told_meanwhile() -> None:
        away(replicas)
        announcers[0].tell([event(1)])
        back(replicas)

    at = At(0, of="timer.peek", after=told_meanwhile)
    announcers.append(replicas.announcer(at))
    assert not announcers[0].drain()
    announcers[0].tell([event(2)])
    drain(announcers[0])
    assert replicas.told == [1, 2]


def test_a_new_process_tells_nothing_before_what_an_earlier_one_left(replicas: Replicas) -> None:
    away(replicas)
    replicas.announcer(is_direct=False).tell([event(1)])
    back(replicas)
    successor = replicas.announcer(is_direct=False)
    successor.tell([event(2)])
    assert replicas.told == []
    drain(successor)
    assert replicas.told == [1, 2]


def test_one_process_publishes_what_waits_and_the_others_wait_for_it(replicas: Replicas) -> None:
    one, other = replicas.announcer(), replicas.announcer()
    away(replicas)
    for announcer, number in ((one, 1), (other, 2), (one, 3)):
        announcer.tell([event(number)])
    back(replicas)
    assert not isinstance(replicas.storage.turns.take("events", replicas.clock.now() + SECOND), type(NOW))
    assert not other.drain()
    assert replicas.told == []
    replicas.clock.advance(SECOND)
    drain(other)
    assert replicas.told == [1, 2, 3]
    drain(one)
    one.tell([event(4)])
    assert replicas.told == [1, 2, 3, 4]


def test_a_process_that_was_too_slow_leaves_its_turn_to_another(replicas: Replicas) -> None:
    other = replicas.announcer()

    def taken_over() -> None:
        replicas.clock.advance(2 * MINUTE)
        drain(other)

    slow = replicas.announcer(At(0, of="broker.publish", before=taken_over))
    away(replicas)
    other.tell([event(1)])
    back(replicas)
    assert not slow.drain()
    assert replicas.told == [1, 1]
    drain(slow)


def test_a_process_whose_turn_was_taken_publishes_no_further_batch(replicas: Replicas) -> None:
    one, other = replicas.announcer(), replicas.announcer()
    away(replicas)
    one.tell([event(number) for number in range(40)])

    def taken_over() -> None:
        replicas.clock.advance(MINUTE)
        replicas.storage.turns.take("events", replicas.clock.now() + MINUTE)

    slow = replicas.announcer(At(0, of="broker.publish", after=taken_over), is_direct=False)
    back(replicas)
    assert not slow.drain()
    assert replicas.told == list(range(32))
    replicas.clock.advance(MINUTE)
    drain(other)
    assert replicas.told[32:] == list(range(32, 40))


def test_a_broker_that_goes_away_again_leaves_the_rest_in_their_order(replicas: Replicas) -> None:
    assert replicas.broker
    announcer = replicas.announcer()
    away(replicas)
    announcer.tell([event(number) for number in range(40)])
    replicas.broker.room = 35
    assert not announcer.drain()
    assert replicas.told == list(range(35))
    back(replicas)
    drain(announcer)
    assert replicas.told == [*range(35), *range(32, 40)]  # what was not confirmed comes again


def test_an_event_that_the_broker_took_but_did_not_confirm_is_told_again(replicas: Replicas) -> None:
    assert replicas.broker
    announcer = replicas.announcer()
    replicas.broker.is_silent = True
    announcer.tell([event(1), event(2)])
    announcer.tell([event(3)])
    assert replicas.told == [1, 2]
    replicas.broker.is_silent = False
    drain(announcer)
    assert replicas.told == [1, 2, 1, 2, 3]


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("call", range(16))
def test_a_process_that_dies_while_it_publishes_loses_nothing(
    replicas: Replicas, call: int, is_done: bool
) -> None:
    away(replicas)
    replicas.announcer(is_direct=False).tell([event(1), event(2), event(3)])
    back(replicas)
    fault = At(call, after=failing(Crash())) if is_done else At(call, before=failing(Crash()))
    dying = replicas.announcer(fault, is_direct=False)
    try:
        drain(dying)
    except Crash:
        replicas.clock.advance(2 * MINUTE)
        drain(replicas.announcer(is_direct=False))
    assert list(dict.fromkeys(replicas.told)) == [1, 2, 3]
    assert replicas.waiting() == 0


def test_where_storage_is_away_too_the_caller_is_told(replicas: Replicas) -> None:
    announcer = replicas.announcer(At(0, of="timer.put", before=failing(AWAY)))
    away(replicas)
    with pytest.raises(ServiceUnavailable):
        announcer.tell([event(1)])
    back(replicas)
    drain(announcer)
    announcer.tell([event(2)])
    assert replicas.told == [2]


def test_a_drain_without_storage_tells_so(replicas: Replicas) -> None:
    announcer = replicas.announcer(At(0, of="timer.peek", before=failing(AWAY)))
    with pytest.raises(ServiceUnavailable):
        announcer.drain()


def packed(**change: Any) -> str:
    """As an event is that waits."""
    good = {"exchange": "task-pending", "routing_key": "a.b", "routes": [], "payload": {"number": 9}}
    return base64.b64encode(zlib.compress(json.dumps({**good, **change}).encode())).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "e30=",
        "eJyrrgUAAXUA+Q==",  # {}
        packed()[:-8],
        base64.b64encode(zlib.compress(b"{}")[:-4]).decode(),
        base64.b64encode(zlib.compress(b" " * 20_000_000)).decode(),
        packed(exchange="none"),
        packed(exchange=["task-pending"]),
        packed(routing_key=7),
        packed(routing_key="\ud800"),
        packed(routing_key="x" * 256),
        packed(routes=[7]),
        packed(routes=[None]),
        packed(routes=7),
        packed(payload=[]),
        packed(payload={"a": float("inf")}),
        packed(payload={"a": [float("nan")]}),
    ],
    ids=range(18),
)
def test_what_is_no_event_is_set_aside(
    replicas: Replicas, text: str, logs: list[MutableMapping[str, Any]]
) -> None:
    away(replicas)
    announcer = replicas.announcer(is_direct=False)
    announcer.tell([event(1)])
    replicas.storage.own_queues.put("events", text, timedelta(0))
    announcer.tell([event(2)])
    back(replicas)
    drain(announcer)
    assert replicas.told == [1, 2]
    assert len(replicas.storage.own_queues.peek("poison", 32)) == 1
    assert [one["event"] for one in logs] == ["message-set-aside"]


def test_what_becomes_visible_after_the_others_were_looked_at_is_published_before_it_is_removed(
    replicas: Replicas,
) -> None:
    """A process has died that had received the first event; the lease ends, and another takes the second."""
    away(replicas)
    announcer = replicas.announcer(is_direct=False)
    announcer.tell([event(1)])
    replicas.storage.own_queues.receive("events", 1, MINUTE)
    announcer.tell([event(2)])
    back(replicas)

    def first_for_second() -> None:
        replicas.storage.own_queues.receive("events", 1, 2 * MINUTE)
        replicas.clock.advance(MINUTE)

    at = At(0, of="timer.receive", before=first_for_second)
    drain(replicas.announcer(at, is_direct=False))
    assert replicas.told == [2, 1]


def test_a_broker_that_is_away_is_logged_for_each_event_and_wakes_the_drain(
    replicas: Replicas, logs: list[MutableMapping[str, Any]]
) -> None:
    announcer = replicas.announcer()
    wake = announcer._to_drain = HandEvent(replicas.clock)
    announcer.wait(MINUTE)
    assert wake.waits == [60]
    away(replicas)
    announcer.tell([event(1)])
    announcer.wait(MINUTE)
    announcer.wait(MINUTE)
    assert wake.waits == [60, 60]
    announcer.wake()
    announcer.wait(MINUTE)
    assert wake.waits == [60, 60]
    assert [one["event"] for one in logs] == ["events-wait"]


def test_without_a_broker_events_are_in_the_log_and_nothing_waits() -> None:
    replicas = Replicas(has_broker=False)
    calls = Calls()
    announcer = replicas.announcer(calls)
    announcer.tell([event(1), event(2)])
    assert announcer.drain()
    assert calls.names == ["log.append"]
    assert [one for _, one in replicas.storage.event_log.read("", 9)] == [event(1), event(2)]


def test_events_wait_for_hours(replicas: Replicas) -> None:
    announcer = replicas.announcer()
    away(replicas)
    announcer.tell([event(1)])
    replicas.clock.advance(100 * HOUR)
    back(replicas)
    drain(announcer)
    assert replicas.told == [1]
