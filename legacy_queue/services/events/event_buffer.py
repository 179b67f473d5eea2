"""Keeps in memory the last events that this process has published.

Streams of events and pages for people use it. No decision may depend on it, because it lacks the events of
other processes, and the events from before the start of this one.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from legacy_queue.domain.events import Event
from legacy_queue.domain.json_bytes import to_json
from legacy_queue.domain.times import epoch_milliseconds

MAX_EVENTS = 10_000
MAX_EVENTS_SIZE = 64 * 1024 * 1024  # bytes of all payloads


class BufferedEvent(NamedTuple):
    """An event, and when it was published. ``id`` is its number with 16 digits."""

    id: str
    time: datetime
    exchange: str
    routing_key: str
    routes: Sequence[str]
    # JSON, made once for all streams
    payload: bytes

    @property
    def keys(self) -> list[str]:
        """The routing keys of the event."""
        return [self.routing_key, *(f"route.{route}" for route in self.routes)]


class BufferPage(NamedTuple):
    """Some events in order. The next page begins after the number ``end``.

    ``is_missing``: events before these are no longer in memory, or belong to another process.
    """

    events: Sequence[BufferedEvent]
    end: int
    is_missing: bool


class EventBuffer:
    """Holds the last 10,000 events, up to 64 MiB. Each has the next number.

    The first number is made from the time of the first use. So an earlier process has lower numbers, even if
    both were forked from the same parent.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._events: deque[BufferedEvent] = deque()
        # bytes of the payloads
        self._size = 0
        self._last = 0
        # None while nobody waits for the next events
        self._next_events: threading.Event | None = None

    def append(self, events: Sequence[Event]) -> None:
        """Add the events in this order, and drop the oldest ones if there are too many."""
        with self._lock:
            now = self._now()
            self._last = self._last or _first(now)
            for event in events:
                self._last += 1
                payload = to_json(event.payload)
                about = event.exchange, event.routing_key, event.routes
                self._events.append(BufferedEvent(f"{self._last:016}", now, *about, payload))
                self._size += len(payload)
                while len(self._events) > MAX_EVENTS or self._size > MAX_EVENTS_SIZE:
                    self._size -= len(self._events.popleft().payload)
        if self._next_events:  # whoever begins to wait after this has read these events
            self.end_waits()

    @property
    def last(self) -> int:
        """The number of the last event."""
        with self._lock:
            self._last = self._last or _first(self._now())
            return self._last

    def of_task(self, task_id: str) -> list[BufferedEvent]:
        """Returns the events of the task that are still in memory."""
        with self._lock:
            return [event for event in self._events if event.routing_key.startswith(f"primary.{task_id}.")]

    def page(self, after: int, until: int, limit: int) -> BufferPage:
        """Returns up to ``limit`` events with numbers above ``after`` and up to ``until``.

        If ``after`` is above ``until``, it is from a process that started later, and all events up to it are
        missing.
        """
        with self._lock:
            dropped = self._last - len(self._events)  # the last number that is not in memory
            wanted = after if after <= until else -1
            first = max(wanted, dropped)
            end = min(first + limit, until)
            page = islice(self._events, first - dropped, max(0, end - dropped))
            return BufferPage([*page], end, wanted < dropped)

    def next_events(self) -> threading.Event:
        """Returns a flag that the next events, or ``end_waits``, will set. Get it before you read events."""
        with self._lock:
            if self._next_events is None:
                self._next_events = threading.Event()
            return self._next_events

    def end_waits(self) -> None:
        """Wake all who wait for the next events."""
        with self._lock:
            flag, self._next_events = self._next_events, None
        if flag:
            flag.set()


def _first(now: datetime) -> int:
    return epoch_milliseconds(now) * 1000
