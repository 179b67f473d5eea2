"""Commands show their progress on standard error. The test moves the clock."""

import io
from contextlib import suppress

import pytest

from legacy_queue.cli.progress import progress
from legacy_queue.ports import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Copy:
    """Copies pages. On its own clock, each takes a second."""

    def __init__(self, output: Terminal | None = None) -> None:
        self._passed = 0.0
        self.shown = progress(lambda: self._passed, output)

    def pages(self, count: int, total: int, show: Progress) -> None:
        for done in range(1, count + 1):
            self._passed += 1
            show(done, total, "pages")


def test_progress_is_a_line_on_standard_error_after_two_seconds_then_every_five_and_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for count, said in ((1, ""), (9, "2 of 9 pages\n7 of 9 pages\n9 of 9 pages\n")):
        copy = Copy()
        with copy.shown as show:
            copy.pages(count, count, show)
        assert capsys.readouterr() == ("", said)


def test_on_a_terminal_progress_is_one_line_that_is_completed_even_after_an_error() -> None:
    terminal = Terminal()
    copy = Copy(terminal)
    with suppress(KeyboardInterrupt), copy.shown as show:
        copy.pages(3, 4, show)
        raise KeyboardInterrupt
    _, first, last = terminal.getvalue().split("\r")
    assert first.split("] ")[1].rstrip() == "2 of 4 pages"
    assert "\n" not in first
    assert last.endswith("] 3 of 4 pages\033[?25h\n"), "the cursor is shown again"
