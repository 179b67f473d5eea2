"""Measures how long the tests of each folder take: pytest's own durations, and the CPU time of all processes.

If a test starts a process, the CPU time counts for the test that ends it. Services that run for the whole
test run have a line of their own, and so does the time before the first test.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

START, SERVICES = "start and collection", "services of the whole run"
SLOWEST = 40
PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
TABLE = "<!-- `scripts/test --times` writes this table -->\n", "<!-- end of the table -->\n"

# Seconds of CPU for each folder in `scripts/test`, together 400. If a folder takes more, the last lines of
# the run name it, but nothing fails.
BUDGETS = {
    "adapters": 17,
    "browser": 15,
    "cli": 22,
    "config": 2,
    "conform": 36,
    "containers": 2,
    "contracts": 8,
    "docs": 56,
    "domain": 12,
    "examples": 8,
    "gateway": 10,
    "http": 22,
    "history": 1,
    "local_processes": 16,
    "server": 5,
    "services": 12,
    "simulation": 38,
    "stores": 4,
    "system": 30,
    "testing": 8,
    "tests": 5,
    "worker": 2,
    SERVICES: 40,
    START: 29,
}

_last_cpu = pytest.StashKey[float]()
_is_last = pytest.StashKey[bool]()


@dataclass
class Times:
    """The tests of one folder, or one test, and the seconds that they took."""

    tests: set[str] = field(default_factory=set)
    wall: float = 0.0
    cpu: float = 0.0


def pytest_addoption(parser: pytest.Parser) -> None:
    text = f"print the wall time and CPU of each folder and of the {SLOWEST} slowest tests"
    parser.addoption("--times", action="store_true", help=text)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    item.stash[_is_last] = nextitem is None  # after the last test, the services of the whole run are stopped
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report its folder, and the CPU time since the last report of this process."""
    report = yield
    now = sum(os.times()[:4])
    stash = item.config.stash
    words = item.location[0].split(os.sep)
    folder = words[1] if len(words) > 2 else words[0]
    measured: dict[str, Any] = {"folder": folder, "cpu": now - stash.get(_last_cpu, now)}
    if _last_cpu not in stash:
        measured["start"] = now
    if call.when == "teardown" and item.stash[_is_last]:
        measured["folder"] = SERVICES
    report.__dict__["times"] = measured  # pytest-xdist sends this to the main process
    stash[_last_cpu] = now
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: pytest.ExitCode, config: pytest.Config
) -> None:
    reports = [
        report
        for named in terminalreporter.stats.values()
        for report in named
        if isinstance(report, pytest.TestReport) and hasattr(report, "times")
    ]
    folders = _sums(reports, lambda report: str(report.__dict__["times"]["folder"]))
    for report in reports:
        folders[START].cpu += report.__dict__["times"].get("start", 0.0)
    folders[SERVICES].tests.clear()
    if config.getoption("--times"):
        table = "".join(_table(folders))
        terminalreporter.section("times by folder, and the slowest tests")
        terminalreporter.write(f"{table}\n")
        terminalreporter.write("".join(_slowest(reports)))
        if exitstatus == pytest.ExitCode.OK and _is_whole(config):
            _write(table)
    for folder, times in folders.items():
        budget = BUDGETS.get(folder, 0)
        if times.cpu > budget:
            terminalreporter.write_line(
                f"{folder} took {times.cpu:.0f} s of CPU, more than its budget of {budget} s"
            )


def _is_whole(config: pytest.Config) -> bool:
    """Whether this is a whole run of `scripts/test`: no nightly tests, no selection, coverage measured."""
    option = config.option
    everything = option.markexpr == "not nightly" and not option.keyword and "tests" in config.args
    return everything and bool(option.cov_source)


def _sums(
    reports: list[pytest.TestReport], name: Callable[[pytest.TestReport], str]
) -> defaultdict[str, Times]:
    found: defaultdict[str, Times] = defaultdict(Times)
    for report in reports:
        times = found[name(report)]
        times.tests.add(report.nodeid)
        times.wall += report.duration
        times.cpu += report.__dict__["times"]["cpu"]
    return found


def _table(folders: dict[str, Times]) -> Iterator[str]:
    yield "| folder | tests | wall, s | CPU, s |\n| --- | ---: | ---: | ---: |\n"
    whole = Times(set().union(*(times.tests for times in folders.values())))
    for name, times in sorted(folders.items(), key=lambda item: -item[1].cpu):
        whole.wall += times.wall
        whole.cpu += times.cpu
        yield f"| {name} | {len(times.tests) or ''} | {times.wall:.1f} | {times.cpu:.1f} |\n"
    yield f"| all | {len(whole.tests)} | {whole.wall:.1f} | {whole.cpu:.1f} |\n"


def _slowest(reports: list[pytest.TestReport]) -> Iterator[str]:
    yield "wall, s  CPU, s\n"
    tests = _sums(reports, lambda report: report.nodeid)
    for name, times in sorted(tests.items(), key=lambda item: -item[1].wall)[:SLOWEST]:
        yield f"{times.wall:7.1f} {times.cpu:7.1f}  {name}\n"


def _write(table: str) -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition(TABLE[0])
    PAGE.write_text(f"{before}{TABLE[0]}{table}{TABLE[1]}{rest.partition(TABLE[1])[2]}")
