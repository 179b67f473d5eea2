"""How far a command is, on standard error, by a clock that the test moves."""

import io
from contextlib import suppress

import pytest

from legacy_queue.cli.progress import progress
from legacy_queue.ports import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Seconds:
    """A clock that each copied page moves by one second."""

    def __init__(self) -> None:
        self.passed = 0.0

    def __call__(self) -> float:
        return self.passed

    def pages(self, count: int, total: int, show: Progress) -> None:
        for done in range(1, count + 1):
            self.passed += 1
            show(done, total, "pages")


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


def test_what_ends_within_two_seconds_shows_nothing(
    seconds: Seconds, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal()
    for output in (None, terminal):
        seconds.passed = 0
        with progress(seconds, output) as show:
            seconds.pages(1, 1, show)
            show(0, 10_000, "artifacts")
    assert (*capsys.readouterr(), terminal.getvalue()) == ("", "", "")


def test_a_count_is_a_line_every_five_seconds_and_at_the_end_on_standard_error_alone(
    seconds: Seconds, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress(seconds) as show:
        seconds.pages(9, 9, show)
    assert capsys.readouterr() == ("", "2 of 9 pages\n7 of 9 pages\n9 of 9 pages\n")


def test_a_terminal_has_one_line_that_is_rewritten_and_ended_also_by_an_error(seconds: Seconds) -> None:
    terminal = Terminal()
    with suppress(KeyboardInterrupt), progress(seconds, terminal) as show:
        seconds.pages(3, 4, show)
        raise KeyboardInterrupt
    _, *states = terminal.getvalue().split("\r")
    assert [state.split("] ")[1].rstrip() for state in states[:-1]] == ["2 of 4 pages"]
    assert states[-1].endswith("] 3 of 4 pages\033[?25h\n"), "the cursor is shown again"
    assert "\n" not in "".join(states[:-1])
