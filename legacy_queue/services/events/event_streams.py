"""Streams of the events of this process, for any number of clients at once.

Each stream reads the buffer: so a publisher does no work for streams, and a slow reader keeps no events.
"""

import re
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Literal

from legacy_queue.domain.topics import topic_regex
from legacy_queue.ports import Flag, Waiter
from legacy_queue.services.events.event_buffer import BufferedEvent, EventBuffer
from legacy_queue.services.events.stream_admission import Follower, StreamAdmission

BeginsAnew = Literal["begins-anew"]  # events are missing before the next event
Following = Iterator[BufferedEvent | BeginsAnew | None]

_ID = re.compile(r"[0-9]{16}", re.ASCII)
_PAGE = 20  # events that are looked at before other requests are served
_TICK = timedelta(seconds=1)
# seconds between two reads of a stream, and for each open stream: it then reads many events at once
_INTERVAL = 0.02
_INTERVAL_OF_EACH = 0.0002


class EventFilter:
    """Events of ``exchange`` (None: of all) whose routing key or a route (``route.<route>``) matches.

    Raises ValueError for an invalid ``pattern``.
    """

    def __init__(self, exchange: str | None, pattern: str) -> None:
        self._exchange = exchange
        self._keys = topic_regex(pattern)

    def has(self, event: BufferedEvent) -> bool:
        return self._exchange in (None, event.exchange) and any(map(self._keys.fullmatch, event.keys))


class EventStreams:
    """Opens streams of the buffer's events. They end once ``stopping`` is set and the buffer wakes them."""

    def __init__(
        self,
        buffer: EventBuffer,
        admission: StreamAdmission,
        waiter: Waiter,
        stopping: Flag,
        tick: timedelta = _TICK,
    ) -> None:
        self._buffer = buffer
        self._admission = admission
        self._waiter = waiter
        self._stopping = stopping
        self._tick = tick.total_seconds()
        # one stream at a time reads: other requests are served between
        self._read_lock = threading.Lock()

    def follow(self, wanted: EventFilter, after: str, follower: Follower) -> Following:
        """The wanted events after the event with id ``after``, or only new events for "", without an end.

        None comes about each tick without events. "begins-anew" comes before the next event if events in
        between are dropped, or if the id is of another process. The stream ends if its follower is
        disconnected or the process stops.

        Raises ValueError for an invalid id; ServiceUnavailable if too many streams are open.
        """
        return self._opened(follower, self._endless(wanted, self._position(after), follower))

    def read(self, wanted: EventFilter, after: str, follower: Follower) -> Following:
        """As ``follow``, but the stream ends after the events that are in memory."""
        return self._opened(follower, self._events(wanted, self._position(after), self._buffer.last))

    def _position(self, after: str) -> int:
        if not after:
            return self._buffer.last
        if not _ID.fullmatch(after):
            raise ValueError(f"lastEventId is {after[:200]!r}: expected the id of an event of this server")
        return int(after)

    def _opened(self, follower: Follower, events: Following) -> Following:
        self._admission.admit(follower)
        opened = self._released_at_end(follower, events)
        next(opened)  # from here on, closing it frees its place
        return opened

    def _released_at_end(self, follower: Follower, events: Following) -> Following:
        try:
            yield None
            yield from events
        finally:
            self._admission.release(follower)

    def _endless(self, wanted: EventFilter, position: int, follower: Follower) -> Following:
        read = 0.0
        while True:
            # both before the events are read: none is missed
            news = self._buffer.news()
            is_last = self._stopping.is_set() or follower.is_disconnected()
            until = self._buffer.last
            if position != until:
                interval = max(_INTERVAL, self._admission.count * _INTERVAL_OF_EACH)
                self._waiter.sleep(max(0.0, read + interval - time.monotonic()))
                read = time.monotonic()
                yield from self._events(wanted, position, until)
                position = until
            if is_last:
                return
            self._waiter.wait(news, self._tick)
            yield None

    def _events(self, wanted: EventFilter, position: int, until: int) -> Following:
        """The wanted events behind one number up to another, if they are still in memory."""
        while position != until:
            with self._read_lock:
                page = self._buffer.page(position, until, _PAGE)
                found = [event for event in page.events if wanted.has(event)]
                self._waiter.sleep(0)
            if page.is_missing:
                yield "begins-anew"
            yield from found
            position = page.end
