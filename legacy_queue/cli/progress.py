"""The progress of a long operation, on standard error. An operation of less than two seconds shows none."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TextIO

import click

from legacy_queue.ports import Progress

_QUIET_TIME = 2.0  # seconds
_INTERVALS = {True: 0.2, False: 5.0}  # seconds, on a terminal and elsewhere


@contextmanager
def progress(now: Callable[[], float] = monotonic, output: TextIO | None = None) -> Iterator[Progress]:
    """A function that shows the progress it is given: a bar on a terminal, else a line every few seconds."""
    output = output or sys.stderr
    bar = click.progressbar(length=1, bar_template="[%(bar)s] %(label)s", file=output)
    begin = due = now() + _QUIET_TIME

    def show(done: int, total: int, what: str) -> None:
        nonlocal due
        if now() >= due or (due > begin and done == total):  # once something was shown, its end is too
            due = now() + _INTERVALS[output.isatty()]
            bar.length, bar.pos, bar.label = total, done, f"{done} of {total} {what}"
            bar.render_progress()  # without a terminal it prints the label alone

    try:
        yield show
    finally:
        if due > begin:
            bar.render_finish()  # shows the cursor again
