"""Text for a person: columns."""

import re
from collections.abc import Iterable, Sequence


def aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """The rows as lines of aligned columns. The first row has the heads; numbers are aligned to the right."""
    columns = []
    for column in zip(*rows, strict=True):
        is_number = all(re.fullmatch(r"[\d.]+|-", cell) for cell in column[1:])
        width = max(map(len, column))
        columns.append([cell.rjust(width) if is_number else cell.ljust(width) for cell in column])
    return ("  ".join(row).rstrip() for row in zip(*columns, strict=True))
