"""Each stream gets every event once and in order, however many streams are open."""

import threading
from datetime import timedelta

import pytest

from legacy_queue.adapters.clock import SystemWaiter
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import Event
from legacy_queue.domain.topics import topic_regex
from legacy_queue.services.events.event_buffer import EventBuffer
from legacy_queue.services.events.event_streams import EventFilter, EventStreams, Following
from legacy_queue.services.events.stream_admission import StreamAdmission
from tests.domain.sample_tasks import NOW, SECOND
from tests.services.fake_ports import event_of, events_in

BEGINNING = "0" * 16
ALL = EventFilter(None, topic_regex("#"))


def event(number: int) -> Event:
    return Event("task-pending", "a.b", (), {"version": 1, "number": number, "text": "é"})


class Process:
    """The recent events of a process, and its streams."""

    def __init__(self) -> None:
        self.buffer = EventBuffer(lambda: NOW)
        self.stopping = threading.Event()
        # the clients that have disconnected
        self.disconnected: tuple[str, ...] = ("nobody",)
        tick = timedelta(milliseconds=20)
        self.streams = EventStreams(self.buffer, StreamAdmission(500), SystemWaiter(), self.stopping, tick)

    def follow(self, *names: str, after: str = "") -> Following:
        return self.streams.follow(ALL, after, names, lambda: names[-1:] == self.disconnected)

    def publish_numbers(self, *numbers: int) -> None:
        self.buffer.append([event(number) for number in numbers])


@pytest.fixture
def process() -> Process:
    return Process()


def take(following: Following, count: int | None = None) -> list[int | str]:
    """The numbers of the next events, or "gap". Without a count, all that there are now."""
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


@pytest.mark.parametrize("after", ["nonsense", "1", "x" * 16, "1" * 15, "1" * 17, "\u0661" * 16])
def test_an_invalid_event_id_is_refused(process: Process, after: str) -> None:
    with pytest.raises(ValueError, match="expected the id of an event of this server"):
        process.follow(after=after)


def test_the_501st_stream_is_refused_until_another_is_closed(process: Process) -> None:
    streams = [process.follow() for _ in range(500)]
    with pytest.raises(ServiceUnavailable, match="500 event streams"):
        process.follow()
    streams.pop()
    following = process.follow()
    process.publish_numbers(1)
    assert take(following, 1) == [1]


def test_the_process_keeps_at_most_64_mib_of_events(process: Process) -> None:
    large = {"version": 1, "text": "x" * 1_000_000}
    process.buffer.append([Event("task-pending", "a", (), {**large, "number": n}) for n in range(70)])
    assert [event.payload["number"] for _, event in events_in(process.buffer)] == list(range(3, 70))


def test_one_client_or_address_can_open_at_most_a_tenth_of_the_streams(process: Process) -> None:
    streams = [process.follow("address a", f"client {number % 2}") for number in range(50)]
    for names in (["address a"], ["address a", "client 7"]):
        with pytest.raises(ServiceUnavailable, match="50 event streams of this client"):
            process.follow(*names)
    streams += [process.follow("address b", "client 0") for _ in range(25)]
    with pytest.raises(ServiceUnavailable, match="of this client"):
        process.follow("address c", "client 0")
    streams.clear()
    for _ in range(50):
        streams.append(process.follow("address a", "client 0"))


def test_the_stream_of_a_disconnected_client_ends_and_another_can_be_opened(process: Process) -> None:
    streams = [process.follow("address a", f"client {number}") for number in range(50)]
    process.publish_numbers(1)
    process.disconnected = ("client 3",)
    assert take(streams[3], 2) == [1]
    streams.append(process.follow("address a"))
    with pytest.raises(ServiceUnavailable, match="of this client"):
        process.follow("address a")


def test_when_the_process_stops_a_stream_ends_after_the_events_published_so_far(process: Process) -> None:
    following = process.follow()
    process.publish_numbers(1, 2)
    process.stopping.set()
    assert take(following, 3) == [1, 2]


def test_an_event_id_of_another_process_leads_to_a_gap_and_then_to_all_events(process: Process) -> None:
    other = EventBuffer(lambda: NOW + SECOND)
    other.append([event(0)])
    [(last_id, _)] = events_in(other)
    following = process.follow(after=last_id)
    process.publish_numbers(1)
    assert take(following) == take(process.follow(after=last_id)) == ["gap", 1]


def test_a_stream_that_reads_too_slowly_is_told_of_the_gap(process: Process) -> None:
    process.publish_numbers(*range(200))
    slow, idle = process.follow(after=BEGINNING), process.follow()
    assert take(slow, 101) == ["gap", *range(100)]
    process.publish_numbers(*range(200, 10_200))
    assert take(idle) == list(range(200, 10_200))
    assert take(slow) == ["gap", *range(200, 10_200)]
    process.publish_numbers(*range(10_200, 20_201))
    assert take(idle) == ["gap", *range(10_201, 20_201)]
