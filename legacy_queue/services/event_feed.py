"""Following events: one reader for a process, whose streams get what they ask for.

So a stream costs memory, but neither storage nor the broker anything, however many strangers open one.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from queue import Empty, SimpleQueue

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import Event
from legacy_queue.domain.topics import TopicIndex
from legacy_queue.ports import Broker, BrokerAway
from legacy_queue.stores import EventLog

log = structlog.get_logger()

Told = tuple[str, Event]  # with its id, which is empty where there is a broker

_MIN_SHARE = 4  # streams of one follower, however few there may be
_ROOM = 1_000  # events that wait for a slow stream
_PAGE = 100
_TICK = timedelta(seconds=1)


@dataclass(eq=False)
class _Stream:
    """``waiting`` is what it has not read yet, None behind its last event. ``followers`` is whose it is."""

    exchange: str | None
    pattern: str
    followers: Sequence[str]
    waiting: SimpleQueue[Told | None] = field(default_factory=SimpleQueue)


@dataclass(eq=False)
class _Reader:
    """Hands every event behind ``reached`` to its streams, once it is ``settled`` that it can or cannot."""

    streams: set[_Stream] = field(default_factory=set)
    topics: TopicIndex[_Stream] = field(default_factory=TopicIndex)
    reached: str = ""
    settled: threading.Event = field(default_factory=threading.Event)
    failure: Exception | None = None

    def add(self, stream: _Stream) -> None:
        self.streams.add(stream)
        self.topics.add(stream.pattern, stream)

    def discard(self, stream: _Stream) -> None:
        self.streams.discard(stream)
        self.topics.remove(stream.pattern, stream)


class EventFeed:
    """``broker`` is None where events are read from the log. While nobody follows, nothing is read.

    What other processes add to the log is seen with each ``tick``. At most ``max_streams`` are open, a tenth
    of them, but at least four, for each follower.
    """

    def __init__(
        self, broker: Broker | None, event_log: EventLog, max_streams: int = 500, tick: timedelta = _TICK
    ) -> None:
        self._broker, self._log, self._tick = broker, event_log, tick.total_seconds()
        self._max_streams, self._max_of_one = max_streams, max(_MIN_SHARE, max_streams // 10)
        self._lock = threading.RLock()  # the garbage collector may end a stream while it is held
        self._open = 0
        self._of_followers: Counter[str] = Counter()
        self._reader: _Reader | None = None
        self._logged = threading.Event()

    def follow(
        self, exchange: str | None, pattern: str, after: str, followers: Sequence[str] = ()
    ) -> Iterator[Told | None]:
        """Events with their ids, behind the one with the id ``after``, or from now on for "".

        Those of the exchange, or of all, whose routing key or a route (``route.<route>``) matches the
        pattern. None about each tick while there are none. With a broker the ids are empty. It ends when
        the source of events goes away, and for whoever reads too slowly. Raises ValueError for an id that is
        none, BrokerAway, ServiceUnavailable, also where too many follow, or one of the ``followers`` (the
        address and the client that ask) follows too often.
        """
        following = self._follow(_Stream(exchange, pattern, followers), after)
        next(following)  # closing it gives its place back from here on
        return following

    def wake(self) -> None:
        """Something was added to the log."""
        self._logged.set()

    def end(self) -> None:
        """The streams that are open now end, behind what they have been handed."""
        with self._lock:
            for stream in self._reader.streams if self._reader else ():
                stream.waiting.put(None)

    def _follow(self, stream: _Stream, after: str) -> Iterator[Told | None]:
        reader = self._join(stream)
        try:
            reader.settled.wait()
            if reader.failure:
                raise reader.failure
            reached, last = reader.reached, ""
            page: Sequence[Told] = ()
            if self._broker is None:
                last = after or self._log.last()
                page = self._log.read(after, _PAGE) if after else ()
            yield None
            own: TopicIndex[_Stream] = TopicIndex()
            own.add(stream.pattern, stream)
            while page:
                for last, event in page:
                    if _followed_by(own, event):
                        yield last, event
                yield None
                page = self._log.read(last, _PAGE) if last < reached else ()
            yield from self._waiting(stream, last)
        finally:
            with self._lock:
                self._open -= 1
                self._of_followers.subtract(stream.followers)
                self._of_followers += Counter()  # without those that have none
                reader.discard(stream)

    def _waiting(self, stream: _Stream, last: str) -> Iterator[Told | None]:
        """What the stream is handed, without what it has read up to the id ``last``."""
        while True:
            try:
                told = stream.waiting.get(timeout=self._tick)
            except Empty:
                yield None
                continue
            if told is None:
                return
            if not last or told[0] > last:
                yield told

    def _join(self, stream: _Stream) -> _Reader:
        with self._lock:
            if self._open >= self._max_streams:
                raise ServiceUnavailable(f"{self._max_streams} streams of events are open: try again later")
            if any(self._of_followers[one] >= self._max_of_one for one in stream.followers):
                raise ServiceUnavailable(
                    f"{self._max_of_one} streams of events are open by this client or address: try again"
                )
            reader = self._reader or _Reader()
            if not self._reader:
                threading.Thread(target=self._read, args=[reader], name="event-feed", daemon=True).start()
            self._reader = reader
            self._open += 1
            self._of_followers.update(stream.followers)
            reader.add(stream)
            return reader

    def _read(self, reader: _Reader) -> None:
        try:
            pages = _broker_pages(self._broker, reader) if self._broker else self._log_pages(reader)
            while True:
                page = next(pages)
                with self._lock:
                    _hand_out(page, reader)
                    if not reader.streams:
                        self._reader = None
                        return
        except Exception as error:
            if not isinstance(error, (BrokerAway, ServiceUnavailable)):
                log.exception("events-not-followed")
            with self._lock:
                reader.failure, self._reader = error, None
                for stream in tuple(reader.streams):
                    stream.waiting.put(None)
            reader.settled.set()

    def _log_pages(self, reader: _Reader) -> Iterator[Sequence[Told]]:
        """What is added to the log, as it comes; an empty page with each tick while there is nothing."""
        reader.reached = self._log.last()
        reader.settled.set()
        while True:
            self._logged.clear()
            page = self._log.read(reader.reached, _PAGE)
            yield page
            if not page:
                self._logged.wait(self._tick)


def _broker_pages(broker: Broker, reader: _Reader) -> Iterator[Sequence[Told]]:
    """What the broker has, as it comes; an empty page about every second while there is nothing."""
    events = broker.follow(None, "#")
    reader.settled.set()
    return ([("", event)] if event else [] for event in events)


def _hand_out(page: Sequence[Told], reader: _Reader) -> None:
    """A stream that has no room for an event ends before it, to be resumed there."""
    for told in page:
        for stream in _followed_by(reader.topics, told[1]):
            if stream.waiting.qsize() < _ROOM:
                stream.waiting.put(told)
            else:
                stream.waiting.put(None)
                reader.discard(stream)
        reader.reached = told[0]


def _followed_by(topics: TopicIndex[_Stream], event: Event) -> list[_Stream]:
    """The streams that the event is for."""
    found = topics.matching((event.routing_key, *(f"route.{route}" for route in event.routes)))
    return [stream for stream in found if stream.exchange in (None, event.exchange)]
