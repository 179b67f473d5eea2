"""The last events of this process: what ``/events`` shows where there is no broker."""

import re
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from itertools import islice, takewhile
from threading import Condition

from legacy_queue.domain.events import Event
from legacy_queue.domain.times import epoch_milliseconds

_MAX_EVENTS = 10_000

_ID = re.compile(r"[0-9]{16}", re.ASCII)


class EventBuffer:
    """Bounded: the oldest events make room. An id is a number of 16 digits, and begins with the process's
    time of birth: ids of an earlier process are older than all of its own.
    """

    def __init__(self, born: datetime) -> None:
        self._first = self._last = epoch_milliseconds(born) * 1000
        self._events: deque[tuple[int, Event]] = deque(maxlen=_MAX_EVENTS)
        self._changed = Condition()

    def append(self, events: Sequence[Event]) -> None:
        """Add them, in this order, and wake those that ``wait``."""
        with self._changed:
            for event in events:
                self._last += 1
                self._events.append((self._last, event))
            self._changed.notify_all()

    def read(self, after: str, limit: int) -> Sequence[tuple[str, Event]]:
        """Up to ``limit`` events behind the one with the id ``after``, each with its id, oldest first.

        Raises ValueError for an id that is none.
        """
        first = _number(after)
        with self._changed:
            newest_first = list(takewhile(lambda entry: entry[0] > first, reversed(self._events)))
        return [(_id(number), event) for number, event in islice(reversed(newest_first), limit)]

    def last(self) -> str:
        """The id that everything from now on comes behind."""
        return _id(self._last)

    def has_all_after(self, after: str) -> bool:
        """Whether that is an id of this process, and all events behind it are here; raises ValueError."""
        with self._changed:
            oldest = self._events[0][0] if self._events else self._last + 1
            return max(self._first, oldest - 1) <= _number(after) <= self._last

    def wait(self, after: str, seconds: float) -> None:
        """Return once there are events behind that id, or after so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._last > _number(after), seconds)


def _id(number: int) -> str:
    return f"{number:016}"


def _number(text: str) -> int:
    if not text:
        return 0
    if not _ID.fullmatch(text):
        raise ValueError(f"{text!r} is not the id of an event: an id is 16 digits")
    return int(text)
