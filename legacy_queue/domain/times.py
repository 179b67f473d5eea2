"""Times on the wire and inside: aware UTC datetimes of whole milliseconds."""

import math
import re
from datetime import UTC, date, datetime, timedelta

_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)

_EPOCH, _MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)


def to_milliseconds(time: datetime) -> datetime:
    """The same time in UTC, cut to whole milliseconds: what is stored is what was answered."""
    if time.tzinfo is not UTC:
        time = time.astimezone(UTC)
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


def parse_time(text: str) -> datetime:
    """Read ISO 8601 with ``Z`` or an offset: ``2015-01-22T19:05:57.089Z``, ``.089402Z``, ``.089+00:00``.

    Raises ValueError for anything else. Source: design/clients.md 6.
    """
    if not _TIME.fullmatch(text):
        raise ValueError(f"{text!r} is not a time like 2015-01-22T19:05:57.000Z")
    try:
        return to_milliseconds(datetime.fromisoformat(text.upper()))
    except (OverflowError, ValueError):
        raise ValueError(f"{text!r} is out of range: there is no such time") from None


def format_time(time: datetime) -> str:
    """``2015-01-22T19:05:57.000Z``: the one form in which a time leaves this server."""
    if time.tzinfo is not UTC:
        time = time.astimezone(UTC)
    return time.isoformat(timespec="milliseconds")[: -len("+00:00")] + "Z"


def epoch_milliseconds(time: datetime) -> int:
    """Milliseconds since 1970, as certificates count them."""
    return (time - _EPOCH) // _MILLISECOND


def whole_seconds(duration: timedelta) -> int:
    """Seconds, rounded up: Azure counts in whole seconds and a claim must not end early."""
    return math.ceil(duration / timedelta(seconds=1))


def end_of_day(time: datetime) -> datetime:
    """The midnight after it, if there is one: an expiry that need not move for every later task."""
    midnight = time.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + timedelta(days=1) if midnight.date() < date.max else time
