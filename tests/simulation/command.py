"""Runs of the simulated world. ``usual``: random ones, by the seeds of the tests; ``day``, unless told
otherwise: by those of the day, too; ``kills``: a life with a kill wherever that leaves something else;
``orders``: two calls in each order. A broken promise ends with exit code 1, after the story of what it is
about.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import click

from tests.simulation.exhaustive import LIVES, PAIRS, kills, orders
from tests.simulation.promises import Broken
from tests.simulation.random_run import SEEDS, Outcome, Plan, faults_of, run, shrunk

_OF_A_DAY = 7  # seeds
_LINES = 80  # of a story


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument("what", nargs="?", default="day", choices=("day", "usual", "kills", "orders"))
    parser.add_argument("name", nargs="?", default="", help="only lives or pairs that say this")
    parser.add_argument("--seed", type=int, action="append", help="instead of these seeds; repeatable")
    parser.add_argument("--minutes", type=float, default=0.0, help="go on with further seeds for so long")
    parser.add_argument("--tasks", type=int, default=Plan(0).tasks, help="of a random run (%(default)s)")
    parser.add_argument("--processes", type=int, default=Plan(0).processes, help="of it (%(default)s)")
    parser.add_argument("--trace", type=Path, help="write a line for each step of random runs to this file")
    given = parser.parse_args()
    if given.what == "kills":
        known: set[tuple[str, ...]] = set()
        held = _exhaust(given, LIVES, lambda name: kills(LIVES[name], known))
    elif given.what == "orders":
        held = _exhaust(given, PAIRS, lambda name: orders(PAIRS[name]))
    else:
        held = _random(given)
    sys.stdout.flush()
    os._exit(0 if held else 1)  # the processes of the world still wait


def _seeds(given: argparse.Namespace) -> Iterator[int]:
    end = time.monotonic() + 60 * given.minutes
    first = datetime.now(UTC).timetuple().tm_yday * _OF_A_DAY
    of_the_day = range(first, first + _OF_A_DAY) if given.what == "day" else ()
    seeds: Sequence[int] = given.seed or (*SEEDS, *of_the_day)
    yield from seeds
    seed = seeds[-1]
    while time.monotonic() < end:
        seed += 1
        yield seed


def _random(given: argparse.Namespace) -> bool:
    broken: dict[int, bool] = {}
    with ExitStack() as stack:
        file = stack.enter_context(given.trace.open("w")) if given.trace else None
        for seed in _seeds(given):
            began = time.process_time()
            plan = Plan(seed, given.tasks, given.processes, faults_of(seed))
            outcome = run(plan, (lambda line: file.write(f"{line}\n")) if file else None)
            took = time.process_time() - began
            click.echo(f"seed {seed}: {outcome.calls} calls, {outcome.kills} kills, {took:.1f} s of CPU")
            broken[seed] = outcome.broken is not None
            if outcome.broken:
                click.echo(f"BROKEN {outcome.about} {outcome.broken}")
                if "MUTANT_UNDER_TEST" in os.environ:  # scripts/mutants needs to know no more
                    break
                click.echo("looking for fewer tasks and faults, for some minutes ...")
                _tell(shrunk(outcome))
    again = "".join(f" --seed {seed}" for seed, is_broken in broken.items() if is_broken)
    click.echo(f"{list(broken.values()).count(False)} of {len(broken)} seeds are clean")
    if again:
        click.echo(f"repeat the others: scripts/simulate{again}")
    return not again


def _tell(outcome: Outcome) -> None:
    """The story of a broken promise: the lines about its task."""
    broken, plan = outcome.broken, outcome.plan
    told = rf"\b{outcome.about}\b| p\d+ (starts|stands still|is killed)|the broker is away"
    about = [line for line in outcome.story if re.search(told, line) and "workers.merge" not in line]
    click.echo("\n".join(about[-_LINES:]))
    click.echo(f"BROKEN {outcome.about} {broken}")
    faults = ", ".join(plan.faults.kinds) or "no faults"
    click.echo(f"with {plan.tasks} tasks, {plan.processes} processes and {faults}")


def _exhaust(given: argparse.Namespace, names: Iterable[str], trials: Callable[[str], Iterator[str]]) -> bool:
    chosen = [name for name in names if given.name in name]
    for name in chosen:
        done: list[str] = []
        try:
            done.extend(trials(name))
        except Broken as broken:
            click.echo(f"{name}: BROKEN {broken}\nin trial {len(done)}, the next after {done[-1:]}")
            return False
        click.echo(f"{name}: {len(done)} {given.what}")
    return bool(chosen)
