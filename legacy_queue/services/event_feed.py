"""Streams of events, from the memory of this process or, with a broker, from one reader of the broker.

A stream costs memory only: any number of clients open streams without a cost for storage or broker.
"""

import re
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Literal

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import Event
from legacy_queue.domain.times import epoch_milliseconds
from legacy_queue.domain.topics import TopicIndex
from legacy_queue.ports import Broker, BrokerAway

log = structlog.get_logger()

FedEvent = tuple[str, Event]  # id and event; with a broker the id is empty
BeginsAnew = Literal["begins-anew"]  # events are missing before the next event

_ID = re.compile(r"[0-9]{16}", re.ASCII)
MAX_EVENTS = 10_000  # in memory
_MIN_SHARE = 4  # streams that each follower may open at least
_MAX_UNREAD = 1_000  # events of a stream
_PAGE = 100  # events that a resumed stream copies at once
_TICK = timedelta(seconds=1)


@dataclass(eq=False)
class _EventStream:
    """``unread``: the events that the stream has not read yet, then None at its end."""

    exchange: str | None
    pattern: str
    followers: Sequence[str]
    is_disconnected: Callable[[], bool]
    unread: SimpleQueue[FedEvent | None] = field(default_factory=SimpleQueue)


class EventFeed:
    """Hands events to streams. With ``broker`` None they are the events of this process.

    It reads the broker only while streams are open. At most ``max_streams`` are open; each follower may open
    a tenth of them, and four at least. An id has 16 digits, and ids begin at the time of the first use: ids
    of an earlier process are lower, also of one that was forked from the same parent.
    """

    def __init__(
        self,
        broker: Broker | None,
        now: Callable[[], datetime],
        max_streams: int = 500,
        tick: timedelta = _TICK,
    ) -> None:
        self._broker, self._tick = broker, tick.total_seconds()
        self._max_streams, self._max_per_follower = max_streams, max(_MIN_SHARE, max_streams // 10)
        self._lock = threading.RLock()  # the garbage collector may close a stream while this thread holds it
        self._events: deque[FedEvent] = deque(maxlen=MAX_EVENTS)
        self._now, self._last_id = now, 0
        self._streams: set[_EventStream] = set()
        self._topics: TopicIndex[_EventStream] = TopicIndex()
        self._reader: Future[None] | None = None  # done once the broker sends events

    def append(self, events: Sequence[Event]) -> None:
        """Keep the events, in this order, and hand them to the streams. The oldest events are dropped."""
        with self._lock:
            self._begin()
            for event in events:
                self._last_id += 1
                self._events.append((f"{self._last_id:016}", event))
                self._hand_out(self._events[-1])

    def follow(
        self,
        exchange: str | None,
        pattern: str,
        after: str,
        followers: Sequence[str] = (),
        is_endless: bool = True,
        is_disconnected: Callable[[], bool] = lambda: False,
    ) -> Iterator[FedEvent | BeginsAnew | None]:
        """A stream of events with their ids, after the event with id ``after``; new events only for "".

        It has the events of ``exchange`` (None: of all) whose routing key or a route (``route.<route>``)
        matches ``pattern``, and None about each tick without events. With a broker the ids are empty.
        "begins-anew" comes before the first event if events after that id are dropped, or if the id is of
        another process. The stream ends when the broker goes away, and when its reader is too slow. Unless
        ``is_endless`` it ends after the events in memory; with a broker there are none.

        ``followers``: the address and the client of the request. A stream that ``is_disconnected`` is closed
        if another stream needs its place. Raises ValueError for an invalid id; BrokerAway;
        ServiceUnavailable, also if too many streams are open, or too many of a follower.
        """
        stream = _EventStream(exchange, pattern, followers, is_disconnected)
        following = self._follow(stream, after, is_endless)
        next(following)  # from here on, closing it frees its place
        return following

    def end(self) -> None:
        """End all open streams, after the events that they were handed."""
        with self._lock:
            for stream in tuple(self._streams):
                stream.unread.put(None)

    def _follow(
        self, stream: _EventStream, after: str, is_endless: bool
    ) -> Iterator[FedEvent | BeginsAnew | None]:
        resumes = after != "" and not self._broker
        if resumes and not _ID.fullmatch(after):
            raise ValueError(f"{after!r} is not the id of an event: an id is 16 digits")
        with self._lock:
            self._begin()
            self._open(stream)
            reader, last_id = self._reader, self._last_id
        try:
            if reader:
                reader.result()
            yield None
            own: TopicIndex[_EventStream] = TopicIndex()
            own.add(stream.pattern, stream)
            for earlier in self._kept(int(after), last_id) if resumes else ():
                if isinstance(earlier, str) or _followed_by(own, earlier[1]):
                    yield earlier
            while is_endless:
                try:
                    entry = stream.unread.get(timeout=self._tick)
                except Empty:
                    yield None
                    continue
                if entry is None:
                    return
                yield entry
        finally:
            self._close(stream)

    def _begin(self) -> None:
        if not self._last_id:
            self._last_id = epoch_milliseconds(self._now()) * 1000

    def _close(self, stream: _EventStream) -> None:
        with self._lock:
            self._streams.discard(stream)
            self._topics.remove(stream.pattern, stream)

    def _kept(self, after: int, until: int) -> Iterator[FedEvent | BeginsAnew]:
        """The events after one id up to another, if they are still in memory."""
        after = after if after <= until else -1  # an id of a process that started later
        while after < until:
            with self._lock:
                dropped = self._last_id - len(self._events)  # the last id that is not in memory
                is_missing, after = after < dropped, max(after, dropped)
                end = max(0, min(after + _PAGE, until) - dropped)
                page = [*islice(self._events, after - dropped, end)]
            if is_missing:
                yield "begins-anew"
            yield from page
            after += len(page)

    def _open(self, stream: _EventStream) -> None:
        if self._refusal(stream):
            for other in tuple(self._streams):
                if other.is_disconnected():
                    other.unread.put(None)
                    self._close(other)
        if refusal := self._refusal(stream):
            raise ServiceUnavailable(refusal)
        if self._broker and not self._reader:
            reader: Future[None] = Future()
            reading = threading.Thread(
                target=self._read, args=[self._broker, reader], name="event-feed", daemon=True
            )
            reading.start()
            self._reader = reader
        self._streams.add(stream)
        self._topics.add(stream.pattern, stream)

    def _refusal(self, stream: _EventStream) -> str | None:
        if len(self._streams) >= self._max_streams:
            return f"{self._max_streams} streams of events are open: try again later"
        streams = Counter(name for open_stream in tuple(self._streams) for name in open_stream.followers)
        if any(streams[name] >= self._max_per_follower for name in stream.followers):
            return f"{self._max_per_follower} streams of events are open by this client or address: try again"
        return None

    def _read(self, broker: Broker, reader: Future[None]) -> None:
        """Hand out the events of the broker until no stream is open."""
        try:
            events = broker.follow(None, "#")
            reader.set_result(None)
            while True:
                event = next(events)
                with self._lock:
                    if event:
                        self._hand_out(("", event))
                    if not self._streams:
                        self._reader = None
                        return
        except Exception as error:
            if not isinstance(error, (BrokerAway, ServiceUnavailable)):
                log.exception("event-feed-failed")
            with self._lock:
                self._reader = None
                self.end()
            if not reader.done():
                reader.set_exception(error)

    def _hand_out(self, entry: FedEvent) -> None:
        """Hand the event to its streams. A stream with too many unread events ends."""
        for stream in _followed_by(self._topics, entry[1]) if self._streams else ():
            if stream.unread.qsize() < _MAX_UNREAD:
                stream.unread.put(entry)
            else:
                stream.unread.put(None)
                self._topics.remove(stream.pattern, stream)


def _followed_by(topics: TopicIndex[_EventStream], event: Event) -> list[_EventStream]:
    """The streams that follow the event."""
    streams = topics.matching((event.routing_key, *(f"route.{route}" for route in event.routes)))
    return [stream for stream in streams if stream.exchange in (None, event.exchange)]
