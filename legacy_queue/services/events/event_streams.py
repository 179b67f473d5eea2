"""Streams the events of this process to any number of clients.

Each stream reads the buffer. So publishing costs nothing more for streams, and slow readers use no memory.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Literal, NamedTuple

from legacy_queue.ports import Flag, Waiter
from legacy_queue.services.events.event_buffer import BufferedEvent, EventBuffer
from legacy_queue.services.events.stream_admission import StreamAdmission

Gap = Literal["gap"]  # events are missing before the next event
Following = Iterator[BufferedEvent | Gap | None]

_ID = re.compile(r"[0-9]{16}", re.ASCII)
_PAGE = 20  # events that a stream looks at before other requests are served
_TICK = timedelta(seconds=1)
# seconds between two reads of a stream, and more for each open stream. With many streams, each reads rarely,
# and then many events at once.
_INTERVAL = 0.02
_INTERVAL_OF_EACH = 0.0002


class EventFilter(NamedTuple):
    """Selects events by exchange (None means all), and by a routing key or ``route.<route>`` that matches."""

    exchange: str | None
    keys: re.Pattern[str]

    def has(self, event: BufferedEvent) -> bool:
        return self.exchange in (None, event.exchange) and any(map(self.keys.fullmatch, event.keys))


class EventStreams:
    """Opens streams of the buffer's events. They end when ``stopping`` is set and ``end_waits`` is called."""

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
        # only one stream reads at a time, so that other requests are served in between
        self._read_lock = threading.Lock()

    def follow(
        self, wanted: EventFilter, after: str, names: tuple[str, ...], is_disconnected: Callable[[], bool]
    ) -> Following:
        """Yields the wanted events after the event with the id ``after``. If that is "", only new events.

        - None comes when there are no more events for now, and then about every tick.
        - "gap" comes before the next event if events in between were dropped, or the id is of another
          process.

        ``names`` are the client and the address that the stream counts for. The stream ends if the client is
        disconnected. Raises ValueError for an invalid id, ServiceUnavailable if too many streams are open.
        """
        if after and not _ID.fullmatch(after):
            raise ValueError(f"lastEventId is {after[:200]!r}: expected the id of an event of this server")
        self._admission.admit(names)
        following = self._follow(wanted, int(after) if after else self._buffer.last, names, is_disconnected)
        next(following)  # from here on, closing the iterator releases its place
        return following

    def _follow(
        self, wanted: EventFilter, position: int, names: tuple[str, ...], is_disconnected: Callable[[], bool]
    ) -> Following:
        try:
            yield None
            read = 0.0
            while True:
                next_events = self._buffer.next_events()  # before the events are read, so that none is missed
                is_last = self._stopping.is_set() or is_disconnected()
                until = self._buffer.last
                if position != until:
                    interval = max(_INTERVAL, self._admission.count * _INTERVAL_OF_EACH)
                    self._waiter.sleep(max(0.0, read + interval - time.monotonic()))
                    read = time.monotonic()
                    yield from self._events(wanted, position, until)
                    position = until
                if is_last:
                    return
                yield None
                self._waiter.wait(next_events, self._tick)
        finally:
            self._admission.release(names)

    def _events(self, wanted: EventFilter, position: int, until: int) -> Following:
        """Yields the wanted events after ``position`` up to ``until``, if they are still in memory."""
        while position != until:
            with self._read_lock:
                page = self._buffer.page(position, until, _PAGE)
                found = [event for event in page.events if wanted.has(event)]
                self._waiter.sleep(0)
            if page.is_missing:
                yield "gap"
            yield from found
            position = page.end
