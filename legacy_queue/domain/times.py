"""Times: in the program aware UTC datetimes of whole milliseconds, on the wire ISO 8601."""

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeVar

from legacy_queue.domain.errors import InputError

Parsed = TypeVar("Parsed")

MILLISECOND = timedelta(milliseconds=1)

_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION = r"(?=.)(?:(\d{1,8})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?(?:(\d{1,13})ms)?"
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def to_milliseconds(time: datetime) -> datetime:
    """Returns the time in UTC, cut to whole milliseconds, so that stored and answered times are equal."""
    if time.tzinfo is not UTC:
        time = time.astimezone(UTC)
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


def parse_time(text: str) -> datetime:
    """Reads ISO 8601 with ``Z`` or an offset: ``2015-01-22T19:05:57.089Z``, ``.089402Z``, ``.089+00:00``.

    Raises ValueError for anything else. Source: docs/explanation/legacy-clients.md#requests.
    """
    if not _TIME.fullmatch(text):
        raise ValueError(f"{text!r} is not a time: expected one like 2015-01-22T19:05:57.000Z")
    try:
        return to_milliseconds(datetime.fromisoformat(text.upper()))
    except (OverflowError, ValueError):
        raise ValueError(f"{text!r} is out of range: there is no such time") from None


def parse_duration(text: str) -> timedelta:
    """Reads ``1500ms``, ``90s``, ``3m31s``, ``2h`` or ``5d``. Raises ValueError for anything else."""
    match = re.fullmatch(_DURATION, text, re.ASCII)
    if not match:
        raise ValueError(f"{text[:100]!r} is not a duration: expected one like 1500ms, 90s, 3m31s, 2h or 5d")
    days, hours, minutes, seconds, milliseconds = map(int, match.groups("0"))
    return timedelta(days, seconds, 0, milliseconds, minutes, hours)


def parse_field(body: Mapping[str, Any], name: str, parse: Callable[[str], Parsed]) -> Parsed:
    """Returns the time or duration of that name in a body. Raises InputError."""
    try:
        return parse(body[name])
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None


def format_time(time: datetime) -> str:
    """``2015-01-22T19:05:57.000Z``: every time that the server writes has this form."""
    if time.tzinfo is not UTC:
        time = time.astimezone(UTC)
    return time.isoformat(timespec="milliseconds")[:-6] + "Z"  # without +00:00


def epoch_milliseconds(time: datetime) -> int:
    """Milliseconds since 1970, as in certificates."""
    return (time - EPOCH) // MILLISECOND


def from_epoch(milliseconds: int) -> datetime:
    """The inverse of ``epoch_milliseconds``."""
    return EPOCH + milliseconds * MILLISECOND


def whole_seconds(duration: timedelta) -> int:
    """Seconds, rounded up: Azure counts in whole seconds and a claim must not end early."""
    return math.ceil(duration / timedelta(seconds=1))


def end_of_day(time: datetime) -> datetime:
    """Returns the next midnight, so that expiries rarely change. On the last day: the time itself."""
    midnight = time.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + timedelta(days=1) if midnight.date() < date.max else time


def duration_words(seconds: float) -> str:
    """Returns ``2.3s``, ``21m 4s``, ``2h`` or ``5d 1h``: the two largest units, tenths below ten seconds."""
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    words = []
    left = round(seconds)
    for unit, length in _UNITS:
        count, left = divmod(left, length)
        if count:
            words.append(f"{count}{unit}")
        elif words:
            break
    return " ".join(words[:2])


def age_words(seconds: float) -> str:
    """``40 s``, ``3 min``, ``2 h``, ``5 days``: the largest unit alone, cut."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return "1 day" if (count, unit) == (1, "days") else f"{count} {unit}"
    return f"{int(seconds)} s"
