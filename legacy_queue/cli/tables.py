"""Text for a person: columns."""

import re
import shutil
import sys
from collections.abc import Iterable, Sequence

MAX_OPTION_WIDTH = 24  # characters of an option in a help, whose text begins in one column behind them


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], nothing: str) -> str:
    """Lines of aligned columns below their heads, numbers to the right. Without a row it is ``nothing``.

    A terminal that is too narrow gets the first columns, and the heads of the others: in broken lines nobody
    finds a column.
    """
    listed = [heads, *rows]
    if len(listed) == 1:
        return nothing
    columns: list[list[str]] = []
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    for column in zip(*listed, strict=True):
        is_number = all(re.fullmatch(r"[\d.]+|-", cell) for cell in column[1:])
        width = max(map(len, column))
        room -= width + 2 * bool(columns)
        if room < 0 and columns:
            break
        columns.append([cell.rjust(width) if is_number else cell.ljust(width) for cell in column])
    lines = ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]
    if left_out := heads[len(columns) :]:
        lines.append(f"No room for {', '.join(left_out)}: widen the terminal, or use --json.")
    return "\n".join(lines)
