"""Runs a state machine or tests on each mutant and prints which failure finds it; run by scripts/mutants.

A mutant that names tests is run with these alone. A mutant of the domain is run with the tests of the domain,
and with the state machine of the services if it survives; any other mutant with the latter. The examples
are the same in every run, and none is shrunk. First the unchanged code is run with
all that the mutants need, and must pass.
"""

import argparse
import os
import shutil
import signal
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

PROCESSES = 2
MAX_CPU = 150  # s; a mutant that takes longer is found: it does not end
MAX_EXAMPLES = 600  # scripts/test takes fewer
MACHINES = {"services": "tests.services.test_life_machine"}
DOMAIN = "domain"  # its tests

CHECKS_BEFORE = f"""
import pathlib, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({MAX_CPU}, {MAX_CPU + 1}))
import legacy_queue
assert pathlib.Path(legacy_queue.__file__).is_relative_to(pathlib.Path.cwd())
"""
RUN_MACHINE = f"""{CHECKS_BEFORE}
import importlib
from hypothesis import HealthCheck, Phase, settings
machine = importlib.import_module(sys.argv[1])
same = settings(
    machine.SETTINGS, max_examples={MAX_EXAMPLES}, derandomize=True, database=None, deadline=None,
    phases=[Phase.generate], report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
)
try:
    machine.run(same)
except Exception as error:
    print(f"{{type(error).__name__}}: {{str(error).partition(chr(10))[0]}}")
    sys.exit(1)
"""
RUN_TESTS = f"""{CHECKS_BEFORE}
import pytest
options = ["--exitfirst", "--quiet", "-p", "no:cacheprovider", "-o", "timeout=180"]  # there is no setup.cfg
failed = []
class Failures:
    def pytest_runtest_logreport(self, report):
        failed.extend([report.nodeid.rpartition("::")[2]] if report.failed else [])
code = pytest.main([*options, sys.argv[1]], plugins=[Failures()])
print(*failed)
sys.exit(code)
"""


@dataclass(frozen=True)
class Result:
    """``found`` names the machine or tests and their failure; None for a mutant that survived."""

    mutant: Mutant
    found: str | None
    seconds: float


def copy_to(folder: str, tree: Path) -> Path:
    """Copies to the folder what machines and tests need of the tree, compiled files too."""
    unneeded = shutil.ignore_patterns("node_modules", ".venv")
    for name in ("legacy_queue", "tests", "docs"):
        shutil.copytree(tree / name, Path(folder) / name, ignore=unneeded)
    for name in ("node_modules", ".venv"):  # not copied: they are large
        clients = Path("tests/clients", name)
        (Path(folder) / clients).symlink_to((ROOT / clients).resolve())
    (Path(folder) / ".rabbitmq").symlink_to(ROOT / ".rabbitmq")  # missing where the machine has one
    return Path(folder)


def run_mutant(mutant: Mutant, intact: Path) -> Result:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = copy_to(folder, intact)
        (copy / "legacy_queue" / mutant.file).write_text(mutant.applied(copy / "legacy_queue"))
        failures = (f"{name}: {failure}" for name in suites(mutant) if (failure := run(copy, name)))
        found = next(failures, None)
    return Result(mutant, found, time.monotonic() - began)


def suites(mutant: Mutant) -> list[str]:
    """The machines, or the tests, that the mutant is run with."""
    if mutant.tests:
        return [mutant.tests]
    return [DOMAIN, "services"] if mutant.file.startswith("domain/") else ["services"]


def run(copy: Path, name: str) -> str | None:
    """Runs a machine or tests in the copy and returns their failure, None if they pass."""
    machine = MACHINES.get(name)
    command = [sys.executable, "-c", *([RUN_MACHINE, machine] if machine else [RUN_TESTS, f"tests/{name}"])]
    timeout = 10 * MAX_CPU  # of a process that waits, on a busy machine
    try:
        done = subprocess.run(
            command,
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy)},  # for the processes of the tests too
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "does not end"
    if done.returncode == -signal.SIGXCPU:
        return "does not end"
    said = [line for line in (done.stderr + done.stdout).splitlines() if line]
    return (said[-1] if said else f"exit code {done.returncode}") if done.returncode else None


def results(chosen: list[Mutant]) -> Iterator[Result]:
    """In the order of the list. Raises DoesNotApply for a mutant that does not apply, before any is run."""
    with tempfile.TemporaryDirectory(prefix="intact-") as folder, ThreadPoolExecutor(PROCESSES) as pool:
        intact = copy_to(folder, ROOT)  # the tree may be edited while this runs
        for mutant in chosen:
            mutant.applied(intact / "legacy_queue")
        named = sorted({name for mutant in chosen for name in suites(mutant)})
        failures = [failure for failure in pool.map(lambda name: run(intact, name), named) if failure]
        if failures:
            sys.exit(f"without any mutant: {', '.join(failures)}")
        yield from pool.map(lambda mutant: run_mutant(mutant, intact), chosen)


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
