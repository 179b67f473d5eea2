"""Following events: one reader for a process, whose streams get what they ask for.

So a stream costs memory, but neither storage nor the broker anything, however many strangers open one.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Literal

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import Event
from legacy_queue.domain.topics import TopicIndex
from legacy_queue.ports import Broker, BrokerAway
from legacy_queue.services.event_buffer import EventBuffer

log = structlog.get_logger()

Told = tuple[str, Event]  # with its id, which is empty where there is a broker
BeginsAnew = Literal["begins-anew"]  # events are missing before the next

_BEGINS_ANEW: BeginsAnew = "begins-anew"

_MIN_SHARE = 4  # streams of one follower, however few there may be
_ROOM = 1_000  # events that wait for a slow stream
_PAGE = 100
_TICK = timedelta(seconds=1)


@dataclass(eq=False)
class _Stream:
    """``waiting`` is what it has not read yet, None behind its last event. ``followers`` is whose it is.

    ``last`` is the id up to which it has read the buffer, "" for not at all.
    """

    exchange: str | None
    pattern: str
    followers: Sequence[str]
    waiting: SimpleQueue[Told | None] = field(default_factory=SimpleQueue)
    last: str = ""


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
    """``broker`` is None where events are read from this process's buffer. While nobody follows, nothing is
    read. At most ``max_streams`` are open, a tenth of them, but at least four, for each follower.
    """

    def __init__(
        self, broker: Broker | None, buffer: EventBuffer, max_streams: int = 500, tick: timedelta = _TICK
    ) -> None:
        self._broker, self._buffer, self._tick = broker, buffer, tick.total_seconds()
        self._max_streams, self._max_of_one = max_streams, max(_MIN_SHARE, max_streams // 10)
        self._lock = threading.RLock()  # the garbage collector may end a stream while it is held
        self._open = 0
        self._of_followers: Counter[str] = Counter()
        self._reader: _Reader | None = None

    def follow(
        self, exchange: str | None, pattern: str, after: str, followers: Sequence[str] = ()
    ) -> Iterator[Told | BeginsAnew | None]:
        """Events with their ids, behind the one with the id ``after``, or from now on for "".

        Those of the exchange, or of all, whose routing key or a route (``route.<route>``) matches the
        pattern. None about each tick while there are none. With a broker the ids are empty. Where events
        behind that id are not in the buffer, or it is another process's, "begins-anew" comes before those
        that are. It ends when the source of events goes away, and for whoever reads too slowly. Raises
        ValueError for an id that is none, BrokerAway, ServiceUnavailable, also where too many follow, or one
        of the ``followers`` (the address and the client that ask) follows too often.
        """
        following = self._follow(_Stream(exchange, pattern, followers), after)
        next(following)  # closing it gives its place back from here on
        return following

    def end(self) -> None:
        """The streams that are open now end, behind what they have been handed."""
        with self._lock:
            for stream in self._reader.streams if self._reader else ():
                stream.waiting.put(None)

    def _follow(self, stream: _Stream, after: str) -> Iterator[Told | BeginsAnew | None]:
        reader = self._join(stream)
        try:
            reader.settled.wait()
            if reader.failure:
                raise reader.failure
            resumes = self._broker is None and after != ""
            if self._broker is None:
                stream.last = after or self._buffer.last()
                self._buffer.has_all_after(stream.last)  # else it is no id
            yield None
            if resumes:
                yield from self._buffered(stream, reader.reached)
            yield from self._waiting(stream)
        finally:
            with self._lock:
                self._open -= 1
                self._of_followers.subtract(stream.followers)
                self._of_followers += Counter()  # without those that have none
                reader.discard(stream)

    def _buffered(self, stream: _Stream, reached: str) -> Iterator[Told | BeginsAnew | None]:
        """What the buffer has behind the stream's last id, at least up to the id ``reached``."""
        own: TopicIndex[_Stream] = TopicIndex()
        own.add(stream.pattern, stream)
        while True:
            page = self._buffer.read(stream.last, _PAGE)
            if not self._buffer.has_all_after(stream.last):
                yield _BEGINS_ANEW
                stream.last = "" if not page else stream.last  # of a process whose ids are ahead of these
                page = page or self._buffer.read("", _PAGE)
            for event_id, event in page:
                stream.last = event_id
                if _followed_by(own, event):
                    yield event_id, event
            if not page or stream.last >= reached:
                return
            yield None

    def _waiting(self, stream: _Stream) -> Iterator[Told | None]:
        """What the stream is handed, without what it has read before."""
        while True:
            try:
                told = stream.waiting.get(timeout=self._tick)
            except Empty:
                yield None
                continue
            if told is None:
                return
            if not stream.last or told[0] > stream.last:
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
            pages = _broker_pages(self._broker, reader) if self._broker else self._buffer_pages(reader)
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

    def _buffer_pages(self, reader: _Reader) -> Iterator[Sequence[Told]]:
        """What is added to the buffer, as it comes; an empty page with each tick while there is nothing."""
        reader.reached = self._buffer.last()
        reader.settled.set()
        while True:
            page = self._buffer.read(reader.reached, _PAGE)
            yield page
            if not page:
                self._buffer.wait(reader.reached, self._tick)


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
