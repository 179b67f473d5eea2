"""Ids of events in a log: numbers that are given out one after the other.

The first of a log is its time of birth, so that those of a log that was lost are older than all of its own.
"""

import re
from datetime import datetime

from legacy_queue.domain.times import epoch_milliseconds

_ID = re.compile(r"[0-9]{16}", re.ASCII)


def first_number(now: datetime) -> int:
    """Microseconds since 1970."""
    return epoch_milliseconds(now) * 1000


def event_id(number: int) -> str:
    """16 digits, in the order of the numbers."""
    return f"{number:016}"


def number_of(text: str) -> int:
    """The inverse of ``event_id``; 0, which is before all of them, for an empty text. Raises ValueError."""
    if not text:
        return 0
    if not _ID.fullmatch(text):
        raise ValueError(f"{text!r} is not the id of an event: an id is 16 digits")
    return int(text)
