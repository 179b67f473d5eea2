"""Which state machine or test finds each mutant, and by what; run by scripts/mutants.

A mutant of the domain goes to the machine of the transitions first, and to that of the services if it
survives; every other one only to the latter, or to the tests that it names. The examples are the same in
every run, and none is shrunk. Before that, machines and tests must find nothing in the product as it is.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.mutants import ROOT, Mutant, mutants

AT_ONCE = 2
LONGEST = 150  # s; what takes longer does not end, and that is found out too
MACHINES = {"domain": "tests.domain.test_life_machine", "services": "tests.services.test_life_machine"}
FOUND = 3

HERE = """
import pathlib, sys
import legacy_queue
assert pathlib.Path(legacy_queue.__file__).is_relative_to(pathlib.Path.cwd())
"""
RUN_MACHINE = f"""{HERE}
import importlib
from hypothesis import HealthCheck, Phase, settings
machine = importlib.import_module(sys.argv[1])
same = settings(
    machine.SETTINGS, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
    report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
)
try:
    machine.run(same)
except Exception as error:
    print(f"{{type(error).__name__}}: {{str(error).partition(chr(10))[0]}}")
    sys.exit({FOUND})
"""
RUN_TESTS = f"""{HERE}
import pytest
failed = []
class Failures:
    def pytest_runtest_logreport(self, report):
        failed.extend([report.nodeid.rpartition("::")[2]] if report.failed else [])
code = pytest.main(["--exitfirst", "--quiet", "-p", "no:cacheprovider", sys.argv[1]], plugins=[Failures()])
print(*failed)
sys.exit({FOUND} if code == pytest.ExitCode.TESTS_FAILED else code)
"""


@dataclass(frozen=True)
class Result:
    """``found`` says by what and which promise, None for a survivor."""

    mutant: Mutant
    found: str | None
    seconds: float


def copy_of(tree: Path, folder: str) -> Path:
    """What machines and tests need of the tree, in the folder."""
    unneeded = shutil.ignore_patterns("node_modules", "__pycache__")
    for name in ("legacy_queue", "tests"):
        shutil.copytree(tree / name, Path(folder) / name, ignore=unneeded)
    return Path(folder)


def try_out(mutant: Mutant, intact: Path) -> Result:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = copy_of(intact, folder)
        (copy / "legacy_queue" / mutant.file).write_text(mutant.applied(copy / "legacy_queue"))
        answers = (f"{name}: {answer}" for name in finders(mutant) if (answer := run(copy, name)))
        found = next(answers, None)
    return Result(mutant, found, time.monotonic() - began)


def finders(mutant: Mutant) -> list[str]:
    """The machines, or the tests, that it is shown to."""
    if mutant.tests:
        return [mutant.tests]
    return ["domain", "services"] if mutant.file.startswith("domain/") else ["services"]


def run(copy: Path, name: str) -> str | None:
    """What the machine or the tests found in the copy; raises RuntimeError where they do not even start."""
    machine = MACHINES.get(name)
    command = [sys.executable, "-c", *([RUN_MACHINE, machine] if machine else [RUN_TESTS, f"tests/{name}"])]
    try:
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=LONGEST, check=False)
    except subprocess.TimeoutExpired:
        return f"does not end in {LONGEST} s"
    if done.returncode not in (0, FOUND):
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout.splitlines()[-1] if done.returncode == FOUND else None


def results(chosen: list[Mutant]) -> Iterator[Result]:
    """In the order of the list; raises Rotten where one does not apply, before any is tried."""
    with tempfile.TemporaryDirectory(prefix="intact-") as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        intact = copy_of(ROOT, folder)  # while somebody goes on editing
        for mutant in chosen:
            mutant.applied(intact / "legacy_queue")
        named = sorted({*MACHINES, *(mutant.tests for mutant in chosen if mutant.tests)})
        wrong = [found for found in pool.map(lambda name: run(intact, name), named) if found]
        if wrong:
            sys.exit(f"without any mutant: {', '.join(wrong)}")
        yield from pool.map(lambda mutant: try_out(mutant, intact), chosen)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument("words", nargs="?", default="", help="run only mutants that say this")
    words = parser.parse_args().words
    chosen = [mutant for mutant in mutants() if words in mutant.breaks]
    began, survivors = time.monotonic(), 0
    for result in results(chosen):
        survivors += result.found is None
        print(f"{result.mutant.breaks:<70} {result.seconds:4.0f} s  {result.found or 'SURVIVED'}", flush=True)
    print(f"{len(chosen)} mutants, {survivors} survived, in {time.monotonic() - began:.0f} s")
    sys.exit(1 if survivors or not chosen else 0)


if __name__ == "__main__":
    main()
