"""Text for a person: columns."""

import re
from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], nothing: str) -> str:
    """Lines of aligned columns below their heads, numbers to the right. Without a row it is ``nothing``."""
    listed = [heads, *rows]
    if len(listed) == 1:
        return nothing
    columns = []
    for column in zip(*listed, strict=True):
        is_number = all(re.fullmatch(r"[\d.]+|-", cell) for cell in column[1:])
        width = max(map(len, column))
        columns.append([cell.rjust(width) if is_number else cell.ljust(width) for cell in column])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))
