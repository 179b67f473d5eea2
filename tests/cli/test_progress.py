"""How far a command is, on standard error, by a clock that the test moves."""

import io
from contextlib import suppress

import pytest

from legacy_queue.cli.progress import progress
from legacy_queue.ports import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Copy:
    """Copies pages, each in a second of its own clock."""

    def __init__(self) -> None:
        self._passed = 0.0

    def clock(self) -> float:
        return self._passed

    def pages(self, count: int, total: int, show: Progress) -> None:
        for done in range(1, count + 1):
            self._passed += 1
            show(done, total, "pages")


@pytest.mark.parametrize("output", [None, Terminal()])
def test_what_ends_within_two_seconds_shows_nothing(
    output: Terminal | None, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Copy()
    with progress(copy.clock, output) as show:
        copy.pages(1, 1, show)
        show(0, 10_000, "artifacts")
    assert capsys.readouterr() == ("", "")
    assert not output or output.getvalue() == ""


def test_a_count_is_a_line_every_five_seconds_and_at_the_end_on_standard_error_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    copy = Copy()
    with progress(copy.clock) as show:
        copy.pages(9, 9, show)
    assert capsys.readouterr() == ("", "2 of 9 pages\n7 of 9 pages\n9 of 9 pages\n")


def test_a_terminal_has_one_line_that_is_rewritten_and_ended_also_by_an_error() -> None:
    copy, terminal = Copy(), Terminal()
    with suppress(KeyboardInterrupt), progress(copy.clock, terminal) as show:
        copy.pages(3, 4, show)
        raise KeyboardInterrupt
    _, first, last = terminal.getvalue().split("\r")
    assert first.split("] ")[1].rstrip() == "2 of 4 pages"
    assert "\n" not in first
    assert last.endswith("] 3 of 4 pages\033[?25h\n"), "the cursor is shown again"
