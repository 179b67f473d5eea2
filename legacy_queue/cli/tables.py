"""Text for a person: columns, and durations in words."""

import re
from collections.abc import Iterable, Sequence

_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """The rows as lines of aligned columns. The first row has the heads; numbers are aligned to the right."""
    columns = []
    for column in zip(*rows, strict=True):
        is_number = all(re.fullmatch(r"[\d.]+|-", cell) for cell in column[1:])
        width = max(map(len, column))
        columns.append([cell.rjust(width) if is_number else cell.ljust(width) for cell in column])
    return ("  ".join(row).rstrip() for row in zip(*columns, strict=True))


def duration_words(seconds: float) -> str:
    """``2.3s``, ``21m 4s``, ``2h``, ``5d 1h``: the two largest units, tenths of a second below ten."""
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
