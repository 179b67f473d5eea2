"""Streams of events, from the memory of this process or, with a broker, from one reader of the broker.

A stream costs memory only: any number of clients open streams without a cost for storage or broker.
"""

import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Literal, NamedTuple

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import Event
from legacy_queue.domain.json_bytes import to_json
from legacy_queue.domain.times import epoch_milliseconds
from legacy_queue.domain.topics import topic_regex
from legacy_queue.ports import Broker, BrokerAway, Waiter

log = structlog.get_logger()

BeginsAnew = Literal["begins-anew"]  # events are missing before the next event

_ID = re.compile(r"[0-9]{16}", re.ASCII)
MAX_EVENTS = 10_000  # in memory
MAX_EVENTS_SIZE = 64 * 1024 * 1024  # bytes of their payloads
_MIN_SHARE = 4  # streams that each follower may open at least
_MAX_EVENTS_READ = 20  # events that are looked at before other requests are served
_TICK = timedelta(seconds=1)
# seconds between two reads of a stream, and for each open stream: it then reads many events at once
_INTERVAL = 0.02
_INTERVAL_OF_EACH = 0.0002


class FedEvent(NamedTuple):
    """An event and its id, which is empty with a broker. ``payload`` is JSON, made once for all streams.

    ``time`` is when it was published, or read from the broker.
    """

    id: str
    time: datetime
    exchange: str
    routing_key: str
    routes: Sequence[str]
    payload: bytes

    @property
    def keys(self) -> list[str]:
        """Its routing keys."""
        return [self.routing_key, *(f"route.{route}" for route in self.routes)]


@dataclass(eq=False)
class _EventStream:
    exchange: str | None
    keys: re.Pattern[str]
    followers: Sequence[str]
    is_disconnected: Callable[[], bool]
    # of its last event, once it is to end
    last_id: int | None = None

    def follows(self, event: FedEvent) -> bool:
        return self.exchange in (None, event.exchange) and any(map(self.keys.fullmatch, event.keys))


class EventFeed:
    """Hands events to streams. With ``broker`` None they are the events of this process.

    With a broker, a thread reads it while streams are open. Each stream reads the events that are kept: so a
    publisher does no work for streams, and a slow reader keeps no events. At most ``max_streams`` are open;
    each follower may open a tenth of them, and four at least. An id has 16 digits, and ids begin at the time
    of the first use: ids of an earlier process are lower, also of one that was forked from the same parent.
    """

    def __init__(
        self,
        broker: Broker | None,
        now: Callable[[], datetime],
        waiter: Waiter,
        max_streams: int = 500,
        tick: timedelta = _TICK,
    ) -> None:
        self._broker = broker
        self._now = now
        self._waiter = waiter
        self._tick = tick.total_seconds()
        self._max_streams = max_streams
        self._max_per_follower = max(_MIN_SHARE, max_streams // 10)
        self._lock = threading.Lock()
        # one stream at a time reads: other requests are served between
        self._read_lock = threading.Lock()
        self._events: deque[FedEvent] = deque()
        self._size = 0  # bytes of their payloads
        self._last_id = 0
        self._news = threading.Event()  # set when something is new; then another takes its place
        # added to with the lock; discarded from without it, since a collection of garbage may end a stream
        self._streams: set[_EventStream] = set()
        self._reader: Future[None] | None = None  # of the broker; done once the broker sends events

    def append(self, events: Sequence[Event]) -> None:
        """Keep the events, in this order, for the streams. The oldest events are dropped."""
        with self._lock:
            self._begin()
            now = self._now()
            for event in events:
                self._last_id += 1
                event_id = "" if self._broker else f"{self._last_id:016}"
                payload = to_json(event.payload)
                self._events.append(
                    FedEvent(event_id, now, event.exchange, event.routing_key, event.routes, payload)
                )
                self._size += len(payload)
                while len(self._events) > MAX_EVENTS or self._size > MAX_EVENTS_SIZE:
                    self._size -= len(self._events.popleft().payload)
            if self._streams:
                self._wake()

    def kept(self, task_id: str) -> list[FedEvent]:
        """The events of the task that are in memory; with a broker, those of the time of an open stream."""
        with self._lock:
            return [event for event in self._events if event.routing_key.startswith(f"primary.{task_id}.")]

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
        "begins-anew" comes before the next event if events in between are dropped, or if the id is of another
        process. The stream ends when the broker goes away. Unless ``is_endless`` it ends after the events in
        memory; with a broker there are none.

        ``followers``: the address and the client of the request. A stream that ``is_disconnected`` is closed
        if another stream needs its place. Raises ValueError for an invalid id or pattern; BrokerAway;
        ServiceUnavailable, also if too many streams are open, or too many of a follower.
        """
        stream = _EventStream(exchange, topic_regex(pattern), followers, is_disconnected)
        following = self._follow(stream, after, is_endless)
        next(following)  # from here on, closing it frees its place
        return following

    def end(self) -> None:
        """End all open streams, after the events so far."""
        with self._lock:
            for stream in tuple(self._streams):
                stream.last_id = self._last_id
            self._wake()

    def _follow(
        self, stream: _EventStream, after: str, is_endless: bool
    ) -> Iterator[FedEvent | BeginsAnew | None]:
        resumes = after != "" and not self._broker
        if resumes and not _ID.fullmatch(after):
            raise ValueError(f"lastEventId is {after[:200]!r}: the id of an event of this server is accepted")
        with self._lock:
            self._begin()
            self._open(stream)
            reader = self._reader
            position = self._last_id
            if not is_endless:
                stream.last_id = position
        try:
            if reader:
                reader.result()
            yield None
            if resumes:
                position = int(after)
            read = 0.0
            while True:
                news = self._news  # before the ids, which change before it is set
                last_id = stream.last_id
                until = last_id or self._last_id
                if position != until:
                    interval = max(_INTERVAL, len(self._streams) * _INTERVAL_OF_EACH)
                    self._waiter.sleep(max(0.0, read + interval - time.monotonic()))
                    read = time.monotonic()
                    yield from self._buffered(stream, position, until)
                    position = until
                if last_id:
                    return
                self._waiter.wait(news, self._tick)
                yield None
        finally:
            self._streams.discard(stream)

    def _begin(self) -> None:
        if not self._last_id:
            self._last_id = epoch_milliseconds(self._now()) * 1000

    def _wake(self) -> None:
        news = self._news
        self._news = threading.Event()
        news.set()

    def _buffered(self, stream: _EventStream, after: int, until: int) -> Iterator[FedEvent | BeginsAnew]:
        """The stream's events after one id up to another, if they are still in memory."""
        after = after if after <= until else -1  # an id of a process that started later
        while after < until:
            with self._read_lock:
                page, is_missing = self._page(after, until)
                found = [event for _, event in page if stream.follows(event)]
                self._waiter.sleep(0)
            if is_missing:
                yield "begins-anew"
            yield from found
            after = page[-1][0] if page else until

    def _page(self, after: int, until: int) -> tuple[list[tuple[int, FedEvent]], bool]:
        """The first kept events after one id up to another, and whether events before them are missing."""
        with self._lock:
            dropped = self._last_id - len(self._events)  # the last id that is not in memory
            first = max(after, dropped)
            end = min(first + _MAX_EVENTS_READ, until)
            page = islice(self._events, first - dropped, max(0, end - dropped))
            return [*enumerate(page, first + 1)], after < dropped

    def _open(self, stream: _EventStream) -> None:
        """Raises ServiceUnavailable if too many streams are open."""
        if self._refusal(stream):
            for other in tuple(self._streams):
                if other.is_disconnected():
                    other.last_id = self._last_id
                    self._streams.discard(other)
            self._wake()
        if refusal := self._refusal(stream):
            raise ServiceUnavailable(refusal)
        if self._broker and not self._reader:
            self._reader = Future()
            threading.Thread(
                target=self._read, args=[self._broker, self._reader], name="event-feed", daemon=True
            ).start()
        self._streams.add(stream)

    def _refusal(self, stream: _EventStream) -> str | None:
        if len(self._streams) >= self._max_streams:
            return f"{self._max_streams} streams of events are open: try again later"
        streams = Counter(name for open_stream in tuple(self._streams) for name in open_stream.followers)
        if any(streams[name] >= self._max_per_follower for name in stream.followers):
            return f"{self._max_per_follower} streams of events are open by this client or address: try again"
        return None

    def _read(self, broker: Broker, reader: Future[None]) -> None:
        """Keep the broker's events until no stream is open."""
        try:
            events = broker.follow(None, "#")
            reader.set_result(None)
            while True:
                if event := next(events):
                    self.append([event])
                with self._lock:
                    if not self._streams:
                        self._reader = None
                        self._events.clear()
                        self._size = 0
                        return
        except Exception as error:
            if not isinstance(error, (BrokerAway, ServiceUnavailable)):
                log.exception("event-feed-failed")
            with self._lock:
                self._reader = None
            self.end()  # after that: a stream that opens in between has a new reader, and may end too
            if not reader.done():
                reader.set_exception(error)
