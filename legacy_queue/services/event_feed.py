"""Following events: of this process, which keeps the last of them, or of the broker, where there is one.

So a stream costs memory, but neither storage nor the broker anything, however many strangers open one.
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

FedEvent = tuple[str, Event]  # with its id, which is empty where there is a broker
BeginsAnew = Literal["begins-anew"]  # events are missing before the next

_ID = re.compile(r"[0-9]{16}", re.ASCII)
MAX_EVENTS = 10_000  # that are kept
_MIN_SHARE = 4  # streams of one follower, however few there may be
_ROOM = 1_000  # events that wait for a slow stream
_PAGE = 100  # events that a stream which resumes takes at once
_TICK = timedelta(seconds=1)


@dataclass(eq=False)
class _EventStream:
    """``waiting`` is what it was handed and has not read yet, None behind its last event."""

    exchange: str | None
    pattern: str
    followers: Sequence[str]
    is_disconnected: Callable[[], bool]
    waiting: SimpleQueue[FedEvent | None] = field(default_factory=SimpleQueue)


class EventFeed:
    """``broker`` is None where the events of this process are followed. While there are no streams, nothing
    is read. At most ``max_streams`` are open, a tenth of them, but at least four, for each follower.

    An id is a number of 16 digits, and begins with the time ``born``: ids of an earlier process are older.
    """

    def __init__(
        self, broker: Broker | None, born: datetime, max_streams: int = 500, tick: timedelta = _TICK
    ) -> None:
        self._broker, self._tick = broker, tick.total_seconds()
        self._max_streams, self._max_of_one = max_streams, max(_MIN_SHARE, max_streams // 10)
        self._lock = threading.RLock()  # the garbage collector may end a stream while it is held
        self._events: deque[FedEvent] = deque(maxlen=MAX_EVENTS)
        self._last_id = epoch_milliseconds(born) * 1000
        self._streams: set[_EventStream] = set()
        self._topics: TopicIndex[_EventStream] = TopicIndex()
        self._reader: Future[None] | None = None  # done once the broker is followed

    def append(self, events: Sequence[Event]) -> None:
        """Keep them, in this order, and hand them to the streams; the oldest events make room."""
        with self._lock:
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
        """Events with their ids, behind the one with the id ``after``, or from now on for "".

        Those of the exchange, or of all, whose routing key or a route (``route.<route>``) matches the
        pattern. None about each tick while there are none. With a broker the ids are empty. Where events
        behind that id are not kept, or it is another process's, "begins-anew" comes before those
        that are. It ends when the source of events goes away, and for whoever reads too slowly; unless
        ``is_endless``, behind the events that there are already, of which a broker has none. Raises
        ValueError for an id that is none, BrokerAway, ServiceUnavailable, also where too many follow, or one
        of the ``followers`` (the address and the client that ask) follows too often. A stream that
        ``is_disconnected`` has its place taken away where another stream needs it.
        """
        stream = _EventStream(exchange, pattern, followers, is_disconnected)
        following = self._follow(stream, after, is_endless)
        next(following)  # closing it gives its place back from here on
        return following

    def end(self) -> None:
        """The streams that are open now end, behind what they have been handed."""
        with self._lock:
            for stream in tuple(self._streams):
                stream.waiting.put(None)

    def _follow(
        self, stream: _EventStream, after: str, is_endless: bool
    ) -> Iterator[FedEvent | BeginsAnew | None]:
        resumes = after != "" and not self._broker
        if resumes and not _ID.fullmatch(after):
            raise ValueError(f"{after!r} is not the id of an event: an id is 16 digits")
        with self._lock:
            self._open(stream)
            reader, last_id = self._reader, self._last_id
        try:
            if reader:
                reader.result()
            yield None
            own: TopicIndex[_EventStream] = TopicIndex()
            own.add(stream.pattern, stream)
            for one in self._kept(int(after), last_id) if resumes else ():
                if isinstance(one, str) or _followed_by(own, one[1]):
                    yield one
            while is_endless:
                try:
                    told = stream.waiting.get(timeout=self._tick)
                except Empty:
                    yield None
                    continue
                if told is None:
                    return
                yield told
        finally:
            self._close(stream)

    def _close(self, stream: _EventStream) -> None:
        with self._lock:
            self._streams.discard(stream)
            self._topics.remove(stream.pattern, stream)

    def _kept(self, after: int, until: int) -> Iterator[FedEvent | BeginsAnew]:
        """The events behind one id up to another, as far as they are kept when it is their turn."""
        after = after if after <= until else -1  # it is of a process whose ids are ahead of these
        while after < until:
            with self._lock:
                forgotten = self._last_id - len(self._events)  # up to this id
                is_missing, after = after < forgotten, max(after, forgotten)
                end = max(0, min(after + _PAGE, until) - forgotten)
                page = [*islice(self._events, after - forgotten, end)]
            if is_missing:
                yield "begins-anew"
            yield from page
            after += len(page)

    def _open(self, stream: _EventStream) -> None:
        if self._refusal(stream):
            for other in tuple(self._streams):
                if other.is_disconnected():
                    other.waiting.put(None)
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
        followers = Counter(one for other in tuple(self._streams) for one in other.followers)
        if any(followers[one] >= self._max_of_one for one in stream.followers):
            return f"{self._max_of_one} streams of events are open by this client or address: try again"
        return None

    def _read(self, broker: Broker, reader: Future[None]) -> None:
        """Hand out what the broker has, until there are no streams."""
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

    def _hand_out(self, told: FedEvent) -> None:
        """A stream that has no room for an event ends before it, to be resumed there."""
        for stream in _followed_by(self._topics, told[1]) if self._streams else ():
            if stream.waiting.qsize() < _ROOM:
                stream.waiting.put(told)
            else:
                stream.waiting.put(None)
                self._topics.remove(stream.pattern, stream)


def _followed_by(topics: TopicIndex[_EventStream], event: Event) -> list[_EventStream]:
    """The streams that the event is for."""
    found = topics.matching((event.routing_key, *(f"route.{route}" for route in event.routes)))
    return [stream for stream in found if stream.exchange in (None, event.exchange)]
