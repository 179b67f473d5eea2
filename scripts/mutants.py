"""Breaks the code in one place at a time, each time in a copy, and prints which test finds it.

`promises` uses the list in scripts/mutants.toml. Each mutant breaks a promise, so a mutant that survives is a
failure. `lines` lets mutmut change the lines of domain, services and stores, and runs the test folders that
pyproject.toml names. It prints the changes that survive. Look at them, and write a test where one is missing.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.mutants import ROOT, Mutant, mutants

PROCESSES = 2
MAX_CPU = 300  # seconds of one process; a mutant that takes longer counts as found, because it does not end
MAX_TIME = 1800  # seconds of a process that waits, on a busy machine
# with these, hypothesis takes the same examples each time, and the simulation ends at the first failure
ENVIRON = {**os.environ, "CI": "1", "MUTANT_UNDER_TEST": ""}
SPINNER = tuple("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")  # what mutmut shows while it works


def copy_to(folder: str, tree: Path = ROOT) -> Path:
    """Copies what the tests need from the tree into the folder, including compiled files."""
    copy = Path(folder)
    for name in ("legacy_queue", "tests", "docs"):
        shutil.copytree(tree / name, copy / name, ignore=shutil.ignore_patterns("node_modules", ".venv"))
    for name in ("setup.cfg", "pyproject.toml"):
        shutil.copy(tree / name, copy)
    for name in ("tests/clients/node_modules", "tests/clients/.venv", ".rabbitmq"):  # too large to copy
        (copy / name).symlink_to(ROOT / name)
    return copy


def failure(copy: Path, tests: str) -> str | None:
    """Runs the tests in the copy. Returns the first failure, or None if they pass."""
    command = ["prlimit", f"--cpu={MAX_CPU}", sys.executable, "-m", "pytest", f"tests/{tests}"]
    options = ["--exitfirst", "--quiet", "--tb=no", "-n", "0", "-m", "", "-p", "no:cacheprovider"]
    env = {**ENVIRON, "PYTHONPATH": str(copy)}  # also for the processes that the tests start
    try:
        done = subprocess.run(
            [*command, *options], cwd=copy, env=env, capture_output=True, text=True, timeout=MAX_TIME
        )
    except subprocess.TimeoutExpired:
        return "does not end"
    said = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return (
        (said[0].partition(" - ")[0] if said else f"exit code {done.returncode}") if done.returncode else None
    )


def found(mutant: Mutant, intact: Path) -> str | None:
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = copy_to(folder, intact)
        (copy / "legacy_queue" / mutant.file).write_text(mutant.applied(copy / "legacy_queue"))
        return failure(copy, mutant.tests)


def promises(words: str) -> bool:
    """Runs the mutants whose text has the words. Returns whether tests that pass without them find all."""
    chosen = [mutant for mutant in mutants() if words in mutant.breaks]
    count = 0
    with tempfile.TemporaryDirectory(prefix="intact-") as folder, ThreadPoolExecutor(PROCESSES) as pool:
        intact = copy_to(folder)  # because the tree may be edited while this runs
        named = sorted({mutant.tests for mutant in chosen})
        fails = dict(zip(named, pool.map(lambda tests: failure(intact, tests), named), strict=True))
        for mutant, by in zip(chosen, pool.map(lambda each: found(each, intact), chosen), strict=True):
            is_found = by is not None and fails[mutant.tests] is None
            count += is_found
            said = (
                by if is_found else f"NOT FOUND: without it, {fails[mutant.tests] or 'and with it, all pass'}"
            )
            print(f"{mutant.breaks:<80} {said}", flush=True)
    print(f"found {count} of {len(chosen)}")
    return bool(chosen) and count == len(chosen)


def lines(path: str) -> bool:
    """Runs mutmut on a module or a folder, and prints the changes that survive."""
    where = path if path.endswith(".py") else f"{path.rstrip('/')}/*"
    with tempfile.TemporaryDirectory(prefix="lines-") as folder:
        copy = copy_to(folder)
        if path:
            settings = (copy / "pyproject.toml").read_text()
            chosen = re.sub("only_mutate = .*", f'only_mutate = ["{where}"]', settings)
            (copy / "pyproject.toml").write_text(chosen)

        def mutmut(*words: str) -> list[str]:
            command = [sys.executable, "-m", "mutmut", *words]
            done = subprocess.run(command, cwd=copy, env=ENVIRON, stdout=subprocess.PIPE, text=True)
            said = [line for line in done.stdout.splitlines() if not line.startswith(SPINNER)]
            return sys.exit("\n".join(said)) if done.returncode else said

        mutmut("run", f"--max-children={PROCESSES}")
        results = dict(line.strip().split(": ") for line in mutmut("results", "--all", "true"))
        for name, result in results.items():
            if result != "killed":
                changed = [line for line in mutmut("show", name) if line.startswith(("-", "+"))]
                print(f"{name}: {result}", *changed[2:], sep="\n", flush=True)
    print(f"found {[*results.values()].count('killed')} of {len(results)}")
    return bool(results)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument("what", nargs="?", default="promises", choices=("promises", "lines"))
    parser.add_argument("where", nargs="?", default="", help="words of a promise; a path in the package")
    given = parser.parse_args()
    sys.exit(0 if (promises if given.what == "promises" else lines)(given.where) else 1)


if __name__ == "__main__":
    main()
