"""Whoever follows gets every event that it asked for, in order and once, from one reader for all of them."""

import threading
from collections.abc import Iterator, MutableMapping
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import Event
from legacy_queue.ports import Broker, BrokerAway
from legacy_queue.services.event_feed import EventFeed
from tests.memory_server import HandClock, memory_storage
from tests.services.bench import HOUR, NOW, PREFIX, At, Calls, failing, nothing_around
from tests.services.ports import Around, HandBroker, around_port, around_storage
from tests.services.test_announcer import AWAY, event
from tests.system.processes import wait_until

BEGINNING = "0" * 16
TICK = timedelta(milliseconds=20)
Following = Iterator[tuple[str, Event] | None]


class BoundBroker(HandBroker):
    """Tells whoever follows all that it is told from then on."""

    def follow(self, exchange: str | None, pattern: str) -> Iterator[Event | None]:
        following = super().follow(exchange, pattern)
        next(following)
        return following


class Place:
    """Where events are told: a log, or a broker; and the feeds of processes there."""

    def __init__(self, *, has_broker: bool = False) -> None:
        storage = memory_storage(HandClock(NOW), "http://127.0.0.1:1/azure", PREFIX)
        self.storage, self.log = storage, storage.event_log
        self.broker = BoundBroker() if has_broker else None

    def feed(self, around: Around = nothing_around) -> EventFeed:
        broker = around_port(Broker, self.broker, around, "broker.") if self.broker else None
        return EventFeed(broker, around_storage(self.storage, around).event_log, tick=TICK)

    def tell(self, *numbers: int, key: str = "a.b") -> None:
        events = [event(number, key=key) for number in numbers]
        if self.broker:
            self.broker.publish(events)
        else:
            self.log.append(events)


@pytest.fixture(params=["log", "broker"])
def place(request: pytest.FixtureRequest) -> Place:
    return Place(has_broker=request.param == "broker")


@pytest.fixture
def logged() -> Place:
    return Place()


def take(following: Following, count: int) -> list[int]:
    """The numbers of the next so many events: fewer where it ends."""
    found: list[int] = []
    while len(found) < count:
        try:
            one = next(following)
        except StopIteration:
            break
        if one:
            found.append(one[1].payload["number"])
    return found


def numbers(feed: EventFeed, exchange: str | None, pattern: str, after: str) -> list[int]:
    """What is there to follow now: up to where it has nothing twice."""
    found, is_end = [], False
    for one in feed.follow(exchange, pattern, after):
        if one is None and is_end:
            break
        is_end = one is None
        if one:
            found.append(one[1].payload["number"])
    return found


def is_reading() -> bool:
    return any(thread.name == "event-feed" for thread in threading.enumerate())


def test_the_log_is_followed_from_elsewhere_than_an_id(logged: Place) -> None:
    feed = logged.feed()
    logged.tell(*range(250))
    assert numbers(feed, None, "#", BEGINNING) == list(range(250))
    ids = [one for one, _ in logged.log.read("", 999)]
    assert numbers(feed, None, "#", ids[99]) == list(range(100, 250))
    assert numbers(feed, None, "#", ids[-1]) == []
    assert numbers(feed, None, "#", "") == []


def test_an_event_comes_without_its_id_or_is_one_of_before(logged: Place) -> None:
    feed = logged.feed()
    logged.tell(0)
    following = feed.follow(None, "#", "")
    logged.tell(1)
    first = next(one for one in following if one)
    assert first[1] == event(1)
    logged.tell(2)
    assert numbers(feed, None, "#", first[0]) == [2]


def test_what_was_told_before_a_second_stream_began_is_in_it(logged: Place) -> None:
    """The reader has not read it yet: it is held up where it reads the log."""
    may_read = threading.Event()

    def held_up(name: str, call: Any) -> Any:
        if name == "log.read" and threading.current_thread().name == "event-feed":
            may_read.wait()
        return call()

    feed = logged.feed(held_up)
    first = feed.follow(None, "#", "")
    logged.tell(1)
    second = feed.follow(None, "#", "")
    logged.tell(2)
    may_read.set()
    assert take(first, 2) == [1, 2]
    assert take(second, 1) == [2]


def test_a_stream_that_resumes_misses_what_is_told_meanwhile_or_gets_it_twice(logged: Place) -> None:
    feed = logged.feed()
    logged.tell(*range(150))
    live = feed.follow(None, "#", "")
    resumed = feed.follow(None, "#", BEGINNING)
    assert take(resumed, 50) == list(range(50))
    logged.tell(*range(150, 300))
    assert take(live, 150) == list(range(150, 300))
    assert take(resumed, 250) == list(range(50, 300))
    logged.tell(300)
    assert (take(live, 1), take(resumed, 1)) == ([300], [300])


def test_what_another_process_tells_is_not_followed(place: Place) -> None:
    following = place.feed().follow(None, "#", "")
    place.feed()
    place.tell(1)
    assert take(following, 1) == [1]


def test_a_process_that_tells_does_not_wake_its_own_reader(logged: Place) -> None:
    feed = logged.feed()
    following = feed.follow(None, "#", "")
    feed.wake()
    assert next(following) is None
    logged.tell(1)
    feed.wake()
    assert take(following, 1) == [1]


def test_a_stream_is_of_another_exchange_or_of_what_its_pattern_does_not_match(logged: Place) -> None:
    logged.log.append(
        [
            event(1, "task-pending", "primary.x"),
            event(2, "task-running", "primary.x"),
            event(3, "task-running", "primary.y"),
            event(4, "task-running", "primary.z", ("index.a", "primary.x")),
        ]
    )
    feed = logged.feed()
    assert numbers(feed, "task-pending", "#", BEGINNING) == [1]
    assert numbers(feed, "task-running", "#", BEGINNING) == [2, 3, 4]
    assert numbers(feed, None, "*.x", BEGINNING) == [1, 2]
    assert numbers(feed, None, "route.index.*", BEGINNING) == [4]
    assert numbers(feed, None, "route.#", BEGINNING) == [4]
    assert numbers(feed, "task-pending", "route.#", BEGINNING) == []


def test_streams_that_ask_for_different_things_get_the_same(place: Place) -> None:
    feed = place.feed()
    everything, again, running = (feed.follow(exchange, "#", "") for exchange in (None, None, "task-running"))
    place.tell(1)
    others = [event(2, "task-running"), event(3)]
    place.broker.publish(others) if place.broker else place.log.append(others)
    assert take(everything, 3) == take(again, 3) == [1, 2, 3]
    assert take(running, 1) == [2]


@pytest.mark.parametrize("after", ["nonsense", "1", "x" * 16])
def test_what_is_no_id_is_followed(logged: Place, after: str) -> None:
    with pytest.raises(ValueError, match="not the id of an event"):
        logged.feed().follow(None, "#", after)


def test_with_a_broker_events_have_ids() -> None:
    place = Place(has_broker=True)
    following = place.feed().follow("task-pending", "a.#", "whatever")
    place.tell(1)
    assert next(one for one in following if one) == ("", event(1))


def test_each_stream_reads_by_itself(place: Place) -> None:
    calls = Calls()
    feed = place.feed(calls)
    streams = [feed.follow(None, "#", "") for _ in range(50)]
    before = len([name for name in calls.names if name in ("log.read", "broker.follow")])
    place.tell(*range(10))
    feed.wake()
    assert [take(stream, 10) for stream in streams] == [list(range(10))] * 50
    read = len([name for name in calls.names if name in ("log.read", "broker.follow")]) - before
    assert read < 10


def test_the_reader_stays_when_the_last_stream_has_ended_and_is_not_there_for_the_next(place: Place) -> None:
    calls = Calls()
    feed = place.feed(calls)
    one, other = feed.follow(None, "#", ""), feed.follow(None, "#", "")
    one.close()  # type: ignore[attr-defined]
    place.tell(1)
    assert take(other, 1) == [1]
    other.close()  # type: ignore[attr-defined]
    wait_until(lambda: feed._reader is None)
    wait_until(lambda: not is_reading())
    seen = len(calls.names)
    place.tell(2)
    feed.wake()
    assert len(calls.names) == seen
    after = feed.follow(None, "#", "")
    place.tell(3)
    assert 3 in take(after, 1)


def test_streams_end_when_the_feed_does_without_waiting_for_a_tick() -> None:
    feed = EventFeed(BoundBroker(), Place().log, tick=HOUR)
    streams = [feed.follow(None, "#", "") for _ in range(3)]
    feed.end()
    assert [take(stream, 1) for stream in streams] == [[], [], []]


def test_a_feed_that_nobody_follows_can_end(place: Place) -> None:
    feed = place.feed()
    feed.end()
    following = feed.follow(None, "#", "")
    place.tell(1)
    assert 1 in take(following, 1), "the end is that of the streams that were open"


def test_a_stream_too_many_is_opened_or_a_place_is_not_given_back(place: Place) -> None:
    feed = place.feed()
    streams = [feed.follow(None, "#", "") for _ in range(500)]
    with pytest.raises(ServiceUnavailable, match="500 streams"):
        feed.follow(None, "#", "")
    streams.pop()
    following = feed.follow(None, "#", "")
    place.tell(1)
    assert take(following, 1) == [1]


def test_refused_streams_keep_their_places(logged: Place) -> None:
    feed = logged.feed()
    for _ in range(501):
        with pytest.raises(ValueError, match="id"):
            feed.follow(None, "#", "x")
    assert numbers(feed, None, "#", "") == []


def test_a_stream_that_is_not_read_takes_memory_without_end_or_ends_with_a_gap(logged: Place) -> None:
    feed = logged.feed()
    quick, slow = feed.follow(None, "#", ""), feed.follow(None, "#", "")
    nothing = feed.follow("task-failed", "#", "")
    for first in range(0, 1200, 100):
        logged.tell(*range(first, first + 100))
        feed.wake()
        assert take(quick, 100) == list(range(first, first + 100))
    found = [one for one in slow if one]
    assert [one[1].payload["number"] for one in found] == list(range(1000))
    assert take(feed.follow(None, "#", found[-1][0]), 200) == list(range(1000, 1200))
    assert next(nothing) is None


@pytest.mark.parametrize("call", [0, 1])
def test_storage_that_is_away_is_followed(logged: Place, call: int) -> None:
    """The reader asks first, then the stream."""
    feed = logged.feed(At(call, of="log.last", before=failing(AWAY)))
    with pytest.raises(ServiceUnavailable, match="storage is away"):
        feed.follow(None, "#", "")
    assert numbers(feed, None, "#", "") == []


def test_streams_go_on_when_storage_goes_away(logged: Place) -> None:
    is_away = threading.Event()

    def around(name: str, call: Any) -> Any:
        if name == "log.read" and is_away.is_set():
            raise AWAY
        return call()

    feed = logged.feed(around)
    streams = [feed.follow(None, "#", "") for _ in range(3)]
    logged.tell(1)
    assert [take(stream, 1) for stream in streams] == [[1]] * 3
    is_away.set()
    feed.wake()
    assert [take(stream, 1) for stream in streams] == [[]] * 3
    is_away.clear()
    logged.tell(2)
    assert numbers(feed, None, "#", BEGINNING) == [1, 2]


def test_a_broker_that_is_away_is_followed_or_streams_go_on_when_it_goes_away() -> None:
    place = Place(has_broker=True)
    assert place.broker
    feed = place.feed()
    place.broker.room = 0
    with pytest.raises(BrokerAway):
        feed.follow(None, "#", "")
    place.broker.room = None
    following = feed.follow(None, "#", "")
    place.tell(1)
    assert take(following, 1) == [1]
    place.broker.room = 0
    assert take(following, 1) == []


def test_a_bug_is_not_logged_or_ends_the_feed_for_good(
    logged: Place, logs: list[MutableMapping[str, Any]]
) -> None:
    feed = logged.feed(At(0, of="log.last", before=failing(RuntimeError("a bug"))))
    with pytest.raises(RuntimeError, match="a bug"):
        feed.follow(None, "#", "")
    assert [one["event"] for one in logs] == ["events-not-followed"]
    assert numbers(feed, None, "#", "") == []


def test_one_follower_opens_a_tenth_of_the_streams_and_gets_closed_ones_back(place: Place) -> None:
    feed = place.feed()
    streams = [feed.follow(None, "#", "", ["address a", f"client {number % 2}"]) for number in range(50)]
    for followers in (["address a"], ["address a", "client 7"]):
        with pytest.raises(ServiceUnavailable, match="50 streams of events are open by this client"):
            feed.follow(None, "#", "", followers)
    streams += [feed.follow(None, "#", "", ["address b", "client 0"]) for _ in range(25)]
    with pytest.raises(ServiceUnavailable, match="by this client"):
        feed.follow(None, "#", "", ["address c", "client 0"])
    streams.clear()
    for _ in range(50):
        streams.append(feed.follow(None, "#", "", ["address a", "client 0"]))


def test_500_streams_of_as_many_patterns_each_get_what_they_ask_for(place: Place) -> None:
    feed = place.feed()
    streams = [feed.follow(None, f"#.{number}.#", "") for number in range(500)]
    place.tell(7, key="a.7.b")
    place.tell(499, key="499")
    feed.wake()
    assert take(streams[7], 1) == [7]
    assert take(streams[499], 1) == [499]
