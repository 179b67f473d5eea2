"""Following events: one reader for a process, whose streams get what they ask for.

So a stream costs memory, but neither storage nor the broker anything, however many strangers open one.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from queue import Empty, SimpleQueue

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import Event, matches
from legacy_queue.ports import Broker, BrokerAway, EventLog

log = structlog.get_logger()

Told = tuple[str, Event]  # with its id, which is empty where there is a broker

_ROOM = 1_000  # events that wait for a slow stream
_PAGE = 100
_TICK = timedelta(seconds=1)


@dataclass(eq=False)
class _Stream:
    """``waiting`` is what it has not read yet, None behind its last event."""

    exchange: str | None
    pattern: str
    waiting: SimpleQueue[Told | None] = field(default_factory=SimpleQueue)


@dataclass(eq=False)
class _Reader:
    """Hands every event behind ``reached`` to its streams, once it is ``settled`` that it can or cannot."""

    streams: set[_Stream] = field(default_factory=set)
    reached: str = ""
    settled: threading.Event = field(default_factory=threading.Event)
    failure: Exception | None = None


class EventFeed:
    """``broker`` is None where events are read from the log. While nobody follows, nothing is read.

    What other processes add to the log is seen with each ``tick``.
    """

    def __init__(
        self, broker: Broker | None, event_log: EventLog, max_streams: int = 500, tick: timedelta = _TICK
    ) -> None:
        self._broker, self._log, self._tick = broker, event_log, tick.total_seconds()
        self._max_streams = max_streams
        self._lock = threading.RLock()  # the garbage collector may end a stream while it is held
        self._open = 0
        self._reader: _Reader | None = None
        self._logged = threading.Event()

    def follow(self, exchange: str | None, pattern: str, after: str) -> Iterator[Told | None]:
        """Events with their ids, behind the one with the id ``after``, or from now on for "".

        Those of the exchange, or of all, whose routing key or a route (``route.<route>``) matches the
        pattern. None about each tick while there are none. With a broker the ids are empty. It ends when
        the source of events goes away, and for whoever reads too slowly. Raises ValueError for an id that is
        none, BrokerAway, ServiceUnavailable, also where too many follow.
        """
        following = self._follow(_Stream(exchange, pattern), after)
        next(following)  # closing it gives its place back from here on
        return following

    def wake(self) -> None:
        """Something was added to the log."""
        self._logged.set()

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
            while page:
                for last, event in page:
                    if _is_for(stream.exchange, stream.pattern, event):
                        yield last, event
                yield None
                page = self._log.read(last, _PAGE) if last < reached else ()
            yield from self._waiting(stream, last)
        finally:
            with self._lock:
                self._open -= 1
                reader.streams.discard(stream)

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
            reader = self._reader or _Reader()
            if not self._reader:
                threading.Thread(target=self._read, args=[reader], name="event-feed", daemon=True).start()
            self._reader = reader
            self._open += 1
            reader.streams.add(stream)
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
        is_for: dict[tuple[str | None, str], bool] = {}  # most streams ask for the same
        for stream in tuple(reader.streams):
            asked = stream.exchange, stream.pattern
            if asked not in is_for:
                is_for[asked] = _is_for(*asked, told[1])
            if not is_for[asked]:
                continue
            if stream.waiting.qsize() < _ROOM:
                stream.waiting.put(told)
            else:
                stream.waiting.put(None)
                reader.streams.discard(stream)
        reader.reached = told[0]


def _is_for(exchange: str | None, pattern: str, event: Event) -> bool:
    keys = (event.routing_key, *(f"route.{route}" for route in event.routes))
    return exchange in (None, event.exchange) and any(matches(pattern, key) for key in keys)
