"""Each stream gets its events in order and once, from one reader for all streams."""

import threading
from collections.abc import Generator, Iterator
from datetime import timedelta
from functools import partial

import pytest

from legacy_queue.adapters.clock import SystemWaiter
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import Event
from legacy_queue.ports import BrokerAway
from legacy_queue.services.events.event_feed import BeginsAnew, EventFeed, FedEvent
from tests.domain.tasks import NOW, SECOND
from tests.services.harness import Logs
from tests.services.ports import (
    FakeBroker,
    FaultAt,
    Intercept,
    call_through,
    event_of,
    events_in,
    intercept_port,
)
from tests.system.processes import wait_until

BEGINNING = "0" * 16
TICK = timedelta(milliseconds=20)
Following = Iterator[FedEvent | BeginsAnew | None]


def event(number: int) -> Event:
    return Event("task-pending", "a.b", (), {"version": 1, "number": number, "text": "é"})


class BoundBroker(FakeBroker):
    """A follower gets all events from the call on, before it reads."""

    def follow(self, exchange: str | None, pattern: str) -> Generator[Event | None, None, None]:
        following = super().follow(exchange, pattern)
        next(following)
        return following


class Place:
    """A feed of a process or of a broker, and how to publish to it."""

    def __init__(self, *, has_broker: bool = False, intercept: Intercept = call_through) -> None:
        self.broker = BoundBroker() if has_broker else None
        broker = intercept_port(self.broker, intercept, "broker.") if self.broker else None
        self.feed = EventFeed(broker, lambda: NOW, SystemWaiter(), tick=TICK)

    def publish_numbers(self, *numbers: int) -> None:
        self.publish([event(number) for number in numbers])

    def publish(self, events: list[Event]) -> None:
        if self.broker:
            self.broker.publish(events)
        else:
            self.feed.append(events)


@pytest.fixture(params=["process", "broker"])
def place(request: pytest.FixtureRequest) -> Place:
    return Place(has_broker=request.param == "broker")


@pytest.fixture
def process() -> Place:
    return Place()


def take(following: Following, count: int | None = None) -> list[int | str]:
    """The numbers of the next events, by default of those that there are now, and "begins-anew"."""
    found: list[int | str] = []
    is_end = False
    while len(found) != count:
        item = next(following, "ended")
        if item == "ended" or (count is None and item is None and is_end):
            break
        is_end = item is None
        if item:
            found.append(item if isinstance(item, str) else int(event_of(item).payload["number"]))
    return found


def readers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "event-feed"}


@pytest.fixture(autouse=True)
def no_reader_is_left() -> Iterator[None]:
    """A reader that outlives its test would use processor time until the process ends."""
    before = readers()
    yield
    wait_until(lambda: readers() <= before)


@pytest.mark.parametrize("after", ["nonsense", "1", "x" * 16, "1" * 15, "1" * 17, "\u0661" * 16])
def test_an_invalid_id_is_refused(process: Place, after: str) -> None:
    with pytest.raises(ValueError, match="the id of an event of this server is accepted"):
        process.feed.follow(None, "#", after)


def test_the_501st_stream_is_refused_until_another_is_closed(place: Place) -> None:
    feed = place.feed
    streams = [feed.follow(None, "#", "") for _ in range(500)]
    with pytest.raises(ServiceUnavailable, match="500 streams"):
        feed.follow(None, "#", "")
    streams.pop()
    following = feed.follow(None, "#", "")
    place.publish_numbers(1)
    assert take(following, 1) == [1]


def test_the_events_that_are_kept_have_64_mib_at_most(process: Place) -> None:
    large = {"version": 1, "text": "x" * 1_000_000}
    process.publish([Event("task-pending", "a", (), {**large, "number": number}) for number in range(70)])
    assert [event.payload["number"] for _, event in events_in(process.feed)] == list(range(3, 70))


def test_no_stream_begins_while_the_broker_is_away_and_open_ones_end() -> None:
    place = Place(has_broker=True)
    assert place.broker
    feed = place.feed
    place.broker.capacity = 0
    with pytest.raises(BrokerAway):
        feed.follow(None, "#", "")
    place.broker.capacity = None
    following = feed.follow(None, "#", "")
    place.publish_numbers(1)
    assert take(following, 1) == [1]
    place.broker.capacity = 0
    assert take(following, 1) == []


def test_a_bug_of_the_reader_is_logged_and_the_next_stream_works(logs: Logs) -> None:
    bug = FaultAt(0, of="broker.follow", before=RuntimeError("a bug"))
    place = Place(has_broker=True, intercept=bug)
    with pytest.raises(RuntimeError, match="a bug"):
        place.feed.follow(None, "#", "")
    assert [entry["event"] for entry in logs] == ["event-feed-failed"]
    following = place.feed.follow(None, "#", "")
    place.publish_numbers(1)
    assert take(following, 1) == [1]
    following.close()  # type: ignore[attr-defined]  # the bug's traceback would keep it, and it the reader


def test_a_follower_may_open_a_tenth_of_the_streams_at_once(place: Place) -> None:
    feed = place.feed
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


def test_disconnected_streams_are_closed_if_the_limit_of_streams_is_reached(place: Place) -> None:
    feed, disconnected = place.feed, set[int]()
    streams = [
        feed.follow(None, "#", "", ["address a"], is_disconnected=partial(disconnected.__contains__, number))
        for number in range(50)
    ]
    disconnected |= {3, 7}
    streams += [feed.follow(None, "#", "", ["address a"]) for _ in range(2)]
    with pytest.raises(ServiceUnavailable, match="by this client"):
        feed.follow(None, "#", "", ["address a"])
    place.publish_numbers(1)
    assert list(streams[3]) == list(streams[7]) == []
    assert take(streams[4], 1) == take(streams[51], 1) == [1]


def test_an_id_of_a_later_process_begins_anew(process: Place) -> None:
    other = EventFeed(None, lambda: NOW + SECOND, SystemWaiter())
    other.append([event(0)])
    [(last_id, _)] = events_in(other)
    following = process.feed.follow(None, "#", last_id)
    process.publish_numbers(1)
    assert take(following) == take(process.feed.follow(None, "#", last_id)) == ["begins-anew", 1]


def test_a_stream_that_reads_too_slowly_begins_anew_at_the_gap(process: Place) -> None:
    process.publish_numbers(*range(200))
    slow, idle = process.feed.follow(None, "#", BEGINNING), process.feed.follow(None, "#", "")
    assert take(slow, 101) == ["begins-anew", *range(100)]
    process.publish_numbers(*range(200, 10_200))
    assert take(idle) == list(range(200, 10_200))
    assert take(slow) == ["begins-anew", *range(200, 10_200)]
    process.publish_numbers(*range(10_200, 20_201))
    assert take(idle) == ["begins-anew", *range(10_201, 20_201)]
