"""The last events of this process."""

from collections import deque
from collections.abc import Sequence
from datetime import datetime
from itertools import islice, takewhile
from threading import Lock

from legacy_queue.adapters.event_ids import event_id, first_number, number_of
from legacy_queue.domain.events import Event
from legacy_queue.ports import Clock, EventLog

_KEPT = 10_000


class MemoryEventLog(EventLog):
    """Bounded: the oldest events make room, before anybody trims."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = first_number(clock.now())
        self._events: deque[tuple[int, datetime, Event]] = deque(maxlen=_KEPT)
        self._lock = Lock()

    def append(self, events: Sequence[Event]) -> None:
        with self._lock:
            now = self._clock.now()
            for event in events:
                self._last += 1
                self._events.append((self._last, now, event))

    def read(self, after: str, limit: int) -> Sequence[tuple[str, Event]]:
        first = number_of(after)
        with self._lock:
            newest_first = list(takewhile(lambda entry: entry[0] > first, reversed(self._events)))
        return [(event_id(number), event) for number, _, event in islice(reversed(newest_first), limit)]

    def last(self) -> str:
        return event_id(self._last)

    def trim(self, before: datetime) -> None:
        with self._lock:
            while self._events and self._events[0][1] < before:
                self._events.popleft()
